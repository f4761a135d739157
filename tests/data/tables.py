"""`dtrain stage` on tables with dates and several targets: the shards hold what Python's datetime computes, and what cannot be read is named."""

import csv
import datetime
import json
import random
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import refused, run
from table_dates import part_of_date

BINARY = sys.argv.pop()
SPLITS = ("train", "validation", "test")
DATE_PARTS = ["years", "year_sin", "year_cos", "week_sin", "week_cos"]
TOLERANCE = 1e-6  # of float32, of values below 6


class TablesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def write(self, name, columns, rows):
        with open(self.folder / name, "w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])

    def stage(self, name, *options):
        said = run(BINARY, 1, "stage", "t", "--overwrite", "--from", name, *options, cwd=self.folder).stdout
        staged = self.folder / "data/staged/t"
        facts = json.loads((staged / "dataset.json").read_text())
        splits = {}
        for split in SPLITS:
            with h5py.File(staged / f"{split}-00000-of-00001.h5") as file:
                splits[split] = {name: file[name][:] for name in file}
        return facts, splits, said

    def refuse(self, code, words, name, *options):
        refused(BINARY, 1, code, words, "stage", "no", "--from", name, *options, cwd=self.folder)

    def dated_rows(self, times):
        """A number that names the row, a date, a verdict; two rows have no date."""
        rng = random.Random(1)
        rows = []
        for i in range(80):
            when = datetime.datetime(2019, 5, 2) + datetime.timedelta(days=rng.randrange(2000), minutes=rng.randrange(1440) * times)
            text = "" if i in (7, 30) else when.isoformat(sep=" ", timespec="minutes") if times else when.date().isoformat()
            rows.append([1000 + i, text, ("no", "yes")[i % 2]])
        return rows

    def test_dates_become_years_and_turns(self):
        for times, standardize in ((False, False), (True, False), (True, True)):
            rows = self.dated_rows(times)
            self.write("d.csv", ["number", "when", "verdict"], rows)
            facts, splits, said = self.stage("d.csv", "--standardize", "on" if standardize else "off")
            columns = facts["columns"]
            parts = DATE_PARTS + (["day_sin", "day_cos"] if times else [])
            self.assertEqual([(c["name"], c.get("part"), c.get("marks_gaps", False)) for c in columns],
                             [("number", None, False), *(("when", part, False) for part in parts), ("when", None, True)])
            texts = {number: text for number, text, _ in rows}
            first = min(text for text in texts.values() if text)
            if standardize:
                self.assertAlmostEqual(np.std(splits["train"]["inputs"][:, 1]), 1, places=1)  # gaps lie at the mean
                self.assertEqual([c["scale"] for c in columns[2:-1]], [1.0] * (len(columns) - 3))
            else:
                self.assertAlmostEqual(columns[1]["shift"], part_of_date("years", first), places=9)
                self.assertEqual(min(data["inputs"][:, 1].min() for data in splits.values()).round(5), 0)
            seen = 0
            for data in splits.values():
                for values in data["inputs"]:
                    number = round(values[0] * columns[0]["scale"] + columns[0]["shift"])
                    text = texts[number]
                    self.assertEqual(values[-1], not text)
                    for k, part in enumerate(parts, 1):
                        column = columns[k]
                        value = part_of_date(part, text) if text else column["filled_with"]
                        self.assertAlmostEqual(values[k], (value - column["shift"]) / column["scale"], delta=TOLERANCE)
                        seen += 1
            self.assertEqual(seen, 80 * len(parts))
            self.assertIn(f"dates from {first}", said)
            self.assertIn("year, week and day" if times else "year and week", said)
            self.assertIn("2 gaps (2.5 %)", said)

    def test_offsets_are_one_moment(self):
        rows = [[i, f"2024-03-{1 + i % 28:02}T12:00{zone}", i % 2] for i, zone in enumerate(["Z", "+00:00", ""] * 10)]
        rows += [[i + 30, f"2024-03-{1 + i % 28:02}T14:00+02:00", i % 2] for i in range(10)]
        self.write("z.csv", ["row", "when", "odd"], rows)
        facts, splits, _ = self.stage("z.csv", "--target", "odd")
        day = [c.get("part") for c in facts["columns"]].index("day_cos")
        for data in splits.values():
            np.testing.assert_allclose(data["inputs"][:, day], -1, atol=TOLERANCE)  # all at noon

    def test_what_is_no_date_is_named(self):
        rows = self.dated_rows(False)
        rows[40][1] = "2023-02-29"
        self.write("d.csv", ["number", "when", "verdict"], rows)
        self.refuse(3, ["d.csv", "dates in 77 of 78 cells of the column when", "'2023-02-29' in line 42", "--na-values"], "d.csv")
        _, splits, _ = self.stage("d.csv", "--na-values", "2023-02-29")
        self.assertEqual(sum(data["inputs"][:, -1].sum() for data in splits.values()), 3)
        for row in rows:
            row[1] = "/".join(reversed(row[1].split("-")))
        self.write("d.csv", ["number", "when", "verdict"], rows)
        self.refuse(3, ["dates in 0 of 78 cells of the column when", "write dates like 2024-12-31", "--ignore when"], "d.csv")
        self.write("d.csv", ["number", "when"], [row[:2] for row in self.dated_rows(True) if row[1]])
        self.refuse(2, ["--target", "has dates in that column"], "d.csv", "--target", "when")

    def test_several_targets(self):
        rng = random.Random(2)
        rows = [[f"{rng.random():.4f}", i, f"{rng.random():.4f}", i * i, ("a", "b")[i % 2]] for i in range(50)]
        names = ["size", "row", "width", "square", "kind"]
        self.write("s.csv", names, rows)
        facts, splits, said = self.stage("s.csv", "--target", "row,square", "--ignore", "kind", "--standardize", "off")
        self.assertEqual((facts["task"], facts["targets"]), ("regression", ["row", "square"]))
        self.assertEqual([c["name"] for c in facts["columns"]], ["size", "width"])
        self.assertIn("regression of 2 targets: row, square", said)
        pairs = np.concatenate([data["targets"] for data in splits.values()])
        self.assertEqual((pairs.dtype, pairs.shape), (np.float32, (50, 2)))
        self.assertEqual(sorted(pairs[:, 0]), list(range(50)))
        np.testing.assert_array_equal(pairs[:, 0] ** 2, pairs[:, 1])
        for row, values in zip(splits["train"]["targets"], splits["train"]["inputs"]):
            self.assertEqual(np.float32(rows[int(row[0])][0]), values[0])
        # By default inputs lie around 0, and the targets keep their units beside a scale.
        facts, scaled, said = self.stage("s.csv", "--target", "row,square", "--ignore", "kind")
        np.testing.assert_array_equal(scaled["train"]["targets"], splits["train"]["targets"])
        np.testing.assert_allclose(scaled["train"]["inputs"].mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(scaled["train"]["inputs"].std(0), 1, atol=1e-6)
        targets = splits["train"]["targets"].astype(np.float64)
        np.testing.assert_allclose([[t["shift"], t["scale"]] for t in facts["target_scales"]], np.stack([targets.mean(0), targets.std(0)], 1))
        self.assertIn(f"trained on as (y - {targets[:, 0].mean():.4g}) / {targets[:, 0].std():.4g}", said)
        self.refuse(2, ["--standardize maybe", "on or off"], "s.csv", "--standardize=maybe")
        self.refuse(2, ["labels in that column", "--target kind"], "s.csv", "--target", "row,kind")
        self.refuse(2, ["names the column row twice"], "s.csv", "--target", "row,row")
        self.refuse(2, ["no such column", "colour"], "s.csv", "--target", "row,colour")
        self.refuse(2, ["makes classes of one of several"], "s.csv", "--target", "row,square>4")
        self.refuse(2, ["names several columns", "one target"], "s.csv", "--target", "row,square", "--task", "table_classification")
        self.refuse(2, ["leaves no column as input"], "s.csv", "--target", "size,row,width,square", "--ignore", "kind")
        rows[5][3] = ""
        self.write("s.csv", names, rows)
        self.refuse(3, ["no value in the target column square in line 7"], "s.csv", "--target", "row,square")

    def test_several_targets_in_arrays(self):
        rng = np.random.default_rng(3)
        np.save(self.folder / "x.npy", rng.random((60, 4), np.float32))
        arrays = ["--inputs", "x.npy", "--targets", "y.npy"]
        for y in (rng.random((60, 3)), rng.integers(0, 9, (60, 3))):  # whole numbers, too
            np.save(self.folder / "y.npy", y)
            facts, splits, _ = self.stage(".", *arrays)
            self.assertEqual((facts["task"], facts["targets"], facts["classes"]), ("regression", ["0", "1", "2"], []))
            found = np.concatenate([data["targets"] for data in splits.values()])
            order = lambda rows: rows[np.lexsort(rows.T)]
            np.testing.assert_array_equal(order(found), order(y.astype(np.float32)))
        np.save(self.folder / "y.npy", np.eye(3)[rng.integers(0, 3, 60)])
        self.refuse(3, ["y.npy", "a 1 among 3 targets", "y.argmax(1)"], ".", *arrays)
        np.save(self.folder / "y.npy", rng.random((60, 3, 2)))
        self.refuse(3, ["y.npy", "[n, 3, 2]", "[n, K]"], ".", *arrays)

    def test_classes_without_a_sample_are_named(self):
        np.save(self.folder / "x.npy", np.random.default_rng(5).random((60, 4), np.float32))
        np.save(self.folder / "y.npy", np.arange(60) % 3 * 2)
        facts, _, said = self.stage(".", "--inputs", "x.npy", "--targets", "y.npy")
        self.assertEqual(facts["classes"], ["0", "1", "2", "3", "4"])
        self.assertIn("train has no sample of the classes 1, 3", said)

    def test_identifiers_and_constants_are_named(self):
        rows = [[f"P{i:03}", "2024-01-01", 3, i % 7 + 0.5, i % 2] for i in range(60)]
        self.write("i.csv", ["patient", "visit", "ward", "size", "ill"], rows)
        _, _, said = self.stage("i.csv")
        for words in ("the column patient has another label in every row, like an identifier: --ignore patient",
                      "the column visit has the same value in every row", "the column ward has the same value in every row"):
            self.assertIn(words, said)
        self.assertNotIn("the column size", said)
        rows += [[f"Q{i:03}", "2024-01-01", 3, 1.5, i % 2] for i in range(60)]
        self.write("i.csv", ["patient", "visit", "ward", "size", "ill"], rows)
        self.refuse(3, ["120 different labels in the column patient", "--ignore patient"], "i.csv")

    def test_headers_with_numbers(self):
        for names, kinds, header in (
                (["0", "1", "2", "target"], ("0", "1"), True),  # as pandas writes them
                (["0", "1", "2", "target"], ("no", "yes"), True),
                (["0", "1", "2", "3"], ("0", "1"), True),
                (["country", "2019", "2020", "2021"], ("0", "1"), True),
                (["7.5", "1", "2", "odd"], ("no", "yes"), False),
                (["3", "1", "2", "odd"], ("no", "yes"), False)):
            rows = [[f"land {i}" if names[0] == "country" else i % 9 + 10, i % 7 + 0.5, i % 5 + 0.25, kinds[i % 2]] for i in range(40)]
            self.write("h.csv", names, rows)
            facts, splits, _ = self.stage("h.csv", "--target", "3", *(["--ignore", "country"] if names[0] == "country" else []))
            self.assertEqual(sum(len(data["targets"]) for data in splits.values()), 41 - header, names)
            self.assertEqual(facts["classes"], list(kinds) if header else [*kinds[:1], "odd", *kinds[1:]], names)
            self.assertEqual(facts["columns"][-1]["name"], names[2] if header else "2")

    def test_two_columns_of_one_name_are_refused(self):
        self.write("d.csv", ["x", "y", "x", "odd"], [[i, i * i, -i, i % 2] for i in range(30)])
        self.refuse(3, ["d.csv", "has two columns x", "a name of its own"], "d.csv")

    def test_names_with_commas_and_comparisons(self):
        names = ["Größe, cm", "b", "b, c", "income_>50K"]
        self.write("n.csv", names, [[i + 0.5, i % 3 + 0.5, i % 4 + 0.5, i % 2] for i in range(40)])
        inputs = lambda *options: [c["name"] for c in self.stage("n.csv", *options)[0]["columns"]]
        self.assertEqual(inputs("--target", "income_>50K", "--ignore", "Größe, cm"), ["b", "b, c"])
        self.assertEqual(inputs("--target", "income_>50K", "--ignore", "b, c,Größe, cm"), ["b"])
        facts, _, _ = self.stage("n.csv", "--target", "Größe, cm>20", "--ignore", "b")
        self.assertEqual(facts["classes"], ["Größe, cm<=20", "Größe, cm>20"])
        facts, _, _ = self.stage("n.csv", "--target", "b, c,income_>50K")
        self.assertEqual(facts["targets"], ["b, c", "income_>50K"])
        self.refuse(2, ["no such column", "--ignore b c"], "n.csv", "--ignore", "b c,b")

    def test_large_numbers_keep_their_differences(self):
        rng = random.Random(4)
        seconds = [1700000000 + 100 * rng.random() for _ in range(60)]
        self.write("t.csv", ["time", "row", "odd"], [[f"{second:.3f}", i, i % 2] for i, second in enumerate(seconds)])
        facts, splits, _ = self.stage("t.csv")
        for data in splits.values():
            for values in data["inputs"].astype(np.float64):
                time, row = (value * column["scale"] + column["shift"] for value, column in zip(values, facts["columns"]))
                self.assertAlmostEqual(time, seconds[round(row)], delta=2e-3)  # float32 has steps of 128 there
        _, _, said = self.stage("t.csv", "--target", "time")
        self.assertIn("a target lies around 17000000", said)
        self.assertNotIn("a target lies", self.stage("t.csv", "--target", "row", "--task", "regression")[2])

    def test_the_task_of_arrays(self):
        rng = np.random.default_rng(6)
        np.save(self.folder / "x.npy", rng.random((60, 4), np.float32))
        arrays = [".", "--inputs", "x.npy", "--targets", "y.npy"]
        y = rng.integers(-5, 90, 60).astype(np.float64)
        np.save(self.folder / "y.npy", y)
        self.refuse(3, ["outside 0 to", "--task regression"], *arrays)
        facts, splits, _ = self.stage(*arrays, "--task", "regression")
        self.assertEqual((facts["task"], facts["classes"]), ("regression", []))
        np.testing.assert_array_equal(np.sort(np.concatenate([data["targets"] for data in splits.values()])), np.sort(y))
        np.savez(self.folder / "a.npz", x=np.load(self.folder / "x.npy"), y=np.eye(3)[rng.integers(0, 3, 60)])
        facts, _, _ = self.stage("a.npz", "--inputs", "x", "--targets", "y", "--task", "regression")
        self.assertEqual((facts["task"], facts["targets"]), ("regression", ["0", "1", "2"]))
        np.save(self.folder / "y.npy", rng.random(60))
        self.refuse(2, ["--task table_classification", "have fractions"], *arrays, "--task", "table_classification")
        np.save(self.folder / "x.npy", rng.integers(0, 9, (60, 1, 4, 4)).astype(np.uint8))
        np.save(self.folder / "y.npy", rng.integers(0, 3, (60, 4, 4)))
        self.refuse(2, ["--task regression", "[n, 4, 4]"], *arrays, "--task", "regression")


if __name__ == "__main__":
    unittest.main()
