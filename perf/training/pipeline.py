"""What pipelines cost and save, measured in turn in one run; each part leaves a table and its raw figures in
perf/results/pipeline.

1. Idle time of each schedule with layers that sleep, beside the formula.
2. samples/s of a vgg11 pipeline on 2 ranks beside one rank that runs it whole, and whole but micro-batched.
3. Layer-wise on 2 and 4 ranks beside one rank: the slow-down, and where the time goes.
4. Peak activation memory of 1f1b and gpipe, beside the estimate of --dry-run.
5. A memory limit that one rank does not meet and four ranks do.
"""

import argparse
import csv
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import h5py

import runs

SMALL_VGG = ["--model", "vgg11", "--model-option", "width=16", "--model-option", "hidden=512"]


def parse():
    parser = argparse.ArgumentParser(prog="perf/pipeline.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", type=int, choices=range(1, 6), default=[1, 2, 3, 4, 5])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of each vgg11 run; the first is a warm-up")
    parser.add_argument("--build", type=pathlib.Path, default=runs.TOP / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "pipeline")
    return parser.parse_args()


def command_of(ranks, folder, name, *options):
    return runs.dtrain_command(ranks, folder, name, *options, oversubscribe=ranks > 2)


def train(ranks, folder, name, *options):
    """The phases of all ranks' steps after the first, by rank, and the run's folder."""
    runs.run(command_of(ranks, folder, name, *options))
    with h5py.File(folder / name / "results.h5", "r", locking=False) as file:
        return {int(rank): group["steps"][1:] for rank, group in file["ranks"].items()}


def step_s(steps):
    """Median over the steps of the slowest rank's time."""
    return statistics.median(max(rank["time_s"][i] for rank in steps.values()) for i in range(len(steps[0])))


def share(steps, phase):
    """Of all ranks' time."""
    return float(sum(rank[phase].sum() for rank in steps.values()) / sum(rank["time_s"].sum() for rank in steps.values()))


def peak_activations(folder):
    """Per rank: bytes measured and estimated."""
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        found = []
        for rank in file["ranks"].values():
            details = [event["detail"].decode() for event in rank["events"][:] if event["kind"] == b"activation_memory"]
            found.append(tuple(map(int, re.search(r"at most (\d+) bytes, estimated (\d+)", details[0]).groups())))
        return found


def idle(arguments, rows):
    lines = ["| schedule | ranks | micro-batches | idle measured | simulated | formula | more than simulated, points |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for ranks in (2, 4):
        command = ["mpirun", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-np", str(ranks),
                   str(arguments.build / "perf" / "parallel" / "pipeline_idle")]
        output, _ = runs.run(command)
        for row in csv.DictReader(output.splitlines()):
            measured, simulated, formula = (float(row[name]) for name in ("idle", "simulated", "formula"))
            rows.append({"part": "idle", **row})
            lines.append(f"| {row['schedule']} | {ranks} | {row['micro_batches']} | {measured:.3f} | {simulated:.3f} "
                         f"| {formula:.3f} | {100 * (measured - simulated):.1f} |")
    return "## Idle time with layers that sleep\n\n`mpirun -np P pipeline_idle`: 20 ms forward and 40 ms back per stage\n\n" + "\n".join(lines)


def speed(arguments, folder, rows):
    def pipeline(micro_batches, *options):
        return (2, "--mesh", "pipe=2", "--micro-batches", micro_batches, *options)

    cases = {"one rank, whole": (1, "--micro-batches", 1), "one rank, 16 micro-batches": (1, "--micro-batches", 16)}
    for micro_batches in (4, 8, 16):
        cases[f"1f1b on 2 ranks, {micro_batches} micro-batches"] = pipeline(micro_batches)
        cases[f"1f1b on 2 ranks, {micro_batches} micro-batches, stages by measured time"] = pipeline(micro_batches, "--balance", "dynamic")
        cases[f"eager-1f1b on 2 ranks, {micro_batches} micro-batches"] = pipeline(micro_batches, "--pipeline", "eager-1f1b")
    cases["gpipe on 2 ranks, 16 micro-batches"] = pipeline(16, "--pipeline", "gpipe")
    common = ["--model", "vgg11", "--global-batch", 256, "--epochs", 1, "--limit-steps", arguments.steps]
    rates, shares = {case: [] for case in cases}, {}
    for pair in range(arguments.pairs):
        for case, (ranks, *options) in cases.items():
            steps = train(ranks, folder, "speed", *common, *options)
            rates[case].append(256 / step_s(steps))
            shares[case] = share(steps, "pipeline_idle_time_s")
            rows.append({"part": "speed", "case": case, "pair": pair, "samples_per_s": rates[case][-1],
                         "idle": shares[case]})
            print(case, f"{rates[case][-1]:.1f} samples/s, idle {shares[case]:.3f}", flush=True)
    best = [max(pair) for pair in zip(rates["one rank, whole"], rates["one rank, 16 micro-batches"])]
    lines = ["| case | samples/s: median (range) | over the faster of one rank | idle share |", "| --- | --- | --- | --- |"]
    for case, values in rates.items():
        ratios = [value / other for value, other in zip(values, best)]
        lines.append(f"| {case} | {runs.median_and_range(values, 1)} | {runs.median_and_range(ratios)} | {shares[case]:.3f} |")
    words = runs.relative(["./dtrain", *map(str, common)])
    return f"## vgg11, global batch 256 (aim 1.5)\n\n`{words}`, {arguments.pairs} rounds\n\n" + "\n".join(lines)


def layerwise(arguments, folder, rows):
    lines = ["| model | ranks | ms per step: median (range) | over one rank | idle share | MB sent per step |",
             "| --- | --- | --- | --- | --- | --- |"]
    for model, options in {"mlp": ["--model", "mlp", "--global-batch", 512], "vgg11, narrow": [*SMALL_VGG, "--global-batch", 64]}.items():
        times, last, sent = {1: [], 2: [], 4: []}, {}, {}
        for _ in range(arguments.pairs):
            for ranks in times:
                mesh = ["--mesh", f"pipe={ranks}", "--pipeline", "layerwise"] if ranks > 1 else []
                steps = train(ranks, folder, "layerwise", *options, *mesh, "--micro-batches", 4, "--epochs", 1, "--limit-steps", 12)
                times[ranks].append(1000 * step_s(steps))
                last[ranks] = share(steps, "pipeline_idle_time_s")
                with h5py.File(folder / "layerwise" / "results.h5", "r", locking=False) as file:
                    sent[ranks] = sum(int(rank["epochs"]["bytes_sent"].sum()) for rank in file["ranks"].values()) / 12e6
        for ranks, values in times.items():
            ratios = [value / one for value, one in zip(values, times[1])]
            rows.append({"part": "layerwise", "case": model, "ranks": ranks, "ms": statistics.median(values), "idle": last[ranks]})
            lines.append(f"| {model} | {ranks} | {runs.median_and_range(values)} | {runs.median_and_range(ratios)} | {last[ranks]:.3f} "
                         f"| {sent[ranks]:.2f} |")
    return "## Layer-wise: one stage at work at a time\n\n" + "\n".join(lines)


def memory(arguments, folder, rows):
    lines = ["| schedule | rank | peak activations, MiB | estimated, MiB |", "| --- | --- | --- | --- |"]
    for schedule in ("gpipe", "1f1b"):
        for again in ("none", "full"):
            train(4, folder, "memory", *SMALL_VGG, "--global-batch", 256, "--micro-batches", 16, "--epochs", 1, "--limit-steps", 2,
                  "--mesh", "pipe=4", "--pipeline", schedule, "--recompute", again)
            for rank, (measured, estimated) in enumerate(peak_activations(folder / "memory")):
                rows.append({"part": "memory", "case": f"{schedule}, recompute {again}", "ranks": rank, "bytes": measured,
                             "estimated": estimated})
                lines.append(f"| {schedule}, recompute {again} | {rank} | {measured / 2**20:.1f} | {estimated / 2**20:.1f} |")
    return "## Peak activation memory, narrow vgg11 on 4 ranks, 16 micro-batches of 16\n\n" + "\n".join(lines)


def limit(arguments, folder, rows):
    options = [*SMALL_VGG, "--global-batch", 256, "--epochs", 1, "--limit-steps", 2, "--memory-limit", "96MiB"]
    done = subprocess.run(command_of(1, folder, "limit", *options, "--micro-batches", 1), cwd=runs.TOP, env=runs.environment(),
                          text=True, capture_output=True, timeout=300)
    said = next((line for line in done.stderr.splitlines() if line.startswith("dtrain:")), "")
    if done.returncode == 0:
        sys.exit("perf: one rank met the limit")
    train(4, folder, "limit", *options, "--mesh", "pipe=4", "--micro-batches", 16)
    peaks = [measured / 2**20 for measured, _ in peak_activations(folder / "limit")]
    rows.append({"part": "limit", "case": said, "bytes": int(max(peaks) * 2**20)})
    return ("## A limit of 96 MiB per rank, narrow vgg11, global batch 256\n\n"
            f"One rank ends with exit code {done.returncode}: `{said}`.\n\nFour ranks train it; peak activations by rank: "
            + ", ".join(f"{peak:.1f} MiB" for peak in peaks) + ".")


def write(arguments, part, rows, page):
    runs.write_results(arguments.out, part, rows, f"`perf/pipeline.sh {' '.join(sys.argv[1:])}`. Machine: {runs.machine()}.\n\n{page}",
                       [f"machine: {runs.machine()}"])


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as text:
        folder = pathlib.Path(text)
        parts = {1: ("idle", lambda rows: idle(arguments, rows)), 2: ("speed", lambda rows: speed(arguments, folder, rows)),
                 3: ("layerwise", lambda rows: layerwise(arguments, folder, rows)),
                 4: ("memory", lambda rows: memory(arguments, folder, rows)),
                 5: ("limit", lambda rows: limit(arguments, folder, rows))}
        for number in arguments.parts:
            rows = []
            name, part = parts[number]
            write(arguments, name, rows, part(rows))


if __name__ == "__main__":
    main()
