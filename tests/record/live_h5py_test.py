"""h5py reads a run while it is being recorded. Usage: live_h5py_test.py RECORD_SAMPLES"""

import subprocess
import sys
import tempfile

import h5py
import numpy as np


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = folder + "/run"
        recorder = subprocess.Popen([sys.argv[1], "live", run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(20):
                print("more", file=recorder.stdin, flush=True)
                flushed = int(recorder.stdout.readline())
                with h5py.File(run + "/ranks/rank-00000.h5", "r") as file:
                    steps = file["steps"][:]
                    np.testing.assert_array_equal(steps["step"], np.arange(1, flushed + 1))
                    np.testing.assert_array_equal(steps["loss"], steps["step"])
                with h5py.File(run + "/results.h5", "r") as file:  # the rank's rows are seen through it, too
                    assert file.attrs["status"] == b"running"
                    assert len(file["ranks/00000/steps"]) == flushed
                    assert file.get("ranks/00001") is None, "that rank has not begun"
        finally:
            recorder.stdin.close()
            assert recorder.wait(timeout=30) == 0


main()
