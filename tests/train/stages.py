"""--balance dynamic: layers move to other ranks of a pipeline where these have other speeds, with their optimizer state.

    stages.py BINARY
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import MPIRUN, checkpoint_tensors, run, sample_hash

BINARY = sys.argv.pop()
# Adam's state moves along, and the strict mode has the same bits wherever a layer lies.
RECIPE = ["--model", "mlp", "--model-option", "hidden=192,192,192,192,192,192", "--threads", 1, "--global-batch", 128, "--micro-batches", 4,
          "--schedule", "constant", "--epochs", 3, "--limit-steps", 72, "--reproducible", "--quiet"]
PIPE = ["--mesh", "pipe=2", "--balance", "dynamic"]
SLOW = "[[slow]]\nrank = 1\nfactor = 8\n"


class StagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        (cls.folder / "slow.toml").write_text(SLOW)
        run(BINARY, 1, *RECIPE, "--name", "usual", cwd=cls.folder)

    def assert_as_usual(self, name):
        one, other = (checkpoint_tensors(self.folder / "runs" / of / "checkpoints/step-00000072", group=None) for of in (name, "usual"))
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [tensor for tensor in one if one[tensor].tobytes() != other[tensor].tobytes()])

    def moves(self, file):
        """Layers of each rank, after and before each move."""
        details = [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"stages"]
        return [[int(count) for count in re.search(r"have (\d+), (\d+) layers, before (\d+), (\d+)", detail).groups()] for detail in details]

    def test_layers_leave_a_slow_rank_and_the_training_stays_the_same(self):
        run(BINARY, 2, *RECIPE, *PIPE, "--emulate", "slow.toml", "--name", "slow", "--overwrite", cwd=self.folder, limit_s=100)
        self.assert_as_usual("slow")
        self.assertEqual((self.folder / "runs/slow/state").read_text(), "completed\n")
        with h5py.File(self.folder / "runs/slow/results.h5") as file, h5py.File(self.folder / "runs/usual/results.h5") as usual:
            first = self.moves(file)[0]
            self.assertGreater(first[0], first[2])
            self.assertLess(first[1], first[3])
            self.assertEqual(file["epochs"]["epoch"].tolist(), usual["epochs"]["epoch"].tolist())
            self.assertEqual(file["epochs"]["validation_loss"].tolist(), usual["epochs"]["validation_loss"].tolist())
            self.assertEqual(sample_hash(file), sample_hash(usual))
            steps = file["ranks/00001/steps"]["step"][:]
            np.testing.assert_array_equal(steps, np.arange(1, 73))

    def test_between_two_parts_the_run_is_running(self):
        command = [str(MPIRUN), "2", BINARY, *map(str, [*RECIPE, *PIPE]), "--emulate", "slow.toml", "--name", "watched"]
        job = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        state = self.folder / "runs/watched/state"
        seen = set()
        end = time.monotonic() + 100
        while job.poll() is None and time.monotonic() < end:
            if state.exists():
                seen.add(state.read_text())
            time.sleep(0.002)
        said = job.communicate(timeout=10)[0]
        self.assertEqual(job.returncode, 0, said)
        with h5py.File(self.folder / "runs/watched/results.h5") as file:
            self.assertTrue(self.moves(file))
        self.assertLessEqual(seen, {"running\n", "completed\n"})

    def test_without_the_checkpoint_the_layers_stay(self):
        done = run(BINARY, 2, *RECIPE, *PIPE, "--emulate", "slow.toml", "--name", "full", "--inject", "disk_full:rank=1,step=20", cwd=self.folder,
                   limit_s=100, check=False)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        with h5py.File(self.folder / "runs/full/results.h5") as file, h5py.File(self.folder / "runs/usual/results.h5") as usual:
            details = [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"stages"]
            self.assertEqual(file["epochs"]["epoch"].tolist(), usual["epochs"]["epoch"].tolist())
        self.assertTrue(details)
        self.assertTrue(all("the layers stay where they are" in detail for detail in details), details)

    def test_a_text_of_two_letters_is_timed(self):
        (self.folder / "book.txt").write_text("abababbbaaabab" * 40)
        run(BINARY, 1, "stage", "letters", "--from", "book.txt", "--max-length", 3, cwd=self.folder)
        gpt = ["--model", "gpt", *(word for option in ("layers=2", "heads=2", "width=8", "block=3") for word in ("--model-option", option))]
        run(BINARY, 2, "--dataset", "letters", *gpt, *PIPE, "--limit-steps", 2, "--threads", 1, "--quiet", "--name", "letters", cwd=self.folder)
        self.assertEqual((self.folder / "runs/letters/state").read_text(), "completed\n")

    def test_after_a_move_the_run_goes_on_without_a_lost_rank(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        done = subprocess.run([str(MPIRUN), "2", BINARY, *map(str, [*RECIPE, *PIPE]), "--emulate", "slow.toml", "--name", "lost", "--inject",
                               "kill:rank=1,phase=backward,step=70"], cwd=self.folder, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual((self.folder / "runs/lost/state").read_text(), "completed\n", done.stdout + done.stderr)
        self.assert_as_usual("lost")


if __name__ == "__main__":
    unittest.main()
