"""Kills a recorder with SIGKILL at random moments; h5py then reads all that was flushed before. Of a burst that was
cut, rows may follow: whole ones, or zeros. Usage: kill_test.py RECORD_SAMPLES [RUNS]"""

import random
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np


def run_and_kill(program, path, seconds):
    recorder = subprocess.Popen([program, "steps", path], stdout=subprocess.PIPE)
    assert recorder.stdout.readline() == b"200\n"  # it records; from here on any moment will do
    time.sleep(seconds)
    recorder.kill()
    lines = recorder.stdout.read().splitlines(keepends=True)
    recorder.wait(timeout=30)
    whole = [line for line in lines if line.endswith(b"\n")]
    return int(whole[-1]) if whole else 200


def main():
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for run in range(runs):
            path = f"{folder}/rank-{run:05}.h5"
            flushed = run_and_kill(sys.argv[1], path, chance.uniform(0.0, 0.2))
            with h5py.File(path, "r") as file:
                steps = file["steps"][:]
                assert sorted(file) == ["epochs", "events", "samples", "steps", "traffic"]
            assert len(steps) >= flushed, f"run {run}: {len(steps)} rows, {flushed} were flushed"
            number = np.arange(1, len(steps) + 1)
            cut = (number > flushed) & (steps["step"] == 0)
            np.testing.assert_array_equal(steps["step"][~cut], number[~cut], err_msg=f"run {run}")
            np.testing.assert_array_equal(steps["loss"], steps["step"], err_msg=f"run {run}")
    print(f"{runs} killed recorders left {runs} readable files")


main()
