"""A driver that is too old for dtrain's CUDA (tests/comm/old_driver.c): --device cuda says so, and auto takes the CPU.

    old_driver.py BINARY OLD_DRIVER
"""

import os
import sys
import tempfile
from pathlib import Path

import h5py

from dtrain_run import refused, run

BINARY, OLD_DRIVER = (Path(argument).resolve() for argument in sys.argv[1:3])
MLP = ["--model", "mlp", "--limit-steps", 2, "--threads", 1]


def main():
    os.environ["LD_PRELOAD"] = str(OLD_DRIVER)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        refused(BINARY, 2, 2, ["--device cuda", "the driver is too old: it knows CUDA 12.4", "nvidia-smi", "--device cpu"],
                *MLP, "--device", "cuda", "--name", "cuda", cwd=folder)
        run(BINARY, 2, *MLP, "--name", "auto", cwd=folder)
        with h5py.File(folder / "runs/auto/results.h5") as file:
            assert set(file["topology"]["device"]) == {b"cpu"}
        assert 'device = "cpu"' in (folder / "runs/auto/config.toml").read_text()


if __name__ == "__main__":
    main()
