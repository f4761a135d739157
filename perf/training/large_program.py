"""What a program of 500 MB costs before its first step: seconds and memory of a dry run and of a run of one step, with the golden batch
and without, beside torch.export.load of the same file.

    python perf/training/large_program.py [--features 11180]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import random_images
import runs

sys.path.insert(0, str(runs.TOP / "jobs"))

EXPORT = """
import sys, torch
from torch import nn
sys.path.insert(0, sys.argv[1])
from export_model import export_model
n = int(sys.argv[3])
torch.manual_seed(1)
net = nn.Sequential(nn.Flatten(), nn.Linear(64, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 10))
export_model(net, torch.randn(2, 1, 8, 8), sys.argv[2], golden=sys.argv[4] == "golden")
"""
LOAD = "import sys, torch; torch.export.load(sys.argv[1]).module()"


def measured(command, cwd):
    """Wall seconds and the largest resident memory, in MiB, of a command and what it starts."""
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), cwd=cwd, env=runs.environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start
    if status != 0:
        sys.exit(f"perf: {' '.join(map(str, command))}\nended with {status}\n{output[-2000:]}")
    return wall_s, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--features", type=int, default=11180, help="of the large layer: 11180 make 500 MB")
    given = parser.parse_args()
    print(f"machine: {runs.machine()}\ncommand: perf/training/large_program.py --features {given.features}, {runs.today()}")
    print("what, MB of the file, seconds, MiB of memory at most")
    with tempfile.TemporaryDirectory(prefix="dtrain-large-") as scratch:
        folder = pathlib.Path(scratch)
        random_images.stage(folder / "data", (1, 8, 8), train_samples=64)
        program = runs.program()
        options = ["--dataset", folder / "data", "--limit-steps", 1, "--global-batch", 2, "--threads", 1, "--optimizer", "sgd",
                   "--learning-rate", 0.01, "--checkpoint-every", "end", "--keep", 1, "--overwrite", "--quiet", "--name", "run"]
        for kind in ("golden", "plain"):
            file = folder / f"{kind}.pt2"
            measured([sys.executable, "-c", EXPORT, runs.TOP / "jobs", file, given.features, kind], folder)
            size = file.stat().st_size / 1e6
            ways = {"dry run": [program, "--model", file, *options, "--dry-run", "--golden", "off"],
                    f"one step, {'with its golden batch' if kind == 'golden' else 'without one'}": [program, "--model", file, *options],
                    "torch.export.load": [sys.executable, "-c", LOAD, file]}
            for what, command in ways.items():
                if kind == "plain" and not what.startswith("one step"):
                    continue
                wall_s, memory = measured(command, folder)
                print(f"{what}, {size:.0f}, {wall_s:.1f}, {memory:.0f}", flush=True)
            file.unlink()


if __name__ == "__main__":
    main()
