"""Two builds of dtrain in turn: what a change of the program, of its flags or of a library did to its speed.

Each round runs both on every model, the one that goes first changing by turns, on synthetic data. Of a run: the median step
after a warm-up, of the slowest rank in each step; and the seconds of a whole run of one step. The table
has the ratio new / old, round by round: its median and range.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

import runs

BATCH = {"mlp": 64, "nbow": 64, "cnn": 64, "conv_autoencoder": 32, "seq2seq": 32, "gpt": 16, "resnet18": 16, "vgg11": 16}
STOPPED = 75  # exit code of a run whose time is up


def parse():
    parser = argparse.ArgumentParser(prog="perf/versions.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="a binary: copy build/release/bin/dtrain before the change")
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--models", nargs="+", choices=BATCH, default=["mlp", "cnn", "gpt", "resnet18"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4, help="of training in each run")
    parser.add_argument("--name", default="versions", help="of the files: NAME-DATE.csv and .md")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf/results/versions")
    given = parser.parse_args()
    for binary in (given.old, given.new):
        if not binary.is_file():
            parser.error(f"{binary} is no program")
    return given


def start(binary, model, folder, given, seconds):
    """Wall seconds of the whole run, which ends with a checkpoint, but without validation."""
    command = [str(runs.TOP / "tests/support/mpirun.sh"), str(given.ranks), str(binary.resolve()), "--model", model, "--global-batch", str(BATCH[model]),
               "--threads", "1", "--epochs", "1000", "--exit-after", f"{seconds}s", "--quiet",
               "--output", str(folder), "--name", "run", "--overwrite"]
    begin = time.perf_counter()
    done = subprocess.run(command, env=runs.environment(), text=True, timeout=runs.RUN_LIMIT_S, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode not in (0, STOPPED):
        sys.exit(f"versions: {' '.join(command)}\nended with {done.returncode}\n{done.stderr[-2000:]}")
    return time.perf_counter() - begin


def median_step_ms(folder):
    with h5py.File(folder / "run" / "results.h5", "r", locking=False) as file:
        rows = np.concatenate([rank["steps"][:] for rank in file["ranks"].values()])
    slowest = {}
    for row in rows[rows["step"] > rows["step"].max() // 5]:
        slowest[int(row["step"])] = max(slowest.get(int(row["step"]), 0.0), float(row["time_s"]))
    return statistics.median(slowest.values()) * 1e3


def measure(binary, model, given):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        first_s = start(binary, model, folder, given, 0.001)
        start(binary, model, folder, given, given.seconds)
        return median_step_ms(folder), first_s


def table(rows, given):
    lines = ["| model | old, ms a step | new / old, step | new / old, run of one step |", "| --- | --- | --- | --- |"]
    for model in given.models:
        mine = [row for row in rows if row["model"] == model]
        steps = [row["new_step_ms"] / row["old_step_ms"] for row in mine]
        firsts = [row["new_one_step_s"] / row["old_one_step_s"] for row in mine]
        old_ms = runs.median_and_range([row["old_step_ms"] for row in mine])
        lines.append(f"| {model} | {old_ms} | {runs.median_and_range(steps, 3)} | {runs.median_and_range(firsts, 3)} |")
    return lines


def main():
    given = parse()
    about = [f"`perf/versions.sh OLD NEW --models {' '.join(given.models)} --ranks {given.ranks} --rounds {given.rounds} --seconds {given.seconds:g}`", "",
             runs.machine(), ""]
    rows = []
    for round_ in range(given.rounds):
        for model in given.models:
            row = {"model": model, "round": round_}
            order = ("old", "new") if round_ % 2 == 0 else ("new", "old")
            for name in order:
                step_ms, one_s = measure(getattr(given, name), model, given)
                row |= {f"{name}_step_ms": round(step_ms, 4), f"{name}_one_step_s": round(one_s, 4)}
            rows.append({key: row[key] for key in ("model", "round", "old_step_ms", "new_step_ms", "old_one_step_s", "new_one_step_s")})
            print(rows[-1], flush=True)
    runs.write_results(given.out, given.name, rows, "\n".join([*about, *table(rows, given)]))


if __name__ == "__main__":
    sys.exit(main())
