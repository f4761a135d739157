"""What each mesh costs on four ranks, measured in turn in one run; each part leaves a table and its raw figures in
perf/results/meshes.

1. Time per step of each mesh for mlp, vgg11 and gpt (small sizes), and what all ranks send, beside the formula of --dry-run.
2. gpt (char) on two ranks: tensor=2 beside one rank and data=2, samples/s and memory.
"""

import argparse
import pathlib
import re
import statistics
import sys
import tempfile

import h5py

import runs

MESHES = ["data=4", "pipe=4", "tensor=4", "data=2,pipe=2", "data=2,tensor=2", "pipe=2,tensor=2"]
MODELS = {
    "mlp": ["--model", "mlp", "--global-batch", 512],
    "vgg11, narrow": ["--model", "vgg11", "--model-option", "width=16", "--model-option", "hidden=512", "--global-batch", 64],
    "gpt, small": ["--model", "gpt", "--model-option", "layers=4", "--model-option", "heads=4", "--model-option", "width=128",
                   "--model-option", "block=64", "--global-batch", 32],
}
CHAR = ["--model", "gpt", "--global-batch", 16]
CONTROL = 80  # bytes of the message that ends each step


def parse():
    parser = argparse.ArgumentParser(prog="perf/meshes.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12, help="of each run; the first is a warm-up")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "meshes")
    return parser.parse_args()


def train(ranks, folder, steps, *options):
    """Seconds per step (median of the slowest rank's), and the run's results."""
    runs.run(runs.dtrain_command(ranks, folder, "mesh", *options, "--epochs", 1, "--limit-steps", steps,
                                 oversubscribe=ranks > 2))
    with h5py.File(folder / "mesh" / "results.h5", "r", locking=False) as file:
        all_ranks = list(file["ranks"].values())
        times = [rank["steps"]["time_s"][1:] for rank in all_ranks]
        sent = sum(int(rank["epochs"]["bytes_sent"].sum()) for rank in all_ranks) / steps
        memory = [event["detail"].decode() for rank in all_ranks for event in rank["events"][:]
                  if event["kind"] == b"activation_memory"]
    return statistics.median(max(step) for step in zip(*times)), sent, memory


def formula(mesh, *options):
    """Bytes that all ranks send in a step by --dry-run's figures, without what evaluation sends."""
    text, _ = runs.run([runs.program(), "--dry-run", "--cluster", "1x4", "--mesh", mesh, *map(str, options)])
    axes = sum(int(found) for found in re.findall(r"^sent per step by all ranks, .*: (\d+) bytes", text, re.M))
    return axes + 4 * CONTROL * 2 * 3 // 4


def meshes(arguments, folder, rows):
    lines = ["| model | mesh | ms per step: median (range) | over data=4 | MB sent per step, counted | formula |",
             "| --- | --- | --- | --- | --- | --- |"]
    for model, options in MODELS.items():
        common = [*options, "--micro-batches", 16]
        times = {mesh: [] for mesh in MESHES}
        sent = {}
        for pair in range(arguments.pairs):
            for mesh in MESHES:
                seconds, sent[mesh], _ = train(4, folder, arguments.steps, *common, "--mesh", mesh)
                times[mesh].append(1000 * seconds)
                rows.append({"part": "meshes", "case": model, "mesh": mesh, "pair": pair, "ms": times[mesh][-1],
                             "bytes": int(sent[mesh])})
        for mesh, values in times.items():
            ratios = [value / other for value, other in zip(values, times["data=4"])]
            expected = formula(mesh, *common)
            lines.append(f"| {model} | {mesh} | {runs.median_and_range(values, 1)} | {runs.median_and_range(ratios)} "
                         f"| {sent[mesh] / 1e6:.3f} | {expected / 1e6:.3f} |")
            print(lines[-1], flush=True)
    return "## Meshes of four ranks\n\n" + "\n".join(lines)


def char(arguments, folder, rows):
    cases = {"one rank": (1, "--micro-batches", 1), "data=2": (2, "--mesh", "data=2"), "tensor=2": (2, "--mesh", "tensor=2")}
    rates, memory = {case: [] for case in cases}, {}
    for pair in range(arguments.pairs):
        for case, (ranks, *options) in cases.items():
            seconds, _, said = train(ranks, folder, 4, *CHAR, *options)
            rates[case].append(16 / seconds)
            memory[case] = re.search(r"at most (\d+) bytes, estimated (\d+)", said[0]).groups()
            rows.append({"part": "char", "case": case, "pair": pair, "samples_per_s": rates[case][-1]})
            print(case, f"{rates[case][-1]:.2f} samples/s", flush=True)
    lines = ["| case | samples/s: median (range) | over one rank | parameters of a rank, MiB | activations, MiB: at most | estimated |",
             "| --- | --- | --- | --- | --- | --- |"]
    for case, values in rates.items():
        ratios = [value / other for value, other in zip(values, rates["one rank"])]
        mesh = case if "=" in case else "data=1"
        text, _ = runs.run([runs.program(), "--dry-run", "--cluster", f"1x{cases[case][0]}", "--mesh", mesh, *map(str, CHAR)])
        held = re.search(r"parameters ([\d.]+) MiB", text).group(1)
        most, estimated = (int(figure) / 2**20 for figure in memory[case])
        lines.append(f"| {case} | {runs.median_and_range(values)} | {runs.median_and_range(ratios)} | {held} "
                     f"| {most:.0f} | {estimated:.0f} |")
    return f"## gpt (char), global batch 16\n\n`{runs.relative(['./dtrain', *map(str, CHAR)])}`\n\n" + "\n".join(lines)


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as text:
        for number in arguments.parts:
            name, part = {1: ("meshes", meshes), 2: ("char", char)}[number]
            rows = []
            page = part(arguments, pathlib.Path(text), rows)
            runs.write_results(arguments.out, name, rows, f"`perf/meshes.sh {' '.join(sys.argv[1:])}`. Machine: {runs.machine()}.\n\n{page}",
                               [f"machine: {runs.machine()}"])


if __name__ == "__main__":
    main()
