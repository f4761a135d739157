"""What --adaptive-batch costs where it changes nothing: the noise of the gradient is measured in one step of 16, and an epoch is too short for
larger steps. Two ranks, synthetic data.

Pairs of runs in turn, without and with the option: processor seconds of both ranks for all steps but the first, whose start is measured by
runs of one step. A rank that waits uses its processor, too, so that these vary with what else the machine does. Beside that, within each run
with the option: how much longer a measured step computes than the others, by medians, divided by 16 steps.
"""

import argparse
import pathlib
import resource
import statistics
import sys
import tempfile

import h5py
import numpy as np

import runs

BATCH = 64
STEPS_OF_EPOCH = 63  # of 64 steps and more AdaptiveBatch would make fewer
EVERY = 16           # steps, of which one is measured
TASKS = {
    "mlp": ["--task", "image_classification"],
    "cnn": ["--task", "image_classification"],
    "nbow": ["--task", "text_classification", "--vocab-size", 25000],
}
EPOCHS = {"mlp": 40, "cnn": 6, "nbow": 8}


def parse():
    parser = argparse.ArgumentParser(prog="perf/noise_scale.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "strategies")
    return parser.parse_args()


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(model, scratch, *options):
    """Processor seconds of a run."""
    before = processor_s()
    runs.run(runs.dtrain_command(2, scratch, "run", "--model", model, "--dataset", model, "--data-root", scratch, "--global-batch", BATCH,
                                 "--checkpoint-every", "end", *options))
    return processor_s() - before


def extra_of_measured(folder):
    """Milliseconds that a rank computes, without waits: by how much a measured step is longer, and one of the others."""
    with h5py.File(folder / "results.h5", "r", locking=False) as results:
        rows = np.concatenate([rank["steps"][:] for rank in results["ranks"].values()])
    rows = rows[rows["step"] > STEPS_OF_EPOCH]  # the first epoch is the warm-up
    computed_s = rows["forward_time_s"] + rows["backward_time_s"] + rows["optimizer_time_s"]
    measured = rows["step"] % EVERY == 0
    usual_s = float(np.median(computed_s[~measured]))
    return 1e3 * (float(np.median(computed_s[measured])) - usual_s), 1e3 * usual_s


def measure(model, pair, scratch):
    row = {"model": model, "pair": pair, "steps": EPOCHS[model] * STEPS_OF_EPOCH}
    sides = [("plain", []), ("adaptive", ["--adaptive-batch"])]
    for name, options in sides if pair % 2 == 0 else sides[::-1]:
        start_s = train(model, scratch, "--limit-steps", 1, *options)
        row[f"{name}_s"] = round(train(model, scratch, "--epochs", EPOCHS[model], *options) - start_s, 3)
        if options:
            row["extra_ms"], row["step_ms"] = (round(value, 4) for value in extra_of_measured(scratch / "run"))
    print(row, flush=True)
    return row


def page(rows, given, machine):
    lines = [f"`perf/noise_scale.sh --models {' '.join(given.models)} --pairs {given.pairs}` on {runs.today()}; {machine}", "",
             "| model | steps | processor seconds, with / without | extra of a measured step, ms | the others compute, ms | cost by these, % |", "| --- |" + " --- |" * 5]
    for model in given.models:
        mine = [row for row in rows if row["model"] == model]
        ratios = [row["adaptive_s"] / row["plain_s"] for row in mine]
        shares = [100 * row["extra_ms"] / EVERY / row["step_ms"] for row in mine]
        lines.append(f"| {model} | {mine[0]['steps']} | {runs.median_and_range(ratios, 3)} | {runs.median_and_range([row['extra_ms'] for row in mine], 3)} | "
                     f"{runs.median_and_range([row['step_ms'] for row in mine], 3)} | {runs.median_and_range(shares, 2)} |")
    return "\n".join(lines)


def main():
    given = parse()
    machine = runs.machine()
    rows = []
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as folder:
        scratch = pathlib.Path(folder)
        for model in given.models:
            runs.run([runs.program(), "stage", model, "--format", "synthetic", "--samples", str(BATCH * STEPS_OF_EPOCH), "--data-root", str(scratch),
                      *map(str, TASKS[model])])
        for pair in range(given.pairs):
            rows += [measure(model, pair, scratch) for model in given.models]
    runs.write_results(given.out, "noise-scale", rows, page(rows, given, machine))


if __name__ == "__main__":
    sys.exit(main())
