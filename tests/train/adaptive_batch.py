"""--adaptive-batch: a step takes as many batches as the noise of its gradient asks for, decided at the ends of epochs.

    adaptive_batch.py BINARY
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, refused, run, sample_hash

BINARY = sys.argv.pop()
# 1,024 batches of 8 samples an epoch, whose gradients are mostly noise.
RECIPE = ["--model", "mlp", "--threads", 1, "--global-batch", 8, "--schedule", "constant", "--optimizer", "sgd", "--momentum", 0.5, "--learning-rate", 0.01,
          "--quiet"]
EPOCH = 1024


class AdaptiveBatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, *options, ranks=2):
        run(BINARY, ranks, *RECIPE, "--name", name, *options, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def decisions(self, file):
        """Of each epoch: noise scale, batches of a step and the factor of learning rates from then on."""
        said = [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"adaptive_batch"]
        return [tuple(float(number) for number in re.search(r"scale is ([\d.e+]+) samples; a step takes (\d+) x 8 .* x ([\d.]+)$", words).groups()) for words in said]

    def test_steps_become_larger_at_the_ends_of_epochs_only(self):
        with h5py.File(self.train("usual", "--epochs", 1) / "results.h5") as file:
            hashes = sample_hash(file)
        # A validation within the epoch, at which a step ends.
        with h5py.File(self.train("adaptive", "--epochs", 3, "--adaptive-batch", "--validate-every", "301steps") / "results.h5") as file:
            self.assertEqual(sample_hash(file), hashes)
            self.assertEqual(len({sum(int(rank["samples"][epoch]["hash"]) % 2**64 for rank in file["ranks"].values()) % 2**64 for epoch in range(3)}), 1)
            decided = self.decisions(file)
            rows = file["ranks/00000/steps"][:]
            self.assertEqual(list(file["validations"]["step"]), [301, 602, 903, 1024, 1204, 1505, 1806, 2048, 2107, 2408, 2709, 3010, 3072])
        self.assertEqual(len(decided), 3)
        self.assertTrue(all(scale > 8 for scale, _, _ in decided), decided)
        batches, rate = 1, 1.0
        for epoch, (_, batches_then, rate_then) in enumerate(decided, start=1):
            mine = rows[rows["epoch"] == epoch]
            self.assertEqual(max(np.diff(mine["step"], prepend=EPOCH * (epoch - 1))), batches)
            np.testing.assert_allclose(mine["learning_rate"], 0.01 * rate, rtol=1e-3)
            self.assertEqual(mine["step"][-1], EPOCH * epoch)
            self.assertIn(batches_then, (batches, 2 * batches))
            batches, rate = batches_then, rate_then
        self.assertGreater(batches, 1)
        self.assertLess(np.sum(rows["epoch"] == 3), EPOCH)

    def test_a_run_in_two_parts_has_the_same_bits(self):
        options = ["--adaptive-batch", "--checkpoint-every", "512steps"]
        whole = self.train("whole", *options, "--epochs", 3)
        first = self.train("first", *options, "--epochs", 3, "--limit-steps", EPOCH + 512)
        rest = self.train("rest", *options, "--epochs", 3, "--resume", first / f"checkpoints/step-{EPOCH + 512:08}")
        one, other = (checkpoint_tensors(folder / "checkpoints" / f"step-{3 * EPOCH:08}", group=None) for folder in (whole, rest))
        self.assertIn("optimizer/adaptive_batch/state", one)
        self.assertEqual([], [name for name in one if one[name].tobytes() != other[name].tobytes()])
        with h5py.File(whole / "results.h5") as file, h5py.File(rest / "results.h5") as parts:
            self.assertEqual(self.decisions(file)[1:], self.decisions(parts))

    def test_another_global_batch_begins_with_one_of_its_own(self):
        first = self.train("small", "--adaptive-batch", "--epochs", 1)
        with h5py.File(first / "results.h5") as file:
            self.assertEqual(self.decisions(file)[0][1], 2)
        larger = [word if word != 8 else 32 for word in RECIPE]
        run(BINARY, 2, *larger, "--adaptive-batch", "--epochs", 2, "--name", "large", "--resume", first / f"checkpoints/step-{EPOCH:08}",
            "--optimizer-state", "keep", cwd=self.folder, limit_s=100)
        with h5py.File(self.folder / "runs/large/results.h5") as file:
            rows = file["ranks/00000/steps"][:]
        self.assertEqual(set(np.diff(rows["step"], prepend=EPOCH // 4)), {1})
        np.testing.assert_allclose(rows["learning_rate"], 0.01)
        # One copy shows no noise, and goes on without.
        run(BINARY, 1, *RECIPE, "--epochs", 2, "--limit-steps", EPOCH + 4, "--name", "alone", "--resume", first / f"checkpoints/step-{EPOCH:08}",
            "--optimizer-state", "keep", cwd=self.folder, limit_s=100)

    def test_where_the_noise_is_not_known_it_is_refused(self):
        for ranks, words, options in [(1, ["one copy shows no noise", "start two ranks"], []),
                                      (2, ["--strategy ddp cannot", "number of ranks"], ["--reproducible"]),
                                      (2, ["--strategy ddp cannot", "whole gradient"], ["--mesh", "pipe=2"]),
                                      (2, ["--strategy local_sgd cannot"], ["--strategy", "local_sgd"])]:
            with self.subTest(options=options):
                refused(BINARY, ranks, 2, ["--adaptive-batch", *words], *RECIPE, "--adaptive-batch", *options, "--name", "refused", cwd=self.folder)
        refused(BINARY, 2, 2, ["--balance data", "--adaptive-batch"], *RECIPE, "--adaptive-batch", "--balance", "data", "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
