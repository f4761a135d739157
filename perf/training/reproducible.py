"""What --reproducible costs on one rank and on two, measured in turn in one run; a table and the raw figures go to
perf/results/reproducible.

Each model runs with --reproducible (8 micro-batches), in the fast mode with as many, and in the fast mode with one
micro-batch per rank. Of each run the median step of its slowest rank. Then how evenly the work is spread: each rank's forward
time per step over the mean of all ranks, on 2 and 4 ranks.
"""

import argparse
import pathlib
import statistics
import tempfile

import h5py

import runs

MODELS = {"mlp": ["--limit-steps", 300], "cnn": ["--limit-steps", 200], "resnet18": ["--limit-steps", 4, "--global-batch", 64],
          "gpt": ["--limit-steps", 4, "--global-batch", 16]}
MODES = {"--reproducible": ["--reproducible"], "8 micro-batches": ["--micro-batches", 8], "fast": []}


def parse():
    parser = argparse.ArgumentParser(prog="perf/reproducible.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "reproducible")
    return parser.parse_args()


def train(ranks, folder, *options):
    """Seconds per step, and each rank's median forward time over the mean of all ranks."""
    runs.run(runs.dtrain_command(ranks, folder, "run", *options, "--epochs", 50, oversubscribe=ranks > 2))
    with h5py.File(folder / "run" / "results.h5", "r", locking=False) as file:
        steps = [rank["steps"][1:] for rank in file["ranks"].values()]
    forward = [float(statistics.median(table["forward_time_s"])) for table in steps]
    mean = sum(forward) / len(forward)
    return statistics.median(max(step) for step in zip(*(table["time_s"] for table in steps))), [part / mean for part in forward]


def cost(arguments, folder, rows):
    lines = []
    for model in arguments.models:
        for ranks in (1, 2):
            seconds = {mode: [] for mode in MODES}
            for pair in range(arguments.pairs):
                for mode, options in MODES.items():
                    step_s, _ = train(ranks, folder, "--model", model, *MODELS[model], *options)
                    seconds[mode].append(step_s)
                    rows.append({"model": model, "ranks": ranks, "pair": pair, "mode": mode, "step_s": step_s})
            base = seconds["--reproducible"]
            ratios = [[one / other for one, other in zip(base, seconds[mode])] for mode in list(MODES)[1:]]
            lines.append(f"| {model} | {ranks} | " + " | ".join(f"{1000 * statistics.median(values):.1f}" for values in seconds.values())
                         + " | " + " | ".join(runs.median_and_range(values) for values in ratios) + " |")
            print(lines[-1], flush=True)
    return ("## Time per step\n\n| model | ranks | --reproducible, ms | 8 micro-batches, ms | fast, ms | over 8 micro-batches: median (range) "
            "| over fast: median (range) |\n| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(lines))


def spread(arguments, folder, rows):
    lines = []
    for model in arguments.models:
        for ranks in (2, 4):
            _, parts = train(ranks, folder, "--model", model, *MODELS[model], "--reproducible")
            for rank, part in enumerate(parts):
                rows.append({"model": model, "ranks": ranks, "mode": "spread", "rank": rank, "forward_over_mean": part})
            lines.append(f"| {model} | {ranks} | {min(parts):.2f} to {max(parts):.2f} |")
            print(lines[-1], flush=True)
    return ("## Forward time of a rank over the mean of all\n\nFour ranks share two cores.\n\n| model | ranks | least to most |\n"
            "| --- | --- | --- |\n" + "\n".join(lines))


def main():
    arguments = parse()
    machine, rows = runs.machine(), []
    with tempfile.TemporaryDirectory() as folder:
        pages = [part(arguments, pathlib.Path(folder), rows) for part in (cost, spread)]
    runs.write_results(arguments.out, "cost", rows,
                       f"`perf/reproducible.sh --pairs {arguments.pairs}`. Machine: {machine}.\n\n" + "\n\n".join(pages))


if __name__ == "__main__":
    main()
