"""Files that an older dtrain wrote are read, and those of a version that this dtrain does not know are refused with both
numbers. `kept/` holds a dataset and a checkpoint of version 1 as dtrain 0.1.0 of 2026-11-24 wrote them: mlp with --model-option
hidden=4, trained on 64 rows. perf/results/curves holds results of version 1 from 2026-11-21. None of these is ever written anew."""
import hashlib
import json
import pathlib
import shutil
import unittest

import h5py

from program import ProgramTest

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "perf/results/curves/mnist-1-ranks.h5"


class FormatsTest(ProgramTest):
    def old_run(self):
        run = self.folder / "runs/old"
        run.mkdir(parents=True)
        shutil.copy(RESULTS, run / "results.h5")
        (run / "state").write_text("completed\n")
        return run

    def kept(self):
        for part in "dataset", "checkpoint":
            shutil.copytree(HERE / "kept" / part, self.folder / part)
        return self.folder / "checkpoint", self.folder / "dataset"

    def evaluate(self, checkpoint, dataset):
        return ["evaluate", checkpoint, "--dataset", dataset, "--device", "cpu", "--threads", "1"]

    def test_results_of_the_first_version_are_reported(self):
        run = self.old_run()
        with h5py.File(RESULTS) as file:
            last, test = file["epochs"][-1], file["test"][-1]
            self.assertNotIn("validations", file)  # a table that came later, with /test_confusion and others
        said = self.succeed("report", run)
        self.assertIn(f"{last['train_loss']:.4g}", said)
        self.assertIn(f"{last['validation_accuracy']:.4f}", said)
        self.assertIn(f"loss {test['loss']:.4g}", said)
        self.assertEqual(len(self.succeed("report", run, "--csv").splitlines()), 11)  # a heading and ten epochs
        self.succeed("report", run, run, "--compare")

    def test_results_of_a_later_version_are_refused(self):
        run = self.old_run()
        with h5py.File(run / "results.h5", "r+") as file:
            file.attrs["version"] = 2
        self.refuse(3, ["version 2", "reads version 1", "with the dtrain that wrote it"], "report", run)

    def test_a_dataset_and_a_checkpoint_of_the_first_version_are_used(self):
        checkpoint, dataset = self.kept()
        said = self.succeed(*self.evaluate(checkpoint, dataset))
        self.assertIn("test of plants: loss 0.2339, accuracy 0.8750, 8 samples", said)  # as it was said at the time
        self.write("new.csv", "width,soil,height\n1.0,clay,3.0\n1.0,sand,5.0\n")
        self.succeed("predict", checkpoint, "--from", "new.csv", "--output", "said.csv", "--dataset", dataset)
        self.assertEqual([line.split(",")[1] for line in (self.folder / "said.csv").read_text().splitlines()[1:]], ["fern", "moss"])

    def test_a_checkpoint_of_a_later_version_is_refused(self):
        checkpoint, dataset = self.kept()
        manifest = checkpoint / "manifest.json"
        text = manifest.read_text()
        self.assertIn('"version": 1,', text)
        manifest.write_text(text.replace('"version": 1,', '"version": 2,', 1))
        digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
        (checkpoint / "manifest.sha256").write_text(f"{digest}  manifest.json\n")
        self.refuse(4, ["version 2", "reads 1", "use the dtrain that wrote it"], *self.evaluate(checkpoint, dataset))

    def test_a_checkpoint_that_is_not_there_is_refused(self):
        self.refuse(4, ["runs/first/checkpoints/best", "there is no such checkpoint"], "evaluate", "runs/first/checkpoints/best")

    def test_a_dataset_of_a_later_version_is_refused(self):
        checkpoint, dataset = self.kept()
        path = dataset / "dataset.json"
        text = json.loads(path.read_text())
        path.write_text(json.dumps(text | {"version": 2}))
        self.refuse(3, ["dataset.json", "version 2", "reads 1"], *self.evaluate(checkpoint, dataset))

    def test_a_shard_of_a_later_version_is_refused(self):
        checkpoint, dataset = self.kept()
        shard = dataset / "test-00000-of-00001.h5"
        with h5py.File(shard, "r+") as file:
            file.attrs["version"] = 2
        facts = json.loads((dataset / "dataset.json").read_text())
        facts["splits"]["test"]["shards"][0]["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
        (dataset / "dataset.json").write_text(json.dumps(facts))
        self.refuse(3, [shard.name, "version 2", "reads 1"], *self.evaluate(checkpoint, dataset))


if __name__ == "__main__":
    unittest.main()
