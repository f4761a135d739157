"""`dtrain stage` on CIFAR-10 records and CSV tables: the shards read by h5py say what an independent reading of the
originals says, and each kind of bad original ends with its exit code, one sentence and nothing half-written."""

import csv
import io
import json
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import run

BINARY = sys.argv.pop()
SPLITS = ("train", "validation", "test")


class FormatsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.original = self.folder / "original"
        self.original.mkdir()

    def stage(self, *options):
        run(BINARY, 1, "stage", "small", "--from", self.original, *options, cwd=self.folder)
        staged = self.folder / "data/staged/small"
        splits = {}
        for split in SPLITS:
            with h5py.File(staged / f"{split}-00000-of-00001.h5") as shard:
                splits[split] = {name: shard[name][:] for name in shard}
        return json.loads((staged / "dataset.json").read_text()), splits

    def refuse(self, code, words, *options, source=None):
        done = run(BINARY, 1, "stage", "small", "--from", source or self.original, *options, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        sentences = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
        self.assertEqual(len(sentences), 1, done.stderr)
        for word in words:
            self.assertIn(word, sentences[0])
        left = [path for path in (self.folder / "data").rglob("*") if path.is_file()] if (self.folder / "data").exists() else []
        self.assertEqual(left, [])

    def test_cifar10_in_a_tar(self):
        rng = np.random.default_rng(1)
        images = rng.integers(0, 256, (120, 3, 32, 32), dtype=np.uint8)
        labels = (np.arange(120) % 10).astype(np.uint8)
        records = np.concatenate([labels[:, None], images.reshape(120, -1)], axis=1)
        with tarfile.open(self.original / "cifar-10-binary.tar.gz", "w:gz") as tar:
            self.add(tar, "x/batches.meta.txt", b"\n".join(b"class%d" % k for k in range(10)) + b"\n\n")
            self.add(tar, "x/data_batch_1.bin", records[:60].tobytes())
            self.add(tar, "x/data_batch_2.bin", records[60:100].tobytes())
            self.add(tar, "x/test_batch.bin", records[100:].tobytes())
        facts, splits = self.stage()
        self.assertEqual(facts["classes"], [f"class{k}" for k in range(10)])
        np.testing.assert_array_equal(splits["test"]["inputs"], images[100:])
        np.testing.assert_array_equal(splits["test"]["targets"], labels[100:])
        together = np.concatenate([splits["train"]["inputs"], splits["validation"]["inputs"]]).reshape(100, -1)
        order = lambda rows: rows[np.lexsort(rows.T[::-1])]
        np.testing.assert_array_equal(order(together), order(images[:100].reshape(100, -1)))
        np.testing.assert_allclose(facts["mean"], (splits["train"]["inputs"] / 255).mean(axis=(0, 2, 3)), rtol=1e-9)

    @staticmethod
    def add(tar, name, content):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))

    def write_wards(self):
        """Two files of 60 rows: a number with gaps, a label, a verdict; the first number names the row."""
        rng = np.random.default_rng(2)
        for ward in ("east", "west"):
            with open(self.original / f"{ward}.csv", "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["id", "pressure", "smokes", "verdict"])
                for row in range(60):
                    number = row + (60 if ward == "west" else 0)
                    pressure = "?" if row % 6 == 0 else f"{rng.normal(120, 15):.2f}"
                    writer.writerow([number, pressure, ("no", "yes")[row * 7 % 3 == 0], ("ill", "well")[row % 2]])

    def test_tables_of_two_sites(self):
        self.write_wards()
        facts, splits = self.stage("--target", "verdict", "--standardize", "off")
        rows = {}
        for ward in ("east", "west"):
            with open(self.original / f"{ward}.csv", newline="") as file:
                rows.update({int(row["id"]): (ward, row) for row in csv.DictReader(file)})
        self.assertEqual(facts["sites"], ["east.csv", "west.csv"])
        self.assertEqual([(c["name"], c.get("label"), c.get("marks_gaps", False)) for c in facts["columns"]],
                         [("id", None, False), ("pressure", None, False), ("pressure", None, True), ("smokes", "yes", False)])
        ids = splits["train"]["inputs"][:, 0].astype(int)
        known = [float(rows[i][1]["pressure"]) for i in ids if rows[i][1]["pressure"] != "?"]
        mean = np.mean(np.array(known, dtype=np.float32).astype(np.float64))
        seen = []
        for split, count in zip(SPLITS, (96, 12, 12)):
            data = splits[split]
            self.assertEqual(data["inputs"].dtype, np.float32)
            self.assertEqual(data["sites"].dtype, np.int32)
            self.assertEqual(data["inputs"].shape, (count, 4))
            self.assertEqual(np.bincount(data["sites"]).tolist(), [count // 2, count // 2])
            for values, target, site in zip(data["inputs"], data["targets"], data["sites"]):
                ward, row = rows[int(values[0])]
                gap = row["pressure"] == "?"
                self.assertAlmostEqual(values[1], mean if gap else float(row["pressure"]), places=4)
                self.assertEqual(values[2], gap)
                self.assertEqual(values[3], row["smokes"] == "yes")
                self.assertEqual(facts["classes"][target], row["verdict"])
                self.assertEqual(facts["sites"][site], f"{ward}.csv")
                seen.append(int(values[0]))
        self.assertEqual(sorted(seen), list(range(120)))

    def test_gaps_words_among_numbers_and_the_summary(self):
        lines = ["id,size,kind,same,verdict"] + [f"{i},{100 + i / 7:.3f},{'ab'[i % 3 == 0]},5,{'no yes'.split()[i % 2]}" for i in range(2860)]
        lines[78] = lines[78].replace(lines[78].split(",")[1], "oops")
        (self.original / "t.csv").write_text("\n".join(lines) + "\n")
        self.refuse(3, ["t.csv", "2,859 of 2,860 cells of the column size", "'oops' in line 79", "--na-values 'oops'"])
        facts, splits = self.stage("--na-values", "oops")
        self.assertEqual(sum(data["inputs"][:, 2].sum() for data in splits.values()), 1)  # the gap is marked
        said = run(BINARY, 1, "stage", "small", "--overwrite", "--from", self.original, "--na-values", "oops", "--ignore", "id",
                   cwd=self.folder).stdout
        for words in ("table_classification of verdict", "2 in train: no 50.0 %, yes 50.0 %", "1 gap (0.0 %) filled with the mean",
                      "2 labels: a, b", "left out", "the column same has the same value in every row"):
            self.assertIn(words, said)
        said = run(BINARY, 1, "stage", "small", "--overwrite", "--from", self.original, "--na-values", "oops", cwd=self.folder).stdout
        self.assertIn("the column id has another whole number in every row", said)

    def test_own_files_for_the_splits(self):
        for name, first, count in (("rows", 0, 40), ("later", 40, 9), ("last", 49, 7)):
            text = "".join(f"{i},{i % 2}\n" for i in range(first, first + count))
            (self.original / f"{name}.csv").write_text("number,odd\n" + text)
        run(BINARY, 1, "stage", "own", "--from", self.original / "rows.csv", "--validation", self.original / "later.csv", "--test",
            self.original / "last.csv", "--standardize", "off", cwd=self.folder)
        for split, numbers in (("train", range(40)), ("validation", range(40, 49)), ("test", range(49, 56))):
            with h5py.File(self.folder / f"data/staged/own/{split}-00000-of-00001.h5") as file:
                self.assertEqual(file["inputs"][:, 0].tolist(), list(numbers))

    def test_classes_written_as_floats_are_said_to_be_a_regression(self):
        np.savez(self.folder / "own.npz", x=np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32), y=np.arange(40, dtype=np.float32) % 2)
        for words, expected in (((), True), (("--task", "regression"), False)):
            said = run(BINARY, 1, "stage", "own", "--overwrite", "--from", "own.npz", "--inputs", "x", "--targets", "y", *words, cwd=self.folder).stdout
            self.assertEqual("whole numbers of type float" in said, expected, said)

    def test_without_a_validation_split_train_keeps_its_rows(self):
        (self.folder / "text.txt").write_text("to be or not to be, " * 200)
        self.refuse(2, ["--validation none", "running text"], "--validation", "none", "--format", "text", source=self.folder / "text.txt")
        for name, rows in (("train", 40), ("test", 2), ("validation", 2)):
            (self.original / f"{name}.csv").write_text("number,odd\n" + "".join(f"{i},{i % 2}\n" for i in range(rows)))
        self.refuse(2, ["--validation none", "have that split", "move the split's files away"], "--validation", "none")
        (self.original / "validation.csv").unlink()
        said = run(BINARY, 1, "stage", "all", "--from", self.original, "--validation", "none", cwd=self.folder).stdout
        self.assertIn("train 40, validation 0, test 2 samples", said)
        with h5py.File(self.folder / "data/staged/all/train-00000-of-00001.h5") as file:
            self.assertEqual(file["targets"].size, 40)

    def test_bad_originals_are_refused(self):
        self.write_wards()
        (self.original / "west.csv").write_text("id,pressure,smokes,verdict\n1,2,no,ill\n2,3,no\n")
        self.refuse(3, ["west.csv", "3 cells in line 3", "4 in line 1"])
        self.write_wards()
        self.refuse(2, ["--target fate", "id, pressure, smokes, verdict"], "--target", "fate")
        self.refuse(2, ["--target", "--format csv"], "--target", "verdict", "--format", "idx")
        self.refuse(2, ["--format", "idx, hdf5, npy, npz"], "--format", "jpeg")
        for name, kind in (("../evil.csv", None), ("/etc/evil.csv", None), ("link.csv", tarfile.SYMTYPE)):
            archive = self.folder / "bad.tar"
            with tarfile.open(archive, "w") as tar:
                self.add(tar, "fine.csv", b"a,b\n1,x\n2,y\n")
                if kind:
                    entry = tarfile.TarInfo(name)
                    entry.type, entry.linkname = kind, "/etc/passwd"
                    tar.addfile(entry)
                else:
                    self.add(tar, name, b"a,b\n1,x\n")
            self.refuse(3, ["bad.tar", name], source=archive)
        (self.folder / "bad.tar").write_bytes(archive.read_bytes()[:700])
        self.refuse(3, ["bad.tar"], source=archive)
        for path in self.original.iterdir():
            path.unlink()
        (self.original / "data_batch_1.bin").write_bytes(bytes([3]) + bytes(3072) + bytes([77]) + bytes(3072))
        self.refuse(3, ["data_batch_1.bin", "label 77 in record 2", "0 to 9"])
        (self.original / "data_batch_1.bin").write_bytes(bytes(3073 + 5))
        self.refuse(3, ["data_batch_1.bin", "record 2 is cut off"])


if __name__ == "__main__":
    unittest.main()
