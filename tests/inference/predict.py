"""`dtrain predict` on new rows, images and lines agrees with PyTorch: the exported weights in plain modules, on inputs made from
the originals by the rules in dataset.json. What the training did not have is refused in one sentence."""

import csv
import json
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch

import drawn
from dtrain_run import refused, run, without_facts
from table_dates import part_of_date

BINARY = sys.argv.pop()
TOLERANCE = 1e-5  # far above the rounding of float32 in networks as small as these
TRAIN = ["--global-batch", 32, "--threads", 1, "--quiet"]
NUMBERS, LABELS = ("size", "age"), {"kind": ("red", "blue"), "place": ("north", "south", "west")}


def table_row(rng):
    """A patient of the invented table: its cells by column, some empty."""
    row = {"size": f"{rng.gauss(170, 12):.3f}", "age": f"{rng.gauss(50, 9):.3f}" if rng.random() > 0.2 else "",
           "kind": rng.choice(LABELS["kind"]), "place": rng.choice(LABELS["place"]) if rng.random() > 0.1 else "NA"}
    return row


def verdict(row):
    tall = float(row["size"]) > 170
    return "ill, badly" if tall and row["kind"] == "red" else "ill" if row["place"] == "west" else "well"


def inputs_of(rows, columns):
    """[n, inputs] as dataset.json describes them."""
    values = np.empty((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for k, column in enumerate(columns):
            cell = row[column["name"]]
            gap = cell in ("", "NA")
            if column.get("marks_gaps"):
                values[i, k] = gap
                continue
            if gap:
                value = column["filled_with"]
            elif "part" in column:
                value = part_of_date(column["part"], cell)
            else:
                value = float(cell == column["label"]) if "label" in column else float(cell)
            values[i, k] = (value - column["shift"]) / column["scale"]
    return torch.from_numpy(values.astype(np.float32))


def torch_mlp(weights):
    """The mlp of two hidden layers, from exported weights under PyTorch's names."""
    network = torch.nn.Sequential()
    for name in ("input_fc", "hidden_fc", "output_fc"):
        rows, columns = weights[f"{name}.weight"].shape
        network.add_module(name, torch.nn.Linear(columns, rows))
        if name != "output_fc":
            network.add_module(name + "_relu", torch.nn.ReLU())
    network.load_state_dict(weights)
    return network


class PredictTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def write_rows(self, name, rows, columns):
        with open(self.folder / name, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([row[column] for column in columns] for row in rows)

    def stage(self, name, *options):
        run(BINARY, 1, "stage", name, *options, cwd=self.folder)
        return json.loads((self.folder / "data/staged" / name / "dataset.json").read_text())

    def train(self, name, *options):
        run(BINARY, 2, "--name", name, *options, *TRAIN, cwd=self.folder)
        best = f"runs/{name}/checkpoints/best"
        run(BINARY, 1, "export", best, f"{name}.h5", cwd=self.folder)
        with h5py.File(self.folder / f"{name}.h5") as file:
            return best, {key: torch.from_numpy(np.asarray(value)) for key, value in file["model"].items()}

    def predict(self, ranks, best, source, output, *options):
        return run(BINARY, ranks, "predict", best, "--from", source, "--output", output, *options, cwd=self.folder).stdout

    def said(self, name):
        with open(self.folder / name, newline="") as file:
            return list(csv.DictReader(file))

    def same_rows(self, one, other):
        """The same classes and probabilities, but for rounding."""
        for found, expected in zip(self.said(one), self.said(other), strict=True):
            self.assertEqual(found["class"], expected["class"])
            for name in found.keys() - {"class"}:
                self.assertAlmostEqual(float(found[name]), float(expected[name]), places=6, msg=name)

    def trained_table(self, *options):
        rng = random.Random(3)
        rows = [table_row(rng) for _ in range(400)]
        for row in rows:
            row["verdict"] = verdict(row)
        self.write_rows("old.csv", rows, ["size", "age", "kind", "place", "verdict"])
        facts = self.stage("table", "--from", "old.csv", *options)
        return facts, *self.train("table", "--dataset", "table", "--model", "mlp", "--model-option", "hidden=20,12", "--epochs", 3)

    def test_a_label_that_the_training_did_not_have_is_not_taken_for_the_other_one(self):
        rows = [{"size": n, "sex": ("female", "male")[n % 2], "verdict": "ab"[n % 3 == 0]} for n in range(60)]
        self.write_rows("old.csv", rows, ["size", "sex", "verdict"])
        self.stage("old", "--from", "old.csv")
        best, _ = self.train("sexes", "--dataset", "old", "--model", "mlp", "--model-option", "hidden=4", "--epochs", 1)
        self.write_rows("second.csv", [row | {"sex": row["sex"].replace("female", "diverse")} for row in rows], ["size", "sex", "verdict"])
        self.stage("second", "--from", "second.csv")
        refused(BINARY, 1, 4, ["sex=male instead of female", "sex=male instead of diverse"], "evaluate", best, "--dataset", "second", cwd=self.folder)

    def test_rows_of_a_table_in_any_order_of_columns(self):
        facts, best, weights = self.trained_table("--standardize")
        rng = random.Random(4)
        rows = [table_row(rng) for _ in range(101)]
        self.write_rows("new.csv", rows, ["place", "age", "size", "kind"])
        with torch.no_grad():
            expected = torch.softmax(torch_mlp(weights)(inputs_of(rows, facts["columns"])), 1).numpy()
        for ranks in (1, 3):
            self.predict(ranks, best, "new.csv", f"said-{ranks}.csv")
            said = self.said(f"said-{ranks}.csv")
            self.assertEqual([row["row"] for row in said], [str(i + 1) for i in range(101)])
            found = np.array([[float(row[f"p({name})"]) for name in facts["classes"]] for row in said])
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
            self.assertEqual([row["class"] for row in said], [facts["classes"][k] for k in found.argmax(1)])
            np.testing.assert_array_equal([float(row["probability"]) for row in said], found.max(1))
        self.predict(2, best, "new.csv", "said.h5")
        with h5py.File(self.folder / "said.h5") as file:
            np.testing.assert_allclose(file["probabilities"][:], expected, rtol=0, atol=TOLERANCE)
            np.testing.assert_array_equal(file["predicted"][:], file["outputs"][:].argmax(1))
            self.assertEqual([name.decode() for name in file["classes"][:]], facts["classes"])
            self.assertNotIn("targets", file)
        # One row, and a gap in a column that had none.
        rows[0]["size"] = ""
        self.write_rows("one.csv", rows[:1], ["size", "age", "kind", "place"])
        self.assertIn("no value in the column size", self.predict(3, best, "one.csv", "one.csv.csv"))
        with torch.no_grad():
            expected = torch.softmax(torch_mlp(weights)(inputs_of(rows[:1], facts["columns"])), 1).numpy()
        found = [[float(row[f"p({name})"]) for name in facts["classes"]] for row in self.said("one.csv.csv")]
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)

    def test_what_the_training_did_not_have_is_refused(self):
        _, best, _ = self.trained_table()
        rng = random.Random(5)
        rows = [{**table_row(rng), "place": "north", "extra": "1", "weight": "70"} for _ in range(5)]
        def refuse(code, words, columns=("size", "age", "kind", "place"), *options):
            self.write_rows("new.csv", rows, columns)
            refused(BINARY, 2, code, words, "predict", best, "--from", "new.csv", "--output", "out.csv", *options, cwd=self.folder)
            self.assertFalse((self.folder / "out.csv").exists())
        refuse(3, ["new.csv", "lacks the column age"], ("size", "kind", "place"))
        refuse(3, ["lacks the columns size, age", "has weight"], ("weight", "kind", "place"))
        refuse(3, ["has the columns extra, weight", "--ignore extra,weight"], ("size", "age", "kind", "place", "extra", "weight"))
        refuse(2, ["no such column", "--ignore colour"], ("size", "age", "kind", "place"), "--ignore", "colour")
        rows[2]["kind"] = "green"
        refuse(3, ["has green in line 4, column kind", "red"])
        rows[2].update(kind="red", place="east")
        refuse(3, ["has east in line 4, column place", "north, south, west"])
        rows[2].update(place="north", size="tall")
        refuse(3, ["has tall in line 4, column size", "numbers"])
        rows[2]["size"] = "1e300"  # a number, and infinite as an input
        refuse(3, ["has 1e300 in line 4, column size", "float32"])
        rows[2]["size"] = "1"
        rows.clear()
        refuse(3, ["new.csv", "no rows"])
        rows += [{**table_row(rng), "extra": "1"} for _ in range(5)]
        self.write_rows("new.csv", rows, ["extra", "size", "age", "kind", "place"])
        self.predict(1, best, "new.csv", "out.csv", "--ignore", "extra")
        # What staging was told to leave out, the checkpoint knows.
        rows = [{**table_row(rng), "extra": i % 7} for i in range(65)]
        for row in rows:
            row["verdict"] = verdict(row)
        self.write_rows("old.csv", rows, ["extra", "size", "age", "kind", "place", "verdict"])
        facts = self.stage("narrow", "--from", "old.csv", "--ignore", "extra")
        self.assertEqual(facts["ignored_columns"], ["extra"])
        narrow, _ = self.train("narrow", "--dataset", "narrow", "--model", "mlp", "--model-option", "hidden=20,12", "--epochs", 1)
        self.write_rows("new.csv", rows[:7], ["size", "extra", "age", "kind", "place"])
        self.assertIn("left out as in the training: extra", self.predict(2, narrow, "new.csv", "with.csv"))
        self.write_rows("new.csv", rows[:7], ["size", "age", "kind", "place"])
        self.assertNotIn("left out", self.predict(2, narrow, "new.csv", "without.csv"))
        self.same_rows("with.csv", "without.csv")
        # A run stands for its best checkpoint, and one without for its newest.
        self.predict(1, "runs/narrow", "new.csv", "run.csv")
        self.same_rows("run.csv", "without.csv")
        (self.folder / "runs/narrow/checkpoints/best").unlink()
        for command in (["evaluate", "runs/narrow"], ["export", "runs/narrow", "narrow.safetensors"]):
            run(BINARY, 1, *command, cwd=self.folder)
        np.save(self.folder / "rows.npy", np.zeros((3, 8), np.float32))
        what = ["predict", best, "--output", "out.h5", "--from"]
        refused(BINARY, 1, 3, ["is an array", "column"], *what, "rows.npy", cwd=self.folder)
        refused(BINARY, 1, 3, ["no such file"], *what, "gone.csv", cwd=self.folder)
        refused(BINARY, 1, 2, ["--output out.txt", ".csv"], "predict", best, "--from", "new.csv", "--output", "out.txt", cwd=self.folder)
        for left_out in (["transformations"], ["dataset_task", "dataset_shape"]):
            old = without_facts(self.folder, best, "before-" + left_out[0], *left_out)
            refused(BINARY, 2, 4, ["before checkpoints kept", "dtrain evaluate"], "predict", old, "--from", "new.csv", "--output",
                    "out.csv", cwd=self.folder)

    def test_a_regression_says_values_of_the_target(self):
        rng = random.Random(6)
        rows = [table_row(rng) for _ in range(300)]
        for row in rows:
            row["cost"] = f"{1000 + 5 * float(row['size']) + rng.random():.4f}"
        self.write_rows("old.csv", rows, ["size", "cost", "age", "kind", "place"])
        facts = self.stage("costs", "--from", "old.csv", "--target", "cost", "--standardize")
        best, weights = self.train("costs", "--dataset", "costs", "--model", "mlp", "--model-option", "hidden=20,12", "--epochs", 30)
        self.write_rows("new.csv", rows[:40], ["kind", "place", "size", "age"])
        self.predict(2, best, "new.csv", "said.csv")
        scale, shift = facts["target_scales"][0]["scale"], facts["target_scales"][0]["shift"]
        with torch.no_grad():
            expected = torch_mlp(weights)(inputs_of(rows[:40], facts["columns"])).numpy().ravel() * scale + shift
        found = np.array([float(row["prediction"]) for row in self.said("said.csv")])
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE)  # of about 1850
        # 5 for each of 12 cm of deviation: without a scale 30 epochs do not even reach the mean.
        true = np.array([float(row["cost"]) for row in rows[:40]])
        self.assertLess(np.abs(found - true).mean(), 20)
        said = run(BINARY, 2, "evaluate", best, "--predictions", "test.h5", cwd=self.folder).stdout
        with h5py.File(self.folder / "test.h5") as file, h5py.File(self.folder / "runs/costs/results.h5") as results:
            error = file["outputs"][:].ravel() - file["targets"][:]
            self.assertGreater(file["targets"][:].min(), 1500)
            row = results["test"][0]
            self.assertEqual(results["test"].dtype.names[-3:], ("r2", "rmse", "mae"))
        self.assertAlmostEqual(row["rmse"], np.sqrt((error ** 2).mean()), delta=1e-3)
        self.assertAlmostEqual(row["mae"], np.abs(error).mean(), delta=1e-3)
        self.assertAlmostEqual(row["loss"], (error ** 2).mean() / scale ** 2, places=5)
        self.assertIn(f"rmse {row['rmse']:.4f}, mae {row['mae']:.4f}", said)
        self.assertRegex(run(BINARY, 1, "report", "runs/costs", cwd=self.folder).stdout, r"test  loss .*, r2 0\.\d+, rmse \d.*, mae \d")
        # The same rows staged as they are: the checkpoint's scale counts.
        self.stage("plain", "--from", "old.csv", "--target", "cost", "--standardize", "off")
        again = run(BINARY, 1, "evaluate", best, "--dataset", "plain", cwd=self.folder).stdout
        self.assertIn(f"rmse {row['rmse']:.1f}"[:-1], again)

    def test_dates_and_several_targets(self):
        rng = random.Random(9)
        def dated_row():
            row = table_row(rng)
            row["when"] = f"20{rng.randrange(10, 25)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02} {rng.randrange(24):02}:15"
            if rng.random() < 0.1:
                row["when"] = ""
            return row
        rows = [dated_row() for _ in range(300)]
        for row in rows:
            row["cost"], row["stay"] = f"{float(row['size']) / 100 + rng.random():.4f}", f"{5 + rng.random():.4f}"
        self.write_rows("old.csv", rows, ["size", "cost", "when", "age", "kind", "stay", "place"])
        facts = self.stage("costs", "--from", "old.csv", "--target", "cost,stay", "--standardize")
        best, weights = self.train("costs", "--dataset", "costs", "--model", "mlp", "--model-option", "hidden=20,12", "--epochs", 3)
        self.assertEqual(weights["output_fc.weight"].shape[0], 2)
        new = [dated_row() for _ in range(37)]
        self.write_rows("new.csv", new, ["when", "place", "age", "size", "kind"])
        scales = np.array([[target["shift"], target["scale"]] for target in facts["target_scales"]])
        with torch.no_grad():
            expected = torch_mlp(weights)(inputs_of(new, facts["columns"])).numpy() * scales[:, 1] + scales[:, 0]
        for ranks in (1, 2):
            self.predict(ranks, best, "new.csv", "said.csv")
            found = [[float(row["prediction(cost)"]), float(row["prediction(stay)"])] for row in self.said("said.csv")]
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
        self.predict(2, best, "new.csv", "said.h5")
        with h5py.File(self.folder / "said.h5") as file:
            np.testing.assert_allclose(file["outputs"][:], expected, rtol=0, atol=TOLERANCE)
            self.assertEqual([name.decode() for name in file["target_names"][:]], ["cost", "stay"])
        said = run(BINARY, 2, "evaluate", best, "--predictions", "test.h5", cwd=self.folder).stdout
        self.assertIn("test of costs", said)
        with h5py.File(self.folder / "test.h5") as file:
            self.assertEqual(file["targets"].shape, (30, 2))
            error = (file["outputs"][:] - file["targets"][:]) ** 2
        with h5py.File(self.folder / "runs/costs/results.h5") as file:
            self.assertAlmostEqual(file["test"]["loss"][0], (error / scales[:, 1] ** 2).mean(), places=5)
            self.assertAlmostEqual(file["test"]["rmse_1"][0], np.sqrt(error[:, 1].mean()), places=5)
            self.assertTrue(np.isfinite(file["epochs"]["validation_r2"][-1]))
        new[3]["when"] = "31.12.2024"
        self.write_rows("new.csv", new, ["when", "place", "age", "size", "kind"])
        refused(BINARY, 2, 3, ["has 31.12.2024 in line 5, column when", "2024-12-31"], "predict", best, "--from", "new.csv", "--output",
                "o.csv", cwd=self.folder)
        self.stage("turned", "--from", "old.csv", "--target", "stay,cost", "--standardize")
        refused(BINARY, 2, 4, ["other targets", "cost, stay against stay, cost"], "evaluate", best, "--dataset", "turned", cwd=self.folder)

    def test_images_and_rows_in_arrays(self):
        rng = np.random.default_rng(7)
        pixels, labels = rng.integers(0, 200, (300, 1, 8, 8)).astype(np.uint8), rng.integers(0, 3, 300)
        np.save(self.folder / "x.npy", pixels)
        np.save(self.folder / "y.npy", labels)
        facts = self.stage("images", "--from", ".", "--inputs", "x.npy", "--targets", "y.npy")
        best, weights = self.train("images", "--dataset", "images", "--model", "mlp", "--model-option", "hidden=20,12", "--epochs", 1)
        images = torch.from_numpy(pixels[:50].astype(np.float32) / 255)
        with torch.no_grad():
            expected = torch.softmax(torch_mlp(weights)(((images - facts["mean"][0]) / facts["std"][0]).flatten(1)), 1).numpy()
        np.save(self.folder / "bytes.npy", pixels[:50, 0])
        np.save(self.folder / "floats.npy", pixels[:50].astype(np.float32) / 255)
        for name in ("bytes", "floats"):
            self.predict(2, best, f"{name}.npy", f"{name}.h5")
            with h5py.File(self.folder / f"{name}.h5") as file:
                np.testing.assert_allclose(file["probabilities"][:], expected, rtol=0, atol=TOLERANCE)
        np.save(self.folder / "large.npy", np.zeros((3, 1, 9, 8), np.uint8))
        refused(BINARY, 2, 3, ["large.npy", "[n, 1, 9, 8]", "[n, 1, 8, 8]"], "predict", best, "--from", "large.npy", "--output", "o.csv",
                cwd=self.folder)

    def test_lines_of_text(self):
        rng = random.Random(8)
        words = {0: ["good", "fine", "well", "the"], 1: ["bad", "awful", "the", "poor"]}
        for split, n in (("train", 300), ("test", 40)):
            rows = [(k := rng.randrange(2), " ".join(rng.choices(words[k], k=rng.randint(2, 9)))) for _ in range(n)]
            (self.folder / f"{split}.csv").write_text("".join(f'"{k + 1}","{text}"\n' for k, text in rows))
        (self.folder / "texts").mkdir()
        for split in ("train", "test"):
            (self.folder / f"{split}.csv").rename(self.folder / "texts" / f"{split}.csv")
        facts = self.stage("texts", "--from", "texts")
        best, weights = self.train("texts", "--dataset", "texts", "--model", "nbow", "--epochs", 2)
        lines = [" ".join(rng.choices(words[0] + words[1] + ["unheard"], k=rng.randint(1, 12))) for _ in range(30)]
        (self.folder / "new.txt").write_text("\n".join(lines) + "\n")
        self.predict(2, best, "new.txt", "said.csv")
        ids = {token: i for i, token in enumerate(facts["tokenizer"]["vocabulary"])}
        expected = []
        for line in lines:
            tokens = torch.tensor([ids.get(word, 1) for word in line.split()][:facts["shape"][0]])
            mean = weights["embedding.weight"][tokens].mean(0)
            expected.append(torch.softmax(weights["fc.weight"] @ mean + weights["fc.bias"], 0).numpy())
        found = np.array([[float(row[f"p({name})"]) for name in facts["classes"]] for row in self.said("said.csv")])
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
        # Rows as the training's file has them: their classes are no words.
        (self.folder / "rows.csv").write_text("".join(f'"1","{line} the the"\n' for line in lines))
        (self.folder / "longer.txt").write_text("".join(f"{line} the the\n" for line in lines))
        self.predict(1, best, "rows.csv", "of_rows.csv")
        self.predict(1, best, "longer.txt", "of_lines.csv")
        self.assertEqual((self.folder / "of_rows.csv").read_bytes(), (self.folder / "of_lines.csv").read_bytes())
        # Neither a dataset of that name with other words nor none is in the way: the run keeps its own.
        before = (self.folder / "said.csv").read_bytes()
        staged, moved = self.folder / "data/staged/texts", self.folder / "data/staged/moved"
        staged.rename(moved)
        self.predict(2, best, "new.txt", "kept.csv")
        self.assertEqual((self.folder / "kept.csv").read_bytes(), before)
        others = json.loads((moved / "dataset.json").read_text())
        others["tokenizer"]["vocabulary"] = others["tokenizer"]["vocabulary"][::-1]
        staged.mkdir()
        (staged / "dataset.json").write_text(json.dumps(others))
        self.predict(2, best, "new.txt", "kept.csv")
        self.assertEqual((self.folder / "kept.csv").read_bytes(), before)
        kept = self.folder / "runs/texts/vocabulary"
        kept.rename(kept.with_name("lost"))
        refused(BINARY, 2, 4, ["vocabulary"], "predict", best, "--from", "new.txt", "--output", "o.csv", cwd=self.folder)
        shutil.rmtree(staged)
        refused(BINARY, 2, 3, ["texts", "dataset.json"], "predict", best, "--from", "new.txt", "--output", "o.csv", cwd=self.folder)
        self.predict(2, best, "new.txt", "moved.csv", "--dataset", "moved")
        self.assertEqual((self.folder / "moved.csv").read_bytes(), before)
        kept.with_name("lost").rename(kept)
        (self.folder / "new.txt").write_text("good\n\nbad\n")
        refused(BINARY, 2, 3, ["new.txt, line 2", "no word"], "predict", best, "--from", "new.txt", "--output", "o.csv", cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
