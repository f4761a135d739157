"""independent_readers.py WRITE_EXAMPLE: reads a checkpoint and its exports with h5py, hashlib and json."""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np

EXPECTED = {
    "fc.weight": np.array([[1.0, -2.5, 3.25], [4.0, 5.0, 6.5]], np.float32),
    "fc.bias": np.array([0.1, 0.2]),
    "bn.num_batches_tracked": np.array(42, np.int64),
    "empty": np.zeros((0, 4), np.float32),
}
AVERAGE = np.array([[9.0, 8.0, 7.0], [6.0, 5.0, 4.0]], np.float32)
SAFETENSORS_TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}


def same(actual, expected):
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert np.array_equal(actual, expected), (actual, expected)


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    assert sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) == len(body)
    return {name: np.frombuffer(body[slice(*entry["data_offsets"])], SAFETENSORS_TYPES[entry["dtype"]])
            .reshape(entry["shape"]) for name, entry in header.items()}


def check_checkpoint(folder):
    text = (folder / "manifest.json").read_bytes()
    assert (folder / "manifest.sha256").read_text().split()[0] == hashlib.sha256(text).hexdigest()
    manifest = json.loads(text)
    assert (manifest["format"], manifest["version"], manifest["step"]) == ("dtrain.checkpoint", 1, 500)
    assert manifest["position"] == {"samples": 32000} and manifest["micro_batches"] == 8
    for entry in manifest["files"]:
        part = (folder / entry["file"]).read_bytes()
        assert len(part) == entry["bytes"] and hashlib.sha256(part).hexdigest() == entry["sha256"]
    expected = {"model/" + name: value for name, value in EXPECTED.items()}
    expected["optimizer/exp_avg/fc.weight"] = AVERAGE
    assert [entry["name"] for entry in manifest["tensors"]] == list(expected)
    for entry in manifest["tensors"]:
        (piece,) = entry["slices"]
        with h5py.File(folder / piece["file"]) as part:
            stored = part[entry["name"]]
            assert stored.chunks is None, "contiguous"
            assert list(stored.attrs["global_shape"]) == entry["shape"]
            assert list(stored.attrs["offset"]) == piece["offset"]
            assert entry["dtype"] == str(stored.dtype)
            same(stored[()] if stored.shape else np.array(stored[()]), expected[entry["name"]])


with tempfile.TemporaryDirectory() as name:
    top = pathlib.Path(name)
    subprocess.run([sys.argv[1], name], check=True)
    check_checkpoint(top / "step-00000500")
    with h5py.File(top / "model.h5") as exported:
        assert sorted(exported["model"]) == sorted(EXPECTED)
        for key, value in EXPECTED.items():
            same(np.array(exported["model"][key][()]), value)
    tensors = read_safetensors(top / "model.safetensors")
    assert list(tensors) == list(EXPECTED)
    for key, value in EXPECTED.items():
        same(tensors[key], value)
    try:
        from safetensors.numpy import load_file
    except ImportError:
        print("safetensors is not installed: read by the parser above only")
    else:
        for key, value in load_file(top / "model.safetensors").items():
            same(value, EXPECTED[key])
print("ok")
