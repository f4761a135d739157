"""What a run is trained for: --loss, --class-weights, --label-smoothing, --freeze, R2 of a regression, --augment. Each on one rank and on two,
with equal micro-batches: the numbers must agree to 1e-9 in fp64."""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import drawn
from dtrain_run import checkpoint_tensors, run
from small_data import stage_small

BINARY = sys.argv.pop()
COMMON = ["--precision", "fp64", "--threads", 1, "--micro-batches", 2, "--quiet"]


class ObjectivesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        cls.images = stage_small(BINARY, cls.folder, ["cnn"])["cnn"]
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

    def test_a_regression_has_no_accuracy_but_r2_and_errors(self):
        for loss in ("mse", "mae"):
            epochs, units = self.train_on_one_and_two(f"r2-{loss}", "--dataset", "numbers", "--loss", loss, "--epochs", 6)
            self.assertTrue(np.all(np.isnan(epochs["validation_accuracy"])))
            self.assertEqual(epochs.dtype.names[-3:], ("validation_r2", "validation_rmse", "validation_mae"))
            text = [unit.decode() if isinstance(unit, bytes) else unit for unit in list(units.values())[-3:]]
            self.assertEqual(text, ["1", "target", "target"])
            errors = epochs["validation_rmse"] ** 2 if loss == "mse" else epochs["validation_mae"]
            np.testing.assert_allclose(errors, epochs["validation_loss"], rtol=1e-5)
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
        options = ["--model", "cnn", *self.images, "--limit-steps", 12, "--epochs", 2]
        on, _ = self.train_on_one_and_two("on", *options)  # cnn's recipe augments
        off, _ = self.train_on_one_and_two("off", *options, "--augment", "off")
        both, _ = self.train(1, "both", *options, "--augment", "crop+flip", "--augment-padding", 4)
        self.assertEqual(on["train_loss"][0], both["train_loss"][0])
        losses = {on["train_loss"][0], off["train_loss"][0]}
        for name, words in ("flip", ["flip"]), ("crop", ["crop"]), ("far", ["crop+flip", "--augment-padding", 6]):
            losses.add(self.train(1, name, *options, "--augment", *words)[0]["train_loss"][0])
        self.assertEqual(len(losses), 5, losses)

    def weights(self, name, step):
        return checkpoint_tensors(self.folder / "runs" / name / "checkpoints" / f"step-{step:08}")

    def test_frozen_parameters_stay_as_they_are_on_every_mesh(self):
        sgd = ["--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.1, "--schedule", "constant", "--limit-steps", 4,
               "--micro-batches", 4]
        small = [word for size in ("layers=1", "heads=2", "width=16") for word in ("--model-option", size)]
        cases = {"mlp": (["--model", "mlp", "--freeze", "^input_fc|hidden_fc.bias"], ["input_fc.weight", "input_fc.bias", "hidden_fc.bias"],
                         [(2, "data=2"), (2, "pipe=2"), (2, "tensor=2")]),
                 "gpt": (["--model", "gpt", *small, "--warmup-steps", 0, "--global-batch", 16, "--freeze", "wte|ln_1"],
                         ["transformer.wte.weight", "transformer.h.0.ln_1.weight"],
                         [(2, "pipe=2"), (2, "tensor=2")])}
        for model, (options, frozen, meshes) in cases.items():
            one, _ = self.train(1, f"frozen-{model}", *options, *sgd)
            after = self.weights(f"frozen-{model}-1", 4)
            self.train(1, f"start-{model}", *options, *sgd, "--learning-rate", 1e-300)
            start = self.weights(f"start-{model}-1", 4)
            changed = {name for name in after if not np.array_equal(after[name], start[name])}
            self.assertFalse(changed & set(frozen), model)
            self.assertTrue(changed)
            for ranks, mesh in meshes:
                name = f"frozen-{model}-{mesh.replace(',', '-')}"
                split, _ = self.train(ranks, name, *options, *sgd, "--mesh", mesh)
                np.testing.assert_allclose(split["train_loss"], one["train_loss"], rtol=1e-9, err_msg=name)
                for tensor, value in self.weights(f"{name}-{ranks}", 4).items():
                    np.testing.assert_allclose(value, after[tensor], rtol=1e-7, atol=1e-12, err_msg=f"{name} {tensor}")
        # A whole stage may be frozen, and a run goes on with what it froze.
        options = [*cases["mlp"][0], *sgd, "--freeze", "input_fc|hidden_fc"]
        one, _ = self.train(1, "stage", *options)
        split, _ = self.train(2, "stage-pipe", *options, "--mesh", "pipe=2", "--reproducible")
        np.testing.assert_allclose(split["train_loss"], one["train_loss"], rtol=1e-9)
        self.train(1, "stage-saved", *options, "--checkpoint-every", "2steps")
        self.train(2, "stage-again", *options, "--resume", "runs/stage-saved-1/checkpoints/step-00000002")
        for tensor, value in self.weights("stage-again-2", 4).items():
            np.testing.assert_allclose(value, self.weights("stage-1", 4)[tensor], rtol=1e-7, atol=1e-12, err_msg=tensor)

    def test_smoothed_labels_train_otherwise_and_are_measured_alike(self):
        options = ["--model", "mlp", "--limit-steps", 4, "--epochs", 1]
        plain, _ = self.train(1, "sharp", *options)
        smooth, _ = self.train_on_one_and_two("smooth", *options, "--label-smoothing", 0.2)
        self.assertNotEqual(plain["train_loss"][0], smooth["train_loss"][0])
        done = run(BINARY, 1, "evaluate", "runs/smooth-1/checkpoints/step-00000004", "--split", "validation", cwd=self.folder)
        self.assertIn(f"loss {smooth['validation_loss'][0]:.4f}", done.stdout)

    def test_evaluation_does_not_depend_on_how_many_samples_it_takes(self):
        options = ["--model", "cnn", *self.images, "--limit-steps", 4, "--epochs", 1]
        whole, _ = self.train(1, "whole", *options)
        for ranks, batch in (1, 7), (2, 33):
            parts, _ = self.train(ranks, f"parts-{batch}", *options, "--eval-batch", batch)
            for column in "validation_loss", "validation_accuracy":
                np.testing.assert_allclose(parts[column], whole[column], rtol=1e-9)
        self.train(1, "small-pieces", "--reproducible", "--micro-batches", 8, "--global-batch", 16, "--limit-steps", 2)
        done = run(BINARY, 1, "evaluate", "runs/small-pieces-1/checkpoints/best", "--split", "validation", cwd=self.folder)
        self.assertIn("loss", done.stdout)
        self.refuse(["--eval-batch 100000", "use fewer"], *options, "--eval-batch", 100000, "--memory-limit", "64MiB")

    def test_what_makes_no_sense_is_refused(self):
        self.refuse(["--loss cross_entropy", "use mse or mae"], "--dataset", "numbers", "--loss", "cross_entropy")
        self.refuse(["--loss mse", "use cross_entropy"], "--loss", "mse")
        self.refuse(["--loss", "cross_entropy, mse, mae"], "--loss", "hinge")
        self.refuse(["--class-weights", "none, balanced"], "--class-weights", "fair")
        self.refuse(["--class-weights balanced", "no classes"], "--dataset", "numbers", "--class-weights", "balanced")
        self.refuse(["--augment-padding", "use 31 or fewer"], "--model", "cnn", "--augment-padding", 32)
        self.refuse(["--label-smoothing", "no classes"], "--dataset", "numbers", "--label-smoothing", 0.1)
        self.refuse(["--freeze ^fc9", "matches no parameter of the model cnn", "conv1.weight"], "--model", "cnn", "--freeze", "^fc9")
        self.refuse(["--freeze .", "leaves nothing to train"], "--freeze", ".")
        self.refuse(["--freeze (", "not a regular expression"], "--freeze", "(")
        with h5py.File(self.folder / "stamps.h5", "w") as file:
            file["x"], file["y"] = np.zeros((40, 3, 8, 8), np.uint8), np.arange(40) % 2
        self.stage("stamps", "--from", "stamps.h5", "--inputs", "/x", "--targets", "/y")
        self.refuse(["--model cnn", "at least 16 x 16", "[3, 8, 8]"], "--model", "cnn", "--dataset", "stamps")
        self.refuse(["--augment on", "no images"], "--dataset", "numbers", "--augment", "on")


if __name__ == "__main__":
    drawn.main()
