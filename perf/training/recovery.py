"""What it costs to be ready for a lost rank, and how fast a run is before and after one.

Part 1: the median step with --on-failure auto, which keeps what each update changes, over that with abort, both started with
ULFM, in turn. Part 2: the same of --replicate K over off, on a pipeline of two. Part 3: the median step before a rank is killed
and after a spare has taken its place.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import h5py
import numpy as np
import runs

TOP = Path(__file__).resolve().parents[2]
MPIRUN = TOP / "tests/support/mpirun.sh"
MODELS = {"mlp": ["--model", "mlp", "--global-batch", 128], "cnn": ["--model", "cnn", "--global-batch", 128]}
WARM_UP = 20  # steps left out


def median_step(folder, name, ranks, *options, steps=200, between=(WARM_UP, None)):
    """Milliseconds, of the slowest rank in each step; `between`: of which steps."""
    command = [str(MPIRUN), str(ranks), runs.program(), "--threads", "1", "--limit-steps", str(steps), "--epochs", "100", "--quiet", "--name",
               name, "--overwrite", "--checkpoint-every", "end", *map(str, options)]
    runs.run(command, cwd=folder, limit_s=300, DTRAIN_MPIRUN_FLAGS="--with-ft ulfm")
    with h5py.File(folder / "runs" / name / "results.h5") as file:
        rows = np.concatenate([rank["steps"][:] for rank in file["ranks"].values()])
    first, last = between
    slowest = {}
    for row in rows:
        if row["step"] > first and (last is None or row["step"] < last):
            slowest[int(row["step"])] = max(slowest.get(int(row["step"]), 0.0), float(row["time_s"]))
    return statistics.median(slowest.values()) * 1e3


def ratios(rows, what, plain, ready, pairs, folder, ranks):
    found = []
    for pair in range(pairs):
        times = {}
        for name, options in (("plain", plain), ("ready", ready)) if pair % 2 == 0 else (("ready", ready), ("plain", plain)):
            times[name] = median_step(folder, name, ranks, *options)
        found.append(times["ready"] / times["plain"])
        rows.append({"what": what, "pair": pair, "before_ms": round(times["plain"], 4), "after_ms": round(times["ready"], 4)})
    print(f"{what}: {statistics.median(found):.3f} x ({min(found):.3f} to {max(found):.3f}), {pairs} pairs, "
          f"{rows[-1]['before_ms']} ms in the last", flush=True)


def speed_after(rows, pairs, folder):
    found = []
    for pair in range(pairs):
        options = [*MODELS["cnn"], "--spares", 1, "--inject", "kill:rank=1,phase=forward,step=101"]
        before = median_step(folder, "spare", 3, *options, between=(WARM_UP, 100))
        with h5py.File(folder / "runs/spare/results.h5") as file:
            members = [int(row["rank"]) for row in file["topology"][:] if row["generation"] == 1]
            steps = np.concatenate([file[f"ranks/{rank:05}/steps"][:] for rank in members])
        late = steps[steps["step"] > 100 + WARM_UP]
        after = statistics.median(max(late["time_s"][late["step"] == step]) for step in np.unique(late["step"])) * 1e3
        found.append(after / before)
        rows.append({"what": "spare", "pair": pair, "before_ms": round(before, 4), "after_ms": round(after, 4)})
    print(f"a step after a spare took the place, over one before the loss (cnn, 2 ranks): {statistics.median(found):.3f} x "
          f"({min(found):.3f} to {max(found):.3f}), {pairs} runs", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="perf/recovery.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/recovery")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for model, options in MODELS.items():
            ratios(rows, f"{model}, 2 ranks: ready over not", [*options, "--on-failure", "abort"], options, arguments.pairs, folder, 2)
        pipe = [*MODELS["mlp"], "--mesh", "data=1,pipe=2"]
        for every in (1, 10):
            ratios(rows, f"mlp, pipe 2: --replicate {every} over off", pipe, [*pipe, "--replicate", every], arguments.pairs, folder, 2)
        speed_after(rows, arguments.pairs, folder)
    runs.write_rows(f"{runs.free_stem(arguments.out, 'cost')}.csv", rows)


if __name__ == "__main__":
    main()
