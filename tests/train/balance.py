"""--balance data: micro-batches are dealt by the ranks' speed, and dealt again when it changes; what is summed stays the same.

    balance.py BINARY
"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import MPIRUN, checkpoint_tensors, refused, run, sample_hash, step_losses

BINARY = sys.argv.pop()
RECIPE = ["--model", "mlp", "--threads", 1, "--global-batch", 64, "--schedule", "constant", "--epochs", 4, "--quiet"]
BALANCED = ["--balance", "data", "--micro-batches", 16]
SAMPLE_S = 100e-6
CLOCK = f"clock = \"virtual\"\ncompute_us_per_sample = {SAMPLE_S * 1e6:g}\n"


def slow(rank, *lines):
    return "\n".join([f"[[slow]]\nrank = {rank}\nfactor = 4", *lines]) + "\n"


class BalanceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, ranks, machine, *options, steps=64):
        emulated = []
        if machine:
            (self.folder / f"{name}.toml").write_text(machine)
            emulated = ["--emulate", f"{name}.toml"]
        run(BINARY, ranks, *RECIPE, "--name", name, "--limit-steps", steps, *emulated, *options, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def results(self, folder):
        return h5py.File(folder / "results.h5")

    def changes(self, file):
        return [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"balance"]

    def tensors(self, folder, step):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [name for name in one if one[name].tobytes() != other[name].tobytes()])

    def times(self, file):
        return file["ranks/00000/virtual_times"]["virtual_time_s"][:]

    def test_a_slow_rank_holds_the_others_up_little(self):
        with self.results(self.train("even", 4, CLOCK + slow(3), "--micro-batches", 16)) as file:
            even = np.diff(self.times(file))
            hashes = sample_hash(file)
            losses = step_losses(file)
        with self.results(self.train("dealt", 4, CLOCK + slow(3), *BALANCED)) as file:
            dealt = np.diff(self.times(file))
            weights = [np.sum(file[f"ranks/{rank:05}/steps"]["weight"][-32:]) for rank in range(4)]
            said = self.changes(file)
            self.assertEqual(sample_hash(file), hashes)
            np.testing.assert_allclose(step_losses(file), losses, rtol=1e-3)  # the same sums, added in another order
        np.testing.assert_allclose(even, 16 * 4 * SAMPLE_S)
        # 5 of 16 micro-batches are the most that a rank has: 16 / 5 times as fast.
        np.testing.assert_allclose(dealt[-32:], 20 * SAMPLE_S)
        self.assertGreater(even[-1] / dealt[-1], 2.9)
        self.assertGreater(np.sum(even[16:]) / np.sum(dealt[16:]), 2.9)
        self.assertEqual(weights, [32 * 20, 32 * 20, 32 * 20, 32 * 4])
        self.assertEqual(len(said), 1, said)
        self.assertIn("5, 5, 5, 1 of a step's 16 micro-batches", said[0])

    def test_they_are_dealt_again_when_a_speed_changes(self):
        machine = CLOCK + slow(0, "from_step = 17", "to_step = 40")
        with self.results(self.train("changes", 2, machine, "--balance", "data")) as file:  # 8 micro-batches, 4 for each rank
            said = self.changes(file)
            steps = np.diff(self.times(file))
        self.assertEqual(len(said), 2, said)
        self.assertIn("1, 7 of a step's 8", said[0])
        self.assertIn("4, 4 of a step's 8", said[1])
        np.testing.assert_allclose(steps[[3, 17, 35, 60]], np.array([32, 128, 56, 32]) * SAMPLE_S)

    def test_the_bits_do_not_depend_on_who_computes(self):
        strict = ["--reproducible", "--micro-batches", 12]
        expected = self.tensors(self.train("strict-one", 1, "", *strict, steps=40), 40)
        # Measured speeds of a real run, a pipeline on each copy, and a run that goes on elsewhere.
        cases = {"strict-dealt": (2, slow(1), []), "strict-pipe": (4, slow(0), ["--mesh", "data=2,pipe=2"])}
        for name, (ranks, machine, options) in cases.items():
            with self.subTest(name=name):
                folder = self.train(name, ranks, machine, *strict, "--balance", "data", *options, steps=40)
                self.assert_same(self.tensors(folder, 40), expected)
                with self.results(folder) as file:
                    self.assertTrue(self.changes(file), "all micro-batches stayed where they were")
        first = self.train("strict-first", 2, slow(1), *strict, "--balance", "data", steps=20)
        rest = self.train("strict-rest", 3, "", *strict, "--balance", "data", "--resume", first / "checkpoints/step-00000020", steps=40)
        self.assert_same(self.tensors(rest, 40), expected)

    def test_a_table_by_rows_is_summed_over_any_share(self):
        text = ["--model", "nbow", "--optimizer", "adam", "--learning-rate", 0.001]
        even = self.train("rows-even", 3, "", *text, "--micro-batches", 12, steps=40)
        dealt = self.train("rows-dealt", 3, CLOCK + slow(1), *text, "--micro-batches", 12, "--balance", "data", steps=40)
        with self.results(dealt) as file:
            self.assertEqual(len(self.changes(file)), 1)
        one, other = (checkpoint_tensors(folder / "checkpoints" / "step-00000040") for folder in (even, dealt))
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-3, atol=1e-5, err_msg=name)

    def test_the_others_go_on_after_a_loss(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        strict = ["--reproducible", "--micro-batches", 12, "--limit-steps", 40]
        (self.folder / "lost.toml").write_text(slow(0))
        done = subprocess.run([str(MPIRUN), "3", BINARY, *map(str, [*RECIPE, *strict, "--balance", "data", "--emulate", "lost.toml", "--name", "lost",
                                                                   "--inject", "kill:rank=1,phase=backward,step=24"])],
                              cwd=self.folder, text=True, timeout=120, env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        folder = self.folder / "runs/lost"
        self.assertEqual((folder / "state").read_text(), "completed\n", done.stdout + done.stderr)
        with self.results(folder) as file:
            self.assertTrue(self.changes(file))
        self.assert_same(self.tensors(folder, 40), self.tensors(self.train("kept", 1, "", *strict, steps=40), 40))

    def test_what_cannot_be_dealt_is_refused(self):
        for ranks, words, options in [(2, ["--balance data", "2 micro-batches for 2 data ranks", "--micro-batches 8 or more"], ["--micro-batches", 2]),
                                      (2, ["--balance data", "--strategy local_sgd cannot"], ["--strategy", "local_sgd"]),
                                      (2, ["--balance data", "--strategy easgd cannot"], ["--strategy", "easgd"]),
                                      (3, ["--balance data", "--strategy asgd cannot"], ["--strategy", "asgd"])]:
            with self.subTest(options=options):
                refused(BINARY, ranks, 2, words, *RECIPE, "--balance", "data", *options, "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
