"""Files of lib/h5 read by h5py, and files of h5py read by lib/h5. Usage: h5py_test.py H5_SAMPLES"""

import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np


def check_written(program, path):
    subprocess.run([program, "write", path], check=True, timeout=30)
    with h5py.File(path, "r") as file:
        assert file.attrs["format"].decode() == "größe"
        assert file.attrs["version"] == 1 and file.attrs["version"].dtype == np.int64
        assert file.attrs["ratio"] == 0.5
        assert [unit.decode() for unit in file.attrs["units"]] == ["s", "samples/s"]
        kind = h5py.check_string_dtype(file.attrs.get_id("format").dtype)
        assert kind.encoding == "utf-8" and kind.length is not None, "fixed-length UTF-8"
        inputs = file["inputs"]
        assert inputs.dtype == np.uint8 and inputs.chunks == (2, 2, 2) and inputs.fletcher32
        assert inputs.compression is None
        np.testing.assert_array_equal(inputs[:].ravel(), np.arange(12))
        weight = file["model/fc.weight"]
        assert weight.chunks is None and weight.dtype == np.dtype("<f4")
        np.testing.assert_array_equal(weight[:], [[0.5, -1.5]])
        assert [word.decode() for word in file["words"][:]] == ["naïve", "a"]
        assert file.id.get_create_plist().get_version()[0] == 0, "earliest format"


def check_read(program, path):
    with h5py.File(path, "w") as file:
        file.attrs["variable"] = "größe"
        file.attrs["fixed"] = np.bytes_(b"plain")
        file.attrs["version"] = np.int32(7)
        file.attrs["list"] = ["a", "bc"]
        file["words"] = ["longer word", "é"]
        file["deep/big"] = np.array([1.5, -2.0], dtype=">f8")
        file.create_dataset("marks", data=[[True, False], [False, True]], chunks=(1, 2))
        file.create_dataset("moods", data=[0, 1], dtype=h5py.enum_dtype({"GLAD": 0, "SAD": 1}, basetype="i1"))
    found = subprocess.run([program, "read", path], check=True, timeout=30, capture_output=True, text=True).stdout
    assert found == "größe|plain|7|a,bc,|longer word,é,|1.5,-2,big|1,0,0,1,|uint8|other\n", found


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_written(sys.argv[1], str(pathlib.Path(folder) / "ours.h5"))
        check_read(sys.argv[1], str(pathlib.Path(folder) / "theirs.h5"))


main()
