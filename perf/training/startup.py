"""How a start grows with the number of ranks, all on this machine.

From the command to the end of the first step of mlp on synthetic data, and of that the seconds that it takes to load the program
(--version) and to start MPI and find out who is where (topology). Ranks beyond the cores wait for one another's processor time, so
processor seconds per rank are beside the wall's. Messages: sent by each rank in a run of one step, from MPI's start to its end.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import tempfile

import runs

sys.path.insert(0, str(runs.TOP / "tests/support"))
from sent_messages import FIRST_STEP, sent_messages  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(prog="perf/startup.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf/results/startup")
    return parser.parse_args()


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(ranks, *options):
    """Wall seconds, and processor seconds per rank."""
    command = [str(runs.TOP / "tests/support/mpirun.sh"), str(ranks), runs.program(), *map(str, options)]
    before = processor_s()
    _, wall_s = runs.run(command)
    return wall_s, (processor_s() - before) / ranks


def after_first_step_s(folder):
    """What the trace shows after the first step; the exit, which it does not show, counts against the start."""
    spans = [event for event in json.loads((folder / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    step_end = max(event["ts"] + event["dur"] for event in spans if event["cat"] == "optimizer")
    return (max(event["ts"] + event["dur"] for event in spans) - step_end) * 1e-6


def measure(ranks, scratch, round_):
    row = {"ranks": ranks, "round": round_}
    for name, options in (("load", ["--version"]), ("topology", ["topology"]),
                          ("first_step", [*FIRST_STEP, "--threads", 1, "--trace", "--output", scratch, "--name", "first"])):
        wall_s, each_s = timed(ranks, *options)
        if name == "first_step":
            wall_s -= after_first_step_s(scratch / "first")
        row |= {f"{name}_s": round(wall_s, 3), f"{name}_processor_s_per_rank": round(each_s, 3)}
    print(row, flush=True)
    return row


def table(rows, messages):
    lines = ["| ranks | s to the end of the first step: median (range) | of these to load the program | to load it, start MPI and know the "
             "nodes | processor s per rank: load · topology · first step | messages sent: busiest rank · mean | to others, at most |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for ranks, found in messages.items():
        group = [row for row in rows if row["ranks"] == ranks]
        medians = [statistics.median(row[f"{name}_processor_s_per_rank"] for row in group) for name in ("load", "topology", "first_step")]
        seconds = [runs.median_and_range([row[f"{name}_s"] for row in group]) for name in ("first_step", "load", "topology")]
        lines.append(f"| {ranks} | {' | '.join(seconds)} | {' · '.join(f'{value:.2f}' for value in medians)} "
                     f"| {max(found)[0]:,} · {statistics.mean(sent for sent, _ in found):,.0f} | {max(others for _, others in found)} |")
    return "\n".join(lines)


def main():
    arguments = parse()
    machine = runs.machine()
    print(f"machine: {machine}", flush=True)
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        scratch = pathlib.Path(scratch)
        messages = {ranks: sent_messages(runs.program(), ranks, *FIRST_STEP, cwd=scratch) for ranks in arguments.ranks}
        rows = []
        for round_ in range(1, arguments.rounds + 1):
            rows += [measure(ranks, scratch, round_) for ranks in arguments.ranks]
            write(arguments, machine, rows, table(rows, messages))  # what is there, should the next round be interrupted


def write(arguments, machine, rows, text):
    runs.write_results(
        arguments.out, "startup", rows,
        f"# What a start costs\n\n`{' '.join(['perf/startup.sh', *sys.argv[1:]])}`: mlp on synthetic data, all ranks on one machine, "
        f"{rows[-1]['round']} rounds.\nMachine: {machine}.\n\n{text}", [f"machine: {machine}"])


if __name__ == "__main__":
    main()
