"""results.h5 against its contract, field by field, with h5py. Usage: results_h5py_test.py RECORD_SAMPLES"""

import subprocess
import sys
import tempfile

import h5py
import numpy as np

PHASES = ["data", "forward", "backward", "communication", "exposed_communication", "pipeline_idle", "optimizer",
          "checkpoint", "other", "transfer"]
PHASE_FIELDS = [(phase + "_time_s", "f", "s") for phase in PHASES]

# name, kind (i: int64, f: float64, s: fixed-length UTF-8), unit
CONTRACT = {
    "topology": [("rank", "i", "1"), ("node", "i", "1"), ("hostname", "s", ""), ("local_rank", "i", "1"),
                 ("device", "s", ""), ("device_uuid", "s", ""), ("numa_node", "i", "1"), ("cpus", "s", ""),
                 ("data_index", "i", "1"), ("pipe_index", "i", "1"), ("tensor_index", "i", "1"),
                 ("generation", "i", "1"), ("left_at_s", "f", "s")],
    "epochs": [("epoch", "i", "1"), ("train_loss", "f", "1"), ("train_accuracy", "f", "1"),
               ("validation_loss", "f", "1"), ("validation_accuracy", "f", "1"), ("samples", "i", "samples"),
               ("train_time_s", "f", "s"), ("validation_time_s", "f", "s"), ("samples_per_s", "f", "samples/s"),
               ("model_flops_per_s", "f", "FLOP/s"), ("learning_rate", "f", "1"),
               ("validation_loss_free_running", "f", "1")],
    "validations": [("step", "i", "1"), ("epoch", "i", "1"), ("loss", "f", "1"), ("accuracy", "f", "1"),
                    ("samples", "i", "samples"), ("time_s", "f", "s"), ("loss_free_running", "f", "1")],
    "test": [("split", "s", ""), ("loss", "f", "1"), ("accuracy", "f", "1"), ("samples", "i", "samples"),
             ("time_s", "f", "s"), ("checkpoint", "s", ""), ("loss_free_running", "f", "1")],
    "ranks/00001/epochs": [("epoch", "i", "1"), ("train_loss", "f", "1"), ("train_accuracy", "f", "1"),
                           ("validation_loss", "f", "1"), ("validation_accuracy", "f", "1"),
                           ("samples", "i", "samples"), ("train_time_s", "f", "s"), ("validation_time_s", "f", "s"),
                           *PHASE_FIELDS, ("bytes_sent", "i", "bytes"), ("bytes_received", "i", "bytes"),
                           ("peak_memory_bytes", "i", "bytes"), ("device_peak_memory_bytes", "i", "bytes")],
    "ranks/00001/steps": [("step", "i", "1"), ("epoch", "i", "1"), ("loss", "f", "1"), ("weight", "f", "1"),
                          ("gradient_norm", "f", "1"), ("learning_rate", "f", "1"), ("time_s", "f", "s"),
                          *PHASE_FIELDS, ("ended_at_s", "f", "s")],
    "ranks/00001/traffic": [("epoch", "i", "1"), ("peer", "i", "1"), ("bytes_sent", "i", "bytes"),
                            ("bytes_received", "i", "bytes")],
    "ranks/00001/events": [("time_s", "f", "s"), ("kind", "s", ""), ("detail", "s", "")],
    "ranks/00001/samples": [("epoch", "i", "1"), ("hash", "i", "1")],
}


def check_fields(file, path, fields):
    table = file[path]
    assert table.ndim == 1 and table.chunks is not None, f"{path} is not 1-D and chunked"
    assert table.dtype.names == tuple(name for name, _, _ in fields), f"{path}: {table.dtype.names}"
    assert [unit.decode() for unit in table.attrs["units"]] == [unit for _, _, unit in fields], f"{path}: units"
    for name, kind, _ in fields:
        dtype = table.dtype[name]
        if kind == "s":
            text = h5py.check_string_dtype(dtype)
            assert text is not None and text.encoding == "utf-8" and text.length is not None, f"{path} {name}"
        else:
            assert dtype == {"i": np.dtype("<i8"), "f": np.dtype("<f8")}[kind], f"{path} {name}: {dtype}"


def check_attributes(file):
    text = {"format": "dtrain.results", "name": "sample", "model": "seq2seq", "dataset": "synthetic",
            "strategy": "ddp", "mesh": "data=2,pipe=1,tensor=1", "status": "completed", "dtrain_version": "0.1.0",
            "command_line": "dtrain --model seq2seq", "config": 'model = "seq2seq"\n'}
    for name, value in text.items():
        assert file.attrs[name].decode() == value, name
    assert file.attrs["version"] == 1 and file.attrs["world_size"] == 2
    assert file.attrs["start_time_utc"].decode() <= file.attrs["end_time_utc"].decode()


def check_values(file):
    epochs = file["epochs"][:]
    np.testing.assert_array_equal(epochs["epoch"], [1, 2, 3])
    np.testing.assert_allclose(epochs["train_loss"], [1, 1 / 2, 1 / 3])
    np.testing.assert_array_equal(epochs["validation_loss_free_running"], [2, 4, 6])
    assert np.isnan(epochs["train_accuracy"]).all(), "no such notion is NaN"
    topology = file["topology"][:]
    assert topology["hostname"][0].decode() == "größe" and topology["cpus"][0] == b"0-1"
    assert np.isnan(topology["left_at_s"]).all()
    assert file["test"]["checkpoint"][0] == b"checkpoints/best" and file["test"]["split"][0] == b"test"
    assert sorted(file["ranks"]) == ["00000", "00001"]
    rank = file["ranks/00001"]
    np.testing.assert_array_equal(rank["steps"]["step"], np.arange(1, 13))
    np.testing.assert_array_equal(rank["epochs"]["bytes_sent"], [1001] * 3)
    np.testing.assert_array_equal(rank["epochs"]["peak_memory_bytes"], [5 << 32] * 3)
    np.testing.assert_array_equal(rank["samples"]["hash"].astype(np.uint64), [(1 << 63) + 1] * 3)
    np.testing.assert_array_equal(rank["steps"]["ended_at_s"], np.arange(1, 13) / 2)
    assert [tuple(row) for row in rank["traffic"][:]] == [(epoch, 0, 1001, 2000) for epoch in (1, 2, 3)]
    assert rank["events"]["detail"][0] == b"ended"
    row = rank["epochs"][0]
    exclusive = sum(row[phase + "_time_s"] for phase in PHASES if phase not in ("communication", "transfer"))
    assert exclusive == row["train_time_s"] == 3.0


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "results", folder + "/run"], check=True, timeout=60)
        with open(folder + "/run/state") as state:
            assert state.read() == "completed\n"
        with h5py.File(folder + "/run/results.h5", "r") as file:
            check_attributes(file)
            for path, fields in CONTRACT.items():
                check_fields(file, path, fields)
            check_values(file)


main()
