"""A step is the same however its samples are stored and however it is cut into micro-batches on one rank."""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import run

BINARY = sys.argv.pop()


class StoredTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    @classmethod
    def stage(cls, name, inputs, targets):
        with h5py.File(cls.folder / f"{name}.h5", "w") as file:
            file["x"], file["y"] = inputs, targets
        run(BINARY, 1, "stage", name, "--from", f"{name}.h5", "--inputs", "/x", "--targets", "/y", cwd=cls.folder)

    def first_steps(self, name, *options):
        """Loss and gradient norm of each of two steps."""
        run(BINARY, 1, "--name", name, "--limit-steps", 2, "--optimizer", "sgd", "--checkpoint-every", "end", "--quiet",
            *options, cwd=self.folder)
        with h5py.File(self.folder / "runs" / name / "results.h5") as results:
            steps = results["ranks/00000/steps"][:]
        self.assertEqual(len(steps), 2)
        return np.array([steps["loss"], steps["gradient_norm"]])

    def expect_the_same_in_pieces(self, name, pieces, *options):
        whole = self.first_steps(f"{name}-1", "--micro-batches", 1, *options)
        for count in pieces:
            np.testing.assert_allclose(self.first_steps(f"{name}-{count}", "--micro-batches", count, *options), whole,
                                       rtol=1e-5, err_msg=f"{count} micro-batches")

    def test_floats_of_one_micro_batch_outlive_the_next(self):
        rng = np.random.default_rng(1)
        self.stage("floats", rng.normal(size=(4096, 200)).astype(np.float32), rng.integers(0, 5, 4096))
        # So few rows beside the weight's that its gradient is made once per step. 65: the second piece is the larger one.
        for batch, threads in ((64, 2), (65, 2)):
            self.expect_the_same_in_pieces(f"floats-{batch}", (2, 4), "--model", "mlp", "--dataset", "floats", "--threads",
                                           threads, "--global-batch", batch)

    def test_floats_of_images_are_standardised_as_bytes_are(self):
        rng = np.random.default_rng(2)
        pixels = rng.integers(0, 200, (600, 3, 16, 16)).astype(np.uint8)
        labels = rng.integers(0, 4, 600)
        self.stage("bytes", pixels, labels)
        self.stage("fractions", (pixels / 255).astype(np.float32), labels)
        self.stage("shifted", (pixels / 255 * 50 + 1000).astype(np.float32), labels)
        for augment in ("off", "on"):
            options = ["--model", "cnn", "--threads", 1, "--global-batch", 50, "--augment", augment]
            of_bytes = self.first_steps(f"bytes-{augment}", "--dataset", "bytes", *options)
            of_floats = self.first_steps(f"fractions-{augment}", "--dataset", "fractions", *options)
            np.testing.assert_allclose(of_floats, of_bytes, rtol=1e-4)
        whole = self.first_steps("bytes-whole", "--dataset", "bytes", *options[:-1], "off", "--precision", "fp64")
        moved = self.first_steps("shifted", "--dataset", "shifted", *options[:-1], "off", "--precision", "fp64")
        np.testing.assert_allclose(moved, whole, rtol=1e-3)

    def test_booleans_are_0_and_1(self):
        rng = np.random.default_rng(3)
        marks = rng.integers(0, 2, (400, 20)).astype(np.uint8)
        self.stage("numbers", marks, marks[:, 0])
        self.stage("booleans", marks.astype(bool), marks[:, 0].astype(bool))
        options = ["--model", "mlp", "--threads", 1, "--global-batch", 50]
        np.testing.assert_array_equal(*(self.first_steps(name, "--dataset", name, *options) for name in ("numbers", "booleans")))

    def test_micro_batches_either_side_of_a_kernels_limit(self):
        self.expect_the_same_in_pieces("limit", (2,), "--model", "mlp", "--threads", 1, "--global-batch", 167)


if __name__ == "__main__":
    unittest.main()
