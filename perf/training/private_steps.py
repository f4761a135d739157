"""Seconds of a step with differential privacy (`--dp-clip 1`) beside those of a usual one, on one rank with one thread, in turn.

A run's figure is the median of its steps after the first ten; a ratio is of one round. Written to perf/results/privacy: every run as CSV.
"""

import argparse
import pathlib
import statistics
import tempfile

import h5py
import runs

BATCH, STEPS, WARM_UP = 512, 60, 10
PRIVATE = ["--dp-clip", 1, "--dp-noise", 1.1]


def parse():
    parser = argparse.ArgumentParser(prog="perf/private_steps.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", default=["mlp", "cnn", "nbow"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, kept nowhere: does it run? No figures")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "privacy")
    return parser.parse_args()


def step_s(model, options, scratch):
    runs.run(runs.dtrain_command(1, scratch, "run", "--model", model, "--dataset", "synthetic", "--global-batch", BATCH, "--limit-steps", STEPS,
                                 "--epochs", 100, "--record-steps", "all", "--checkpoint-every", "end", *options))
    with h5py.File(scratch / "run" / "results.h5", "r", locking=False) as file:
        return statistics.median(map(float, file["ranks/00000/steps"]["time_s"][WARM_UP:]))


def main():
    given = parse()
    rows = []
    with tempfile.TemporaryDirectory(prefix="dtrain-private-") as scratch:
        for model in given.models:
            for number in range(1 if given.quick else given.rounds):
                sides = {"usual": [], "private": PRIVATE}
                turn = list(sides) if number % 2 == 0 else list(reversed(sides))
                found = {side: step_s(model, sides[side], pathlib.Path(scratch)) for side in turn}
                rows.append({"model": model, "round": number + 1, "first": turn[0], **{f"{side}_s": round(found[side], 6) for side in sides},
                             "ratio": round(found["private"] / found["usual"], 3)})
    if given.quick:
        print("all run")
        return
    for model in given.models:
        print(f"{model}: {runs.median_and_range([row['ratio'] for row in rows if row['model'] == model])} x")
    runs.write_rows(given.out / f"private-steps-{runs.today()}.csv", rows,
                    [f"machine: {runs.machine()}", f"{BATCH} samples a step, one rank with one thread, {' '.join(map(str, PRIVATE))}"])


if __name__ == "__main__":
    main()
