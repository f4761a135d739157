"""A step in half precision beside one in fp32 on this machine's CPUs: two ranks of one thread, built-in data, runs in turn. The median step
of each run without its first ones, and how far the losses of the same steps are apart.
"""

import argparse
import pathlib
import re
import statistics
import sys
import tempfile

import h5py
import numpy as np

import runs

MODELS = {"gpt": 16, "vgg11": 64, "resnet18": 64}  # samples of a step
WARM_UP = 2


def parse():
    parser = argparse.ArgumentParser(prog="perf/precision.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=["bf16", "fp16"], default=["bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "precision")
    return parser.parse_args()


def train(model, precision, steps, scratch):
    """The median step in seconds, and the loss of each step."""
    runs.run(runs.dtrain_command(2, scratch, "run", "--model", model, "--dataset", "synthetic", "--global-batch", MODELS[model], "--precision",
                                 precision, "--epochs", 1, "--limit-steps", steps, "--checkpoint-every", "end"))
    with h5py.File(scratch / "run" / "results.h5", "r", locking=False) as results:
        ranks = [rank["steps"][:] for rank in results["ranks"].values()]
    return float(np.median([rows["time_s"][WARM_UP:] for rows in ranks])), np.mean([rows["loss"] for rows in ranks], axis=0)


def measure(model, precision, number, given, scratch):
    sides = ["fp32", precision]
    found = {side: train(model, side, given.steps, scratch) for side in (sides if number % 2 == 0 else sides[::-1])}
    losses = [found[side][1] for side in sides]
    row = {"model": model, "samples": MODELS[model], "precision": precision, "round": number, "fp32_step_s": round(found["fp32"][0], 4),
           "half_step_s": round(found[precision][0], 4), "largest_gap_of_loss": round(float(np.abs(losses[1] / losses[0] - 1).max()), 5)}
    print(row, flush=True)
    return row


def units():
    """What the processor says that it has for half precision."""
    flags = re.search(r"^flags\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return ", ".join(flag for flag in flags[1].split() if re.match(r"amx_|avx512_(bf16|fp16)", flag)) if flags else "unknown"


def page(rows, given, machine):
    lines = ["# Half precision on CPUs", "", f"`perf/precision.sh --rounds {given.rounds} --steps {given.steps}` on {runs.today()}; {machine}; {units()}", "",
             "| model | samples of a step | precision | s of a step in fp32 | in half precision | times faster | losses apart, at most |", "| --- |" + " --- |" * 6]
    for model in given.models:
        for precision in given.precisions:
            mine = [row for row in rows if (row["model"], row["precision"]) == (model, precision)]
            lines.append(f"| {model} | {MODELS[model]} | {precision} | {statistics.median(row['fp32_step_s'] for row in mine):.3f} | "
                         f"{statistics.median(row['half_step_s'] for row in mine):.3f} | "
                         f"{runs.median_and_range([row['fp32_step_s'] / row['half_step_s'] for row in mine])} | "
                         f"{100 * max(row['largest_gap_of_loss'] for row in mine):.2f} % |")
    return "\n".join(lines)


def main():
    given = parse()
    machine = runs.machine()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as folder:
        rows = [measure(model, precision, number, given, pathlib.Path(folder))
                for number in range(given.rounds) for model in given.models for precision in given.precisions]
    runs.write_results(given.out, "precision", rows, page(rows, given, machine))


if __name__ == "__main__":
    sys.exit(main())
