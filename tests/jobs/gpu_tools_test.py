"""What perf/gpu makes of a profile's files and of NCCL's library, on files made here.

    gpu_tools_test.py
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GPU = Path(__file__).resolve().parents[2] / "perf" / "gpu"
sys.path.insert(0, str(GPU))
import slim_nccl  # noqa: E402


def call(code, tool, *arguments):
    done = subprocess.run([sys.executable, str(GPU / tool), *map(str, arguments)], text=True, timeout=60, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code, (code, done.returncode, done.stdout)
    return done.stdout


def a_step_is_the_difference_of_two_runs(folder):
    (folder / "short").write_text("4,4000,once, with a comma\n2,6000,sum\n")
    (folder / "long").write_text("4,5000,once, with a comma\n12,36000,sum\n")
    lines = call(0, "kernel_times.py", folder / "short", folder / "long", 10).splitlines()
    assert lines[0].startswith("0.003 ms of a step in 1 launches of 1 kernels"), lines
    assert lines[2].split() == ["100.0%", "3.0", "1.0", "3.0", "sum"], lines
    assert "no more work" in call(2, "kernel_times.py", folder / "long", folder / "long", 10)


def entry(architecture, code):
    return struct.pack("<HHIQ", 2, 1, 64, len(code)) + bytes(12) + struct.pack("<I", architecture) + bytes(32) + code


def only_one_architecture_stays(folder):
    entries = entry(80, b"a" * 16) + entry(90, b"b" * 24) + entry(100, b"c" * 8)
    container = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    data = bytearray(b"before" + container + container + b"behind")
    before = bytes(data)
    assert slim_nccl.keep_only(data, 6, 2 * len(container), 90) == 48
    assert bytes(data) == before.replace(b"a" * 16, bytes(16)).replace(b"c" * 8, bytes(8))
    assert "has no code for sm_90" in call(2, "slim_nccl.py", sys.executable, folder / "out", 90)
    assert not (folder / "out").exists()


def main():
    with tempfile.TemporaryDirectory() as folder:
        a_step_is_the_difference_of_two_runs(Path(folder))
        only_one_architecture_stays(Path(folder))
    print("all as wanted")


if __name__ == "__main__":
    main()
