"""CUDA's libraries as dtrain cannot use them: --device cuda says so in one sentence, and auto takes the CPU.

    cuda_libraries.py BINARY OLD_DRIVER
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import h5py

import faults
from dtrain_run import refused, run

BINARY, OLD_DRIVER = (Path(argument).resolve() for argument in sys.argv[1:3])
MLP = ["--model", "mlp", "--limit-steps", 2, "--threads", 1]


def computes_on_cpu(folder):
    """What auto settles on."""
    run(BINARY, 2, *MLP, "--name", "auto", "--overwrite", cwd=folder)
    with h5py.File(folder / "runs/auto/results.h5") as file:
        assert set(file["topology"]["device"]) == {b"cpu"}
    assert 'device = "cpu"' in (folder / "runs/auto/config.toml").read_text()


def refuses(folder, *words, binary=BINARY):
    refused(binary, 2, 2, ["--device cpu", *words], *MLP, "--device", "cuda", "--name", "cuda", cwd=folder)
    computes_on_cpu(folder)


def program_beside_a_broken_nccl(folder):
    """A copy of the program and its module: what lies beside the module is found first."""
    for place in ("bin/dtrain", "lib/libdtrain_cuda.so"):
        (folder / place).parent.mkdir()
        shutil.copy2(BINARY.parents[1] / place, folder / place)
    (folder / "lib/libnccl.so.2").touch()
    return folder / "bin/dtrain"


def main():
    """There is a driver, though an old one (tests/comm/device/old_driver.c), in all cases: without one no other library is looked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LD_PRELOAD"] = str(OLD_DRIVER)
        refuses(folder, "--device cuda", "the driver is too old: it knows CUDA 12.4", "nvidia-smi")

        os.environ["LD_PRELOAD"] = f"{OLD_DRIVER}:{faults.fault_library(folder)}"
        for fault, version in {"old_nccl": "2.18.1", "other_nccl": "3.1.5"}.items():
            os.environ["DTRAIN_FAULTS"] = f"{fault},"
            refuses(folder, f"libnccl {version} was loaded but dtrain was built with 2.", "LD_LIBRARY_PATH")
        del os.environ["DTRAIN_FAULTS"]

        # LD_LIBRARY_PATH does not replace the library that the run path names.
        os.environ["LD_PRELOAD"] = str(OLD_DRIVER)
        (folder / "empty").mkdir()
        (folder / "empty/libnccl.so.2").touch()
        os.environ["LD_LIBRARY_PATH"] = f"{folder / 'empty'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        refuses(folder, "the driver is too old")
        refuses(folder, "libnccl.so.2", "install NCCL 2", binary=program_beside_a_broken_nccl(folder))


if __name__ == "__main__":
    main()
