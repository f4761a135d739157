"""A checkpoint's tensors are put together only where its slices cover each element once; a run that was started does not outlive
the block that it was started for."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, session, started

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)


class CheckpointTensorsTest(unittest.TestCase):
    def read(self, *rows):
        """The tensor of a checkpoint that holds these rows, a slice for each pair of begin and end."""
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            with h5py.File(folder / "part.h5", "w") as file:
                for begin, end in rows:
                    file[f"rows/{begin}-{end}"] = VALUES[begin:end]
                file["model/offset"] = np.float32(7)
            slices = [{"file": "part.h5", "dataset": f"rows/{begin}-{end}", "offset": [begin, 0], "shape": [end - begin, 3]} for begin, end in rows]
            tensors = [{"name": "model/table", "shape": [4, 3], "dtype": "float32", "slices": slices},
                       {"name": "model/offset", "shape": [], "dtype": "float32", "slices": [{"file": "part.h5", "offset": [], "shape": []}]}]
            (folder / "manifest.json").write_text(json.dumps({"tensors": tensors}))
            found = checkpoint_tensors(folder)
        self.assertEqual(found["offset"], 7)
        return found["table"]

    def test_slices_that_cover_it(self):
        np.testing.assert_array_equal(self.read((0, 4)), VALUES)
        np.testing.assert_array_equal(self.read((2, 4), (0, 2)), VALUES)

    def test_a_hole(self):
        with self.assertRaisesRegex(AssertionError, "slices of model/table leave 3 of 12 elements out"):
            self.read((0, 2), (3, 4))
        with self.assertRaisesRegex(AssertionError, "leave 12 of 12"):
            self.read()

    def test_elements_held_twice(self):
        with self.assertRaisesRegex(AssertionError, "two slices of model/table hold the same"):
            self.read((0, 3), (2, 4))


class StartedTest(unittest.TestCase):
    def test_a_failed_assertion_waits_for_no_run(self):
        rank = "import os, time; os.setpgid(0, 0); print('begun', flush=True); time.sleep(60)"
        launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}])"
        began = time.monotonic()
        with self.assertRaisesRegex(AssertionError, "not so"):
            with started([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True) as process:
                self.assertEqual(process.stdout.readline(), "begun\n")
                self.assertEqual(len(session(process.pid)), 2)
                raise AssertionError("not so")
        self.assertLess(time.monotonic() - began, 30)
        while session(process.pid):  # the kernel takes them away one by one
            self.assertLess(time.monotonic() - began, 30)
            time.sleep(0.01)

    def test_what_a_killed_launcher_leaves_is_removed(self):
        for killed_before in (False, True):
            with self.subTest(killed_before=killed_before):
                self.kill_a_launcher(killed_before)

    def kill_a_launcher(self, killed_before):
        with started(["sh", "-c", 'mkdir "${TMPDIR:-/tmp}/ompi.$$"; echo "${TMPDIR:-/tmp}/ompi.$$"; exec sleep 60'], stdout=subprocess.PIPE,
                     text=True) as process:
            left = process.stdout.readline().strip()
            self.assertTrue(os.path.isdir(left), left)
            if killed_before:
                process.kill()
                process.wait()
        self.assertFalse(os.path.exists(left), left)

    def test_a_run_that_ends_by_itself(self):
        with started(["sh", "-c", "echo done; exit 3"], stdout=subprocess.PIPE, text=True) as process:
            said, _ = process.communicate(timeout=30)
        self.assertEqual((said, process.returncode), ("done\n", 3))


if __name__ == "__main__":
    unittest.main()
