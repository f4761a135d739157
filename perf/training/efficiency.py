"""What dtrain's own parallelism costs, and how soon it starts; three comparisons, each in turn in one run.

1. 2 ranks x 1 thread against two independent one-rank runs side by side, one per core, each with half the batch: the
   compute of a rank's step is then the same, so the ratio of samples/s is what agreeing costs. Target: at least 0.97.
2. 8 ranks oversubscribed against 2 ranks, same samples and batch: training time per epoch. Target: at most 1.5.
3. From the command to the end of the first step on 2 ranks, beside torchrun. Target: at most a third.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

import runs

sys.path.insert(0, str(runs.PEERS))
import networks  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(prog="perf/efficiency.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mlp", choices=list(networks.RECIPES))
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="of each run; the first is a warm-up")
    parser.add_argument("--batch", type=int, default=64, help="over all ranks; even")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "training")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.epochs < 2 or arguments.batch % 2:
        parser.error("at least one pair, two epochs and an even batch are needed")
    arguments.cores = sorted(os.sched_getaffinity(0))[:2]
    if len(arguments.cores) < 2:
        parser.error("two cores are needed, and this program may use one; start it where it may use more")
    arguments.folder = (arguments.data_root / arguments.dataset).resolve()
    if not (arguments.folder / "dataset.json").exists():
        parser.error(f"{arguments.folder} is not staged; run data/fetch.sh {arguments.dataset}")
    return arguments


def first_step_s(command, folder):
    """Seconds from the command to the end of the first step: the wall time less what the trace shows after it, so
    that all that the trace does not show (the exit) still counts against dtrain."""
    _, wall_s = runs.run(command)
    spans = [event for event in json.loads((folder / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    step_end = max(event["ts"] + event["dur"] for event in spans if event["cat"] == "optimizer")
    last_end = max(event["ts"] + event["dur"] for event in spans)
    return wall_s - (last_end - step_end) * 1e-6


def torchrun_first_step_s(command):
    start = time.time()
    output, _ = runs.run(command)
    return float(re.search(r"first_step_at=([0-9.]+)", output).group(1)) - start


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        measure(arguments, pathlib.Path(scratch))


def measure(arguments, scratch):
    common = ["--model", arguments.model, "--dataset", arguments.folder, "--epochs", arguments.epochs, "--global-batch"]
    two = runs.dtrain_command(2, scratch, "two", *common, arguments.batch)
    halves = [runs.dtrain_command(1, scratch, f"half{core}", *common, arguments.batch // 2, core=core)
              for core in arguments.cores]
    eight = runs.dtrain_command(8, scratch, "eight", *common, arguments.batch, oversubscribe=True)
    one_step = runs.dtrain_command(2, scratch, "first", "--model", arguments.model, "--dataset", arguments.folder,
                                   "--global-batch", arguments.batch, "--limit-steps", 1, "--trace")
    torch_step = runs.peer_command("first_step.py", 2, "--model", arguments.model, "--data", arguments.folder)
    machine = runs.machine()
    print(f"machine: {machine}", flush=True)

    rows = []

    def note(comparison, pair, a, b):
        rows.append({"comparison": comparison, "pair": pair, "a": round(a, 4), "b": round(b, 4),
                     "ratio": round(a / b, 4)})
        print(f"{comparison}, pair {pair}: {a:,.2f} / {b:,.2f} = {a / b:.3f}", flush=True)

    for pair in range(1, arguments.pairs + 1):
        runs.run(two)
        together = runs.dtrain_rate(scratch / "two")
        runs.run_side_by_side(halves)
        note("parallel efficiency", pair, together, sum(runs.dtrain_rate(scratch / f"half{core}") for core in arguments.cores))

        runs.run(eight)
        slow = statistics.median(runs.epochs_table(scratch / "eight")["train_time_s"][1:])
        runs.run(two)
        note("8 ranks over 2", pair, slow, statistics.median(runs.epochs_table(scratch / "two")["train_time_s"][1:]))

        note("first step", pair, first_step_s(one_step, scratch / "first"),
             torchrun_first_step_s(torch_step))

    texts = [runs.relative(command).replace(str(scratch), "SCRATCH").replace(str(arguments.folder), arguments.dataset)
             for command in (two, *halves, eight, one_step, torch_step)]
    write(arguments, machine, texts, rows)


def write(arguments, machine, commands, rows):
    targets = {"parallel efficiency": ("samples/s, 2 ranks over two runs side by side", "at least 0.97"),
               "8 ranks over 2": ("seconds of training per epoch", "at most 1.5"),
               "first step": ("seconds from the command, dtrain over torchrun", "at most 0.33")}
    lines = ["| comparison | what | a | b | a / b: median (range) | target |", "| --- | --- | --- | --- | --- | --- |"]
    for name, (what, target) in targets.items():
        group = [row for row in rows if row["comparison"] == name]
        lines.append(f"| {name} | {what} | {statistics.median(row['a'] for row in group):,.2f} "
                     f"| {statistics.median(row['b'] for row in group):,.2f} "
                     f"| {runs.median_and_range([row['ratio'] for row in group], 3)} | {target} |")
    table = "\n".join(lines)
    runs.write_results(
        arguments.out, f"efficiency-{arguments.model}", rows,
        f"# {arguments.model}: what parallelism costs\n\n`{' '.join(['perf/efficiency.sh', *sys.argv[1:]])}`, "
        f"{arguments.dataset}, global batch {arguments.batch}, fp32, {arguments.pairs} pairs; epochs after the first.\n"
        f"Machine: {machine}.\n\n{table}", [f"machine: {machine}", *commands])


if __name__ == "__main__":
    main()
