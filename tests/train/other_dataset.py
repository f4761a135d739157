"""A checkpoint knows what its inputs were made with and which samples its run used: evaluated on a dataset that was staged
otherwise it gets the inputs that it was trained on, or refuses; resumed on other samples it refuses."""

import json
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import refused, run, without_facts

BINARY = sys.argv.pop()
TRAIN = ["--epochs", 4, "--global-batch", 32, "--threads", 1, "--quiet", "--checkpoint-every", "2steps"]


class OtherDatasetTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.staged = self.folder / "data" / "staged"

    def stage(self, name, *options):
        run(BINARY, 1, "stage", name, *options, cwd=self.folder)
        return json.loads((self.staged / name / "dataset.json").read_text())

    def stage_arrays(self, name, inputs, targets, *options):
        with h5py.File(self.folder / f"{name}.h5", "w") as file:
            file["x"], file["y"] = inputs, targets
        return self.stage(name, "--from", f"{name}.h5", "--inputs", "/x", "--targets", "/y", *options)

    def stage_table(self, name, rows, *options, columns=("size", "kind", "age")):
        """A target of three inputs, of which the last has gaps."""
        rng = np.random.default_rng(5)
        lines = [",".join([*columns, "target"])]
        for row in range(500)[rows]:
            size, age = rng.normal(100 + row / 10, 5), rng.normal(40 - row / 20, 2)
            kind = "red" if row % 3 else "blue"
            lines.append(f"{size:.5f},{kind},{'' if row % 4 == 0 else f'{age:.5f}'},{size / 50 + row % 3:.5f}")
        (self.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        return self.stage(name, "--from", f"{name}.csv", "--task", "regression", *options)

    def train(self, name, dataset, *options, steps=4):
        run(BINARY, 1, "--name", name, "--dataset", dataset, "--limit-steps", steps, *TRAIN, *options, cwd=self.folder)
        return f"runs/{name}/checkpoints/best"

    def loss(self, checkpoint, dataset):
        said = run(BINARY, 1, "evaluate", checkpoint, "--dataset", dataset, cwd=self.folder).stdout
        return float(re.search(r"loss ([-+.0-9a-z]+)", said).group(1)), said

    def rewrite(self, name, new_name, change):
        """A copy of a dataset, its description and its inputs changed."""
        shutil.copytree(self.staged / name, self.staged / new_name)
        facts = json.loads((self.staged / new_name / "dataset.json").read_text())
        for shard in (self.staged / new_name).glob("*.h5"):
            with h5py.File(shard, "r+") as file:
                file["inputs"][...] = change(file["inputs"][:], facts)
        (self.staged / new_name / "dataset.json").write_text(json.dumps(facts))

    def test_tables_get_the_means_and_gaps_of_training(self):
        trained = self.stage_table("first", slice(None), "--standardize")
        self.stage_table("second", slice(200, None), "--standardize")
        self.stage_table("raw", slice(200, None), "--standardize", "off")
        best = self.train("table", "first", "--model", "mlp")

        def as_in_training(inputs, facts):
            values = inputs.astype(np.float64)
            gaps = values[:, -1] > 0.5
            for i, column in enumerate(trained["columns"][:-1]):
                if column["name"] == "age":
                    values[gaps, i] = column["filled_with"]
                values[:, i] = (values[:, i] - column["shift"]) / column["scale"]
            facts["columns"] = trained["columns"]
            return values
        self.assertTrue(trained["columns"][-1]["marks_gaps"])
        self.rewrite("raw", "by-hand", as_in_training)
        expected, said = self.loss(best, "by-hand")
        self.assertNotIn("not with", said)
        for name in ("second", "raw"):
            found, said = self.loss(best, name)
            self.assertAlmostEqual(found, expected, delta=2e-4 * max(1, expected), msg=name)
            self.assertIn(f"not with {name}'s own", said)

    def test_other_columns_are_refused(self):
        self.stage_table("first", slice(None), "--standardize")
        self.stage_table("renamed", slice(None), "--standardize", columns=("weight", "kind", "age"))
        best = self.train("table", "first", "--model", "mlp")
        refused(BINARY, 2, 4, [best, "other columns", "was size and is weight", "--dataset"], "evaluate", best, "--dataset",
                "renamed", cwd=self.folder)
        self.stage_arrays("arrays", np.zeros((50, 4), np.float32), np.zeros(50, np.float32))
        refused(BINARY, 1, 4, [best, "other columns", "4 inputs against 0"], "evaluate", best, "--dataset", "arrays",
                cwd=self.folder)

    def test_images_are_standardised_as_in_training(self):
        rng = np.random.default_rng(6)
        pixels, labels = rng.integers(0, 120, (400, 3, 16, 16)).astype(np.uint8), rng.integers(0, 4, 400)
        trained = self.stage_arrays("dark", pixels, labels)
        self.stage_arrays("bright", pixels + 100, labels)
        self.stage_arrays("floats", ((pixels + 100) / 255).astype(np.float32), labels)

        def as_in_training(inputs, facts):
            facts["mean"], facts["std"] = trained["mean"], trained["std"]
            return inputs
        self.rewrite("bright", "by-hand", as_in_training)
        best = self.train("dark", "dark", "--model", "cnn")
        expected, _ = self.loss(best, "by-hand")
        for name in ("bright", "floats"):
            self.assertAlmostEqual(self.loss(best, name)[0], expected, delta=2e-4)

    def test_a_run_is_not_resumed_on_other_samples(self):
        rng = np.random.default_rng(7)
        inputs, labels = rng.normal(size=(600, 8)).astype(np.float32), rng.integers(0, 3, 600)
        first = self.stage_arrays("set", inputs, labels)
        self.train("run", "set", "--model", "mlp", steps=2)
        (self.folder / "runs/run/state").write_text("preempted\n")
        resume = ["--name", "run", "--dataset", "set", "--limit-steps", 4, *TRAIN, "--model", "mlp"]
        newest = self.folder / "runs/run/checkpoints/step-00000002"
        manifest = json.loads((newest / "manifest.json").read_text())
        self.assertEqual(manifest["dataset_samples"], {split: facts["samples"] for split, facts in first["splits"].items()})

        self.stage_arrays("set", inputs[:, ::-1], labels, "--overwrite")
        refused(BINARY, 2, 3, ["the dataset set", "other samples", "--name", "--init-from"], *resume, cwd=self.folder)
        self.stage_arrays("set", inputs[:300], labels[:300], "--overwrite")
        refused(BINARY, 1, 3, ["the dataset set", "30 samples in split validation", "60"], *resume, cwd=self.folder)
        # Staged again as it was, it is the same dataset.
        self.assertEqual(self.stage_arrays("set", inputs, labels, "--overwrite"), first)
        run(BINARY, 1, *resume, cwd=self.folder)

    def test_other_classes_are_refused(self):
        for name, word in (("first", "red"), ("again", "red"), ("renamed", "green")):
            lines = ["size,age,colour"] + [f"{n % 17},{n % 5},{[word, 'yellow', 'zinc'][n % 3]}" for n in range(300)]
            (self.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
            self.stage(name, "--from", f"{name}.csv")
        best = self.train("table", "first", "--model", "mlp")
        self.loss(best, "again")
        refused(BINARY, 2, 4, [best, "other classes", "renamed", "class 0 was red and is green", "--dataset"], "evaluate", best,
                "--dataset", "renamed", cwd=self.folder)
        old = without_facts(self.folder, best, "before", "dataset_classes")
        self.loss(old, "renamed")

    def test_a_checkpoint_without_a_hash_is_not_resumed_where_its_position_is_not(self):
        rng = np.random.default_rng(9)
        inputs, labels = rng.normal(size=(700, 8)).astype(np.float32), rng.integers(0, 3, 700)
        self.stage_arrays("set", inputs[:600], labels[:600])
        self.train("run", "set", "--model", "mlp", steps=18)  # of 15 an epoch
        old = without_facts(self.folder, "runs/run/checkpoints/step-00000018", "before", "dataset_samples", "dataset_sha256")
        resume = ["--dataset", "set", "--limit-steps", 20, *TRAIN, "--model", "mlp", "--resume", old]
        for kept in (300, 700):
            self.stage_arrays("set", inputs[:kept], labels[:kept], "--overwrite")
            refused(BINARY, 1, 3, ["the dataset set", "other samples", "18 steps do not come to sample 96 of epoch 2", "--init-from"],
                    "--name", f"on-{kept}", *resume, cwd=self.folder)
        self.stage_arrays("set", inputs[:600], labels[:600], "--overwrite")
        run(BINARY, 1, "--name", "on", *resume, cwd=self.folder)

    def test_checkpoints_from_before_they_knew_still_load(self):
        rng = np.random.default_rng(8)
        for name in ("one", "two"):
            self.stage_arrays(name, rng.normal(size=(300, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, 300))
        best = self.train("old", "one", "--model", "mlp")
        old = without_facts(self.folder, best, "before", "transformations", "dataset_samples", "dataset_sha256")
        self.loss(old, "two")
        self.train("on", "one", "--resume", old, "--model", "mlp", steps=6)
        manifest = json.loads((self.folder / "runs/on/checkpoints/step-00000006/manifest.json").read_text())
        self.assertNotIn("transformations", manifest)  # floats of images are still taken as they are stored


if __name__ == "__main__":
    unittest.main()
