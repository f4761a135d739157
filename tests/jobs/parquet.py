"""jobs/parquet_to_csv.py: what pyarrow writes as Parquet, `dtrain stage` reads from the table; what a table cannot hold is refused."""

import datetime
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import refused, run

try:
    import pyarrow as pa
    import pyarrow.parquet
except ImportError:
    print("skipped: there is no pyarrow; jobs/setup.sh --for-tests brings it")
    sys.exit(77)

BINARY = sys.argv.pop()
SCRIPT = Path(__file__).resolve().parents[2] / "jobs/parquet_to_csv.py"
ROWS = 70000  # more than the script reads at a time


class ParquetTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def convert(self, *words):
        return subprocess.run([sys.executable, SCRIPT, *words], cwd=self.folder, capture_output=True, text=True, check=False)

    def refuse(self, code, words, *arguments):
        done = self.convert(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(list(self.folder.rglob("*.partial")), [])

    def write(self, name, **columns):
        pa.parquet.write_table(pa.table(columns), self.folder / name)

    def test_types_arrive_as_they_were(self):
        when = [datetime.datetime(2020, 1, 1, 12) + datetime.timedelta(days=i % 900) for i in range(ROWS)]
        sizes = [None if i % 9 == 0 else i / 8 for i in range(ROWS)]
        self.write("t.parquet", row=pa.array(range(ROWS), pa.int32()), size=sizes, half=pa.array([0.5] * ROWS, pa.float16()),
                   fine=pa.array([i % 2 == 0 for i in range(ROWS)]), ward=pa.array(["east, old", 'the "west"'] * (ROWS // 2)).dictionary_encode(),
                   price=pa.array([None, 12], pa.decimal128(9, 2)).take(pa.array([i % 2 for i in range(ROWS)])),
                   day=pa.array([w.date() for w in when]), at=pa.array(when, pa.timestamp("ns", "UTC")),
                   target=pa.array([i % 3 for i in range(ROWS)], pa.uint8()))
        done = self.convert("t.parquet", "t.csv")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("t.csv: 9 columns", done.stdout)
        refused(BINARY, 1, 3, ["t.parquet", "is a Parquet file", "jobs/parquet_to_csv.py"], "stage", "t", "--from", "t.parquet", cwd=self.folder)
        run(BINARY, 1, "stage", "t", "--from", "t.csv", "--standardize", "off", cwd=self.folder)
        staged = self.folder / "data/staged/t"
        facts = json.loads((staged / "dataset.json").read_text())
        names = [(c["name"], c.get("label", c.get("part", "gap" if c.get("marks_gaps") else ""))) for c in facts["columns"]]
        self.assertEqual([name for name in names if name[0] not in ("day", "at")],
                         [("row", ""), ("size", ""), ("size", "gap"), ("half", ""), ("fine", "true"), ("ward", 'the "west"'),
                          ("price", ""), ("price", "gap")])
        self.assertEqual([sum(name[0] == column for name in names) for column in ("day", "at")], [5, 7])
        with h5py.File(staged / "test-00000-of-00001.h5") as file:
            inputs, targets = file["inputs"][:], file["targets"][:]
        rows = inputs[:, 0].astype(int)
        np.testing.assert_array_equal(targets, rows % 3)
        np.testing.assert_array_equal(inputs[:, 2], rows % 9 == 0)
        np.testing.assert_array_equal(inputs[rows % 9 != 0, 1], rows[rows % 9 != 0] / 8)
        np.testing.assert_array_equal(inputs[:, names.index(("fine", "true"))], rows % 2 == 0)
        np.testing.assert_allclose(inputs[:, names.index(("at", "day_cos"))], -1, atol=1e-6)  # at noon, in float32

    def test_folders_and_what_is_left_out(self):
        (self.folder / "parts").mkdir()
        for split, first in (("train", 0), ("test", 30)):
            self.write(f"parts/{split}.parquet", x=list(range(first, first + 30)), scan=[[1.0, 2.0]] * 30, y=[0, 1] * 15)
        self.refuse(3, ["test.parquet", "the column scan of type list<", "--ignore scan"], "parts", "tables")
        self.assertEqual(self.convert("parts", "tables", "--ignore", "scan").returncode, 0)
        run(BINARY, 1, "stage", "parts", "--from", "tables", cwd=self.folder)
        facts = json.loads((self.folder / "data/staged/parts/dataset.json").read_text())
        self.assertEqual((facts["splits"]["test"]["samples"], [c["name"] for c in facts["columns"]]), (30, ["x"]))
        self.refuse(2, ["--ignore size", "no such column", "x, scan, y"], "parts", "tables", "--ignore", "size")
        self.refuse(2, ["--ignore leaves no column"], "parts", "tables", "--ignore", "x,scan,y")

    def test_bad_files_are_named(self):
        self.write("whole.parquet", x=list(range(1000)), y=[0, 1] * 500)
        whole = (self.folder / "whole.parquet").read_bytes()
        (self.folder / "cut.parquet").write_bytes(whole[:len(whole) // 2])
        (self.folder / "odd.parquet").write_bytes(b"x,y\n1,2\n")
        for name in ("cut.parquet", "odd.parquet"):
            self.refuse(3, [name, "cannot be read as Parquet"], name, "o.csv")
        self.refuse(3, ["gone.parquet", "no such file"], "gone.parquet", "o.csv")
        (self.folder / "empty").mkdir()
        self.refuse(3, ["empty", "no .parquet file"], "empty", "o")
        self.write("none.parquet", x=pa.array([], pa.int64()))
        self.refuse(3, ["none.parquet", "no rows"], "none.parquet", "o.csv")
        self.refuse(1, ["cannot be written"], "whole.parquet", "nowhere/o.csv")
        for kind, value in ((pa.duration("s"), 3), (pa.binary(), b"x"), (pa.time32("ms"), 5), (pa.struct([("a", pa.int8())]), {"a": 1})):
            self.write("kind.parquet", x=[1], odd=pa.array([value], kind))
            self.refuse(3, ["kind.parquet", f"the column odd of type {kind}", "--ignore odd"], "kind.parquet", "o.csv")
        self.assertFalse((self.folder / "o.csv").exists())


if __name__ == "__main__":
    unittest.main()
