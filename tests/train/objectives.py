"""What a run is trained for: --loss, --class-weights, R2 of a regression, --augment. Each on one rank and on two,
with equal micro-batches: the numbers must agree to 1e-9 in fp64."""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, run

BINARY = sys.argv.pop()
COMMON = ["--precision", "fp64", "--threads", 1, "--micro-batches", 2, "--quiet"]


class ObjectivesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        cls.stage("numbers", "--format", "synthetic", "--task", "regression", "--samples", 2000)
        cls.write_rare_classes()
        cls.write_series()
        cls.stage("series", "--from", "series.h5", "--inputs", "/x", "--targets", "/y")
        cls.stage("rare", "--from", "rare.h5", "--inputs", "/x", "--targets", "/y")

    @classmethod
    def stage(cls, *options):
        run(BINARY, 1, "stage", *options, cwd=cls.folder)

    @classmethod
    def write_rare_classes(cls):
        """900 points of class 0 around 0, 100 of class 1 around 0.7: a plain loss prefers class 0."""
        rng = np.random.default_rng(3)
        y = (np.arange(1000) % 10 == 0).astype(np.int64)
        x = (rng.normal(size=(1000, 4)) + 0.7 * y[:, None]).astype(np.float32)
        with h5py.File(cls.folder / "rare.h5", "w") as file:
            file["x"], file["y"] = x, y

    @classmethod
    def write_series(cls):
        """1000 series of 6 moments and 3 numbers; the target depends on when something happened."""
        rng = np.random.default_rng(4)
        x = rng.normal(size=(1000, 6, 3)).astype(np.float32)
        y = (x[:, 1, 0] - 2 * x[:, 4, 2] + 5).astype(np.float32)
        with h5py.File(cls.folder / "series.h5", "w") as file:
            file["x"], file["y"] = x, y

    def train(self, ranks, name, *options):
        run(BINARY, ranks, "--name", f"{name}-{ranks}", *COMMON, *options, cwd=self.folder)
        with h5py.File(self.folder / "runs" / f"{name}-{ranks}" / "results.h5") as results:
            return results["epochs"][:], results["epochs"].attrs["units"][:]

    def train_on_one_and_two(self, name, *options):
        one, units = self.train(1, name, *options)
        two, _ = self.train(2, name, *options)
        for column in one.dtype.names:
            if "_time_s" in column or column.endswith("per_s"):
                continue
            np.testing.assert_allclose(two[column], one[column], rtol=1e-9, err_msg=f"{name} {column}")
        return one, dict(zip(one.dtype.names, units))

    def refuse(self, words, *options):
        done = run(BINARY, 2, *options, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        sentences = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
        self.assertEqual(len(sentences), 1, done.stderr)
        for word in words:
            self.assertIn(word, sentences[0])

    def test_a_regression_has_no_accuracy_but_r2(self):
        for loss in ("mse", "mae"):
            epochs, units = self.train_on_one_and_two(f"r2-{loss}", "--dataset", "numbers", "--loss", loss, "--epochs", 6)
            self.assertTrue(np.all(np.isnan(epochs["validation_accuracy"])))
            self.assertEqual(epochs.dtype.names[-1], "validation_r2")
            self.assertEqual(units["validation_r2"], b"1" if isinstance(units["validation_r2"], bytes) else "1")
            self.assertGreater(epochs["validation_r2"][-1], 0.9)
            self.assertGreater(epochs["validation_r2"][-1], epochs["validation_r2"][0])
        epochs, _ = self.train_on_one_and_two("series", "--dataset", "series", "--epochs", 14)
        self.assertGreater(epochs["validation_r2"][-1], 0.8)
        # With mse the two columns are of one quantity: R2 = 1 - loss / variance of the validation targets.
        with h5py.File(self.folder / "data/staged/numbers/validation-00000-of-00001.h5") as shard:
            variance = np.var(shard["targets"][:].astype(np.float64))
        epochs, _ = self.train(1, "r2-again", "--dataset", "numbers", "--epochs", 1)
        np.testing.assert_allclose(epochs["validation_r2"], 1 - epochs["validation_loss"] / variance, rtol=1e-6)

    def test_balanced_weights_find_the_rare_class(self):
        plain, _ = self.train_on_one_and_two("plain", "--dataset", "rare", "--epochs", 4)
        balanced, _ = self.train_on_one_and_two("balanced", "--dataset", "rare", "--epochs", 4,
                                                "--class-weights", "balanced")
        self.assertTrue(np.all((balanced["train_accuracy"] >= 0) & (balanced["train_accuracy"] <= 1)))
        # Always saying class 0 is right in 90 % of the samples; who weighs both classes alike gives that up.
        self.assertGreaterEqual(plain["train_accuracy"][-1], 0.9)
        self.assertLess(balanced["train_accuracy"][-1], 0.9)
        with h5py.File(self.folder / "runs/balanced-2/results.h5") as results:
            rows = [rank["epochs"]["samples"] for rank in results["ranks"].values()]
            self.assertEqual(list(sum(rows)), [800] * 4)  # samples are counted, not weights

    def test_augmented_images_are_the_same_on_any_number_of_ranks(self):
        options = ["--model", "cnn", "--limit-steps", 12, "--epochs", 1]
        on, _ = self.train_on_one_and_two("on", *options)  # cnn's recipe augments
        off, _ = self.train_on_one_and_two("off", *options, "--augment", "off")
        self.assertNotEqual(on["train_loss"][0], off["train_loss"][0])

    def test_what_makes_no_sense_is_refused(self):
        self.refuse(["--loss cross_entropy", "use mse or mae"], "--dataset", "numbers", "--loss", "cross_entropy")
        self.refuse(["--loss mse", "use cross_entropy"], "--loss", "mse")
        self.refuse(["--loss", "cross_entropy, mse, mae"], "--loss", "hinge")
        self.refuse(["--class-weights", "none, balanced"], "--class-weights", "fair")
        self.refuse(["--class-weights balanced", "no classes"], "--dataset", "numbers", "--class-weights", "balanced")
        self.refuse(["--augment", "use on or off"], "--augment", "maybe")
        with h5py.File(self.folder / "stamps.h5", "w") as file:
            file["x"], file["y"] = np.zeros((40, 3, 8, 8), np.uint8), np.arange(40) % 2
        self.stage("stamps", "--from", "stamps.h5", "--inputs", "/x", "--targets", "/y")
        self.refuse(["--model cnn", "at least 16 x 16", "[3, 8, 8]"], "--model", "cnn", "--dataset", "stamps")
        self.refuse(["--augment on", "no images"], "--dataset", "numbers", "--augment", "on")


if __name__ == "__main__":
    unittest.main()
