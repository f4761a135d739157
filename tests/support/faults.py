"""What tests of `dtrain doctor` plant: a library of faults to preload, a driver with one GPU, another build of the program."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
ONE_GPU = """
int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(device + i);
  return 0;
}
"""


def compile_library(source, path):
    command = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-w", "-o", str(path), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return path


def fault_library(folder):
    return compile_library(SOURCE, Path(folder) / "libfaults.so")


def one_gpu_driver(folder):
    """A folder for LD_LIBRARY_PATH."""
    source = Path(folder) / "one_gpu.c"
    source.write_text(ONE_GPU)
    compile_library(source, Path(folder) / "libcuda.so.1")
    return folder


def other_build(binary, path):
    """A copy of the program that says it is another build: a byte of its GNU build-id is another one."""
    data = bytearray(Path(binary).read_bytes())
    note = data.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")  # name of 4 bytes, id of 20, NT_GNU_BUILD_ID
    assert note >= 0, "the program has no build-id"
    data[note + 16] ^= 0xFF
    path = Path(path)
    path.write_bytes(data)
    path.chmod(0o755)
    return path
