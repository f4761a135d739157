"""Our shards read by h5py, and shards, arrays and IDX files written by Python read by us.

Usage: shards_h5py_test.py DATA_TOOL
"""
import gzip
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

TOOL = sys.argv.pop(1)
RANDOM = np.random.default_rng(1)


def tool(*words):
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=50)


def write_idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def stage(self, *words):
        done = tool("stage", "set", *words[:1], self.folder / "staged", *words[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "staged/set/dataset.json").read_text())

    def dump(self, dataset, split, dtypes, shape):
        """Inputs and targets as the loader brings them, in the order of the samples."""
        out = self.folder / "dump"
        done = tool("dump", dataset, split, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        inputs = np.fromfile(f"{out}.inputs", dtypes[0]).reshape(-1, *shape)
        return inputs, np.fromfile(f"{out}.targets", dtypes[1])

    def gathered(self, info, name):
        """All splits of a staged dataset through h5py, row after row."""
        rows = []
        for split in info["splits"].values():
            for shard in split["shards"]:
                with h5py.File(self.folder / "staged/set" / shard["file"]) as file:
                    rows.append(file[name][:])
        return np.concatenate(rows)


def canonical(inputs, targets):
    """Rows and their targets in an order that does not depend on how they were split."""
    flat = np.column_stack([inputs.reshape(len(inputs), -1).astype(np.float64), targets.astype(np.float64)])
    return flat[np.lexsort(flat.T)]


class ShardsOfOurs(Case):
    def setUp(self):
        super().setUp()
        originals = self.folder / "original"
        originals.mkdir()
        self.images = RANDOM.integers(0, 256, (5000, 20, 30), np.uint8)
        self.labels = RANDOM.integers(0, 10, 5000).astype(np.uint8)
        write_idx(originals / "train-images-idx3-ubyte.gz", self.images)
        write_idx(originals / "train-labels-idx1-ubyte.gz", self.labels)
        self.originals = originals

    def test_h5py_finds_what_the_contract_says(self):
        info = self.stage(self.originals)
        self.assertEqual((info["format"], info["version"], info["name"]), ("dtrain.dataset", 1, "set"))
        self.assertEqual(info["task"], "image_classification")
        self.assertEqual(info["shape"], [1, 20, 30])
        self.assertEqual(info["classes"], [str(i) for i in range(10)])
        self.assertIsNone(info["tokenizer"])
        self.assertEqual({k: v["samples"] for k, v in info["splits"].items()},
                         {"train": 4000, "validation": 500, "test": 500})
        for split, described in info["splits"].items():
            first = 0
            for index, shard in enumerate(described["shards"]):
                path = self.folder / "staged/set" / shard["file"]
                self.assertEqual(shard["sha256"], hashlib.sha256(path.read_bytes()).hexdigest())
                with h5py.File(path) as file:
                    self.assertEqual(dict(file.attrs) | {"format": 0, "dataset": 0, "split": 0},
                                     {"format": 0, "version": 1, "dataset": 0, "split": 0, "shard_index": index,
                                      "shard_count": len(described["shards"]), "first_sample": first,
                                      "sample_count": shard["samples"]})
                    for key, value in (("format", "dtrain.shard"), ("dataset", "set"), ("split", split)):
                        found = file.attrs[key]
                        self.assertEqual(found.decode() if isinstance(found, bytes) else found, value)
                    inputs, targets = file["inputs"], file["targets"]
                    self.assertEqual((inputs.dtype, inputs.shape), (np.uint8, (shard["samples"], 1, 20, 30)))
                    self.assertEqual((targets.dtype, targets.shape), (np.int64, (shard["samples"],)))
                    for array in (inputs, targets):
                        self.assertTrue(array.fletcher32)
                        self.assertIsNone(array.compression)
                    chunk = np.prod(inputs.chunks)
                    self.assertEqual(inputs.chunks[1:], (1, 20, 30))
                    if shard["samples"] > 2000:
                        self.assertTrue(2**19 <= chunk <= 2**20, chunk)
                first += shard["samples"]
        for source in info["sources"]:
            self.assertEqual(source["sha256"],
                             hashlib.sha256((self.originals / source["file"]).read_bytes()).hexdigest())

    def test_every_sample_is_in_one_split_and_statistics_are_trains(self):
        info = self.stage(self.originals)
        np.testing.assert_array_equal(canonical(self.gathered(info, "inputs"), self.gathered(info, "targets")),
                                      canonical(self.images, self.labels))
        with h5py.File(self.folder / "staged/set" / info["splits"]["train"]["shards"][0]["file"]) as file:
            values = file["inputs"][:].astype(np.float64) / 255
        self.assertAlmostEqual(info["mean"][0], values.mean(), places=9)
        self.assertAlmostEqual(info["std"][0], values.std(), places=9)

    def test_the_loader_brings_what_h5py_reads(self):
        info = self.stage(self.originals)
        inputs, targets = self.dump(self.folder / "staged/set", "train", (np.uint8, np.int64), (1, 20, 30))
        with h5py.File(self.folder / "staged/set" / info["splits"]["train"]["shards"][0]["file"]) as file:
            np.testing.assert_array_equal(inputs, file["inputs"][:])
            np.testing.assert_array_equal(targets, file["targets"][:])


class ShardsOfPython(Case):
    def write(self, inputs, targets, **layout):
        """A dataset as docs/data.md shows it."""
        folder = self.folder / "mine"
        folder.mkdir(exist_ok=True)
        with h5py.File(folder / "train-00000-of-00001.h5", "w") as file:
            file.create_dataset("inputs", data=inputs, **layout)
            file.create_dataset("targets", data=targets)
            file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": "mine", "split": "train",
                               "shard_index": 0, "shard_count": 1, "first_sample": 0,
                               "sample_count": len(inputs)})
        described = {"format": "dtrain.dataset", "version": 1, "name": "mine", "task": "image_classification",
                     "classes": ["a", "b", "c"], "shape": list(inputs.shape[1:]), "mean": [0.5], "std": [0.2],
                     "tokenizer": None, "seed": 1, "sources": [],
                     "splits": {"train": {"samples": len(inputs), "shards": [
                         {"file": "train-00000-of-00001.h5", "samples": len(inputs)}]}}}
        (folder / "dataset.json").write_text(json.dumps(described))
        return folder

    def check(self, dtype=np.uint8, target_type=np.int64, **layout):
        inputs = RANDOM.integers(0, 200, (1003, 1, 12, 11)).astype(dtype)
        targets = RANDOM.integers(0, 3, 1003).astype(target_type)
        folder = self.write(inputs, targets, **layout)
        stored = np.uint8 if dtype == np.uint8 else np.float32
        found, found_targets = self.dump(folder, "train", (stored, np.int64), inputs.shape[1:])
        np.testing.assert_array_equal(found, inputs.astype(stored))
        np.testing.assert_array_equal(found_targets, targets)

    def test_contiguous(self):
        self.check()

    def test_chunked_with_fletcher(self):
        self.check(chunks=(100, 1, 12, 11), fletcher32=True)

    def test_chunked_without_fletcher(self):
        self.check(chunks=(64, 1, 12, 11))

    def test_an_odd_number_of_bytes_per_chunk(self):
        self.check(chunks=(7, 1, 12, 11), fletcher32=True)

    def test_chunks_across_samples(self):
        self.check(chunks=(100, 1, 5, 4), fletcher32=True)

    def test_compressed(self):
        self.check(chunks=(100, 1, 12, 11), compression="gzip", fletcher32=True)

    def test_floats_big_endian_doubles_and_narrow_targets(self):
        self.check(dtype=np.float32, target_type=np.int32)
        self.check(dtype=np.dtype(">f4"), target_type=np.uint8)
        self.check(dtype=np.float64)

    def test_damage_in_a_chunk_that_h5py_wrote_is_named(self):
        inputs = RANDOM.integers(0, 200, (1000, 1, 12, 11)).astype(np.uint8)
        folder = self.write(inputs, np.zeros(1000, np.int64), chunks=(100, 1, 12, 11), fletcher32=True)
        file = folder / "train-00000-of-00001.h5"
        content = bytearray(file.read_bytes())
        content[content.find(inputs[350].tobytes())] ^= 1
        file.write_bytes(content)
        done = tool("dump", folder, "train", self.folder / "dump")
        self.assertEqual(done.returncode, 3)
        self.assertIn("train-00000-of-00001.h5: is damaged: chunk 3 of dataset /inputs (rows 300 to 399)", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_shard_with_fewer_rows_than_it_says(self):
        folder = self.write(np.zeros((10, 1, 4, 4), np.uint8), np.zeros(9, np.int64))
        done = tool("dump", folder, "train", self.folder / "dump")
        self.assertEqual(done.returncode, 3)
        self.assertIn("has 10 inputs but 9 targets", done.stderr)


class OnesOwnArrays(Case):
    def check(self, inputs, targets, task, shape, stored, write):
        source, words = write(inputs, targets)
        info = self.stage(source, *words)
        self.assertEqual((info["task"], info["shape"]), (task, shape))
        found = self.gathered(info, "inputs")
        self.assertEqual(found.dtype, stored)
        self.assertEqual(list(found.shape[1:]), shape)
        kept = self.gathered(info, "targets")
        np.testing.assert_array_equal(canonical(found, kept), canonical(inputs.astype(stored), targets.astype(kept.dtype)))
        return info

    def hdf5(self, inputs, targets):
        with h5py.File(self.folder / "own.h5", "w") as file:
            file["data/x"] = inputs
            file["data/y"] = targets
        return self.folder / "own.h5", ("/data/x", "/data/y")

    def npy(self, inputs, targets):
        np.save(self.folder / "x.npy", inputs)
        np.save(self.folder / "y.npy", targets)
        return self.folder, ("x.npy", "y.npy")

    def test_hdf5_images(self):
        self.check(RANDOM.integers(0, 256, (200, 3, 8, 9)).astype(np.uint8), np.arange(200) % 4,
                   "image_classification", [3, 8, 9], np.uint8, self.hdf5)

    def test_npy_images_without_a_channel_dim(self):
        self.check(RANDOM.integers(0, 256, (200, 8, 9)).astype(np.uint8), (np.arange(200) % 4).astype(np.uint8),
                   "image_classification", [1, 8, 9], np.uint8, self.npy)

    def test_npy_table_with_classes(self):
        inputs = RANDOM.normal(1000, 2, (300, 6)).astype(np.float32)
        info = self.check(inputs, np.arange(300) % 2, "table_classification", [6], np.float32, self.npy)
        train = self.folder / "staged/set" / info["splits"]["train"]["shards"][0]["file"]
        with h5py.File(train) as file:
            values = file["inputs"][:].astype(np.float64)
        np.testing.assert_allclose(info["mean"], values.mean(0), rtol=1e-9)
        np.testing.assert_allclose(info["std"], values.std(0), rtol=1e-7)

    def test_hdf5_table_of_doubles_for_a_regression(self):
        self.check(RANDOM.normal(0, 1, (300, 6)), RANDOM.normal(0, 1, 300), "regression", [6], np.float32, self.hdf5)

    def test_npy_time_series(self):
        self.check(RANDOM.normal(0, 1, (120, 7, 3)).astype(np.float32), np.arange(120) % 3, "table_classification",
                   [7, 3], np.float32, self.npy)

    def refused(self, words, code=3):
        done = tool("stage", "set", words[0], self.folder / "staged", *words[1:])
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertFalse(list((self.folder / "staged").glob("*")) if (self.folder / "staged").exists() else [])
        return done.stderr

    def test_bad_input(self):
        source, words = self.hdf5(np.zeros((20, 3), np.float32), np.zeros(19, np.int64))
        self.assertIn("own.h5:/data/x: holds 20 samples but /data/y has 19", self.refused((source, *words)))
        self.assertIn("own.h5:/data/z: there is no such dataset", self.refused((source, "/data/z", "/data/y")))
        self.assertIn("--inputs", self.refused((source,), code=2))
        source, words = self.npy(np.zeros((20, 3), np.float32), np.zeros(20, np.int64))
        self.assertIn("nothing.npy", self.refused((source, "nothing.npy", "y.npy")))
        content = (self.folder / "x.npy").read_bytes()
        (self.folder / "x.npy").write_bytes(content[:-8])
        self.assertIn("x.npy: is truncated", self.refused((source, *words)))
        (self.folder / "x.npy").write_bytes(b"not an array, but long enough to look at")
        self.assertIn("x.npy: is not a .npy file", self.refused((source, *words)))
        np.save(self.folder / "x.npy", np.asfortranarray(np.zeros((20, 3), np.float32)))
        self.assertIn("x.npy: is in Fortran order", self.refused((source, *words)))
        np.save(self.folder / "x.npy", np.zeros((20, 8, 8, 3), np.uint8))
        self.assertIn("channels last", self.refused((source, *words)))

    def test_a_truncated_gzip_is_named(self):
        images = self.folder / "train-images-idx3-ubyte.gz"
        write_idx(images, RANDOM.integers(0, 256, (100, 8, 8), np.uint8))
        write_idx(self.folder / "train-labels-idx1-ubyte.gz", np.zeros(100, np.uint8))
        images.write_bytes(images.read_bytes()[:3000])
        self.assertIn("train-images-idx3-ubyte.gz: is a truncated or damaged gzip file", self.refused((self.folder,)))


if __name__ == "__main__":
    unittest.main()
