"""Validation accuracy against the time of an emulated machine: four copies, (even) all alike, (slow) one of them computing four times as
long, (links) each on a node of its own, with 1 Gb/s and 5 ms between nodes. Each case is run once and read from its virtual clock.

asgd's server is a fifth rank. Keeps a line per validation of each run beside the table and the picture.
"""

import argparse
import csv
import pathlib
import statistics
import tempfile

import h5py
import matplotlib

import runs

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  # after the choice of the back end

COPIES = 4
STRATEGIES = {
    "ddp": [],
    "local_sgd 4": ["--strategy", "local_sgd", "--sync-period", "4"],
    "local_sgd 16": ["--strategy", "local_sgd", "--sync-period", "16"],
    "local_sgd adaptive": ["--strategy", "local_sgd", "--sync-period", "adaptive"],
    "local_sgd 16, outer": ["--strategy", "local_sgd", "--sync-period", "16", "--outer-optimizer", "nesterov"],
    "easgd 16": ["--strategy", "easgd", "--sync-period", "16"],
    "asgd": ["--strategy", "asgd", "--servers", "1", "--staleness", "4"],
}
MACHINES = ("even", "slow", "links")


def parse():
    parser = argparse.ArgumentParser(prog="perf/strategies.sh", description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--validate-every", default="200steps")
    parser.add_argument("--compute-us", type=float, default=25, help="time of a sample on a rank that is not slow [%(default)s]")
    parser.add_argument("--accuracy", type=float, default=0.97, help="that the times are for [%(default)s]")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "strategies")
    return parser.parse_args()


def emulation(machine, ranks, compute_us):
    text = f"clock = \"virtual\"\ncompute_us_per_sample = {compute_us:g}\n"
    if machine == "slow":
        text += f"[[slow]]\nrank = {COPIES - 1}\nfactor = 4.0\n"
    if machine == "links":
        text += "".join(f"[[node]]\nranks = [{rank}]\n" for rank in range(ranks))
        text += "[[link]]\nlatency_ms = 5\ngbit_per_s = 1\n"
    return text


def train(arguments, machine, strategy, seed, scratch):
    """Of each validation the step, the virtual time of the slowest rank, and the accuracy."""
    ranks = COPIES + (1 if strategy == "asgd" else 0)
    name = f"{machine}-{strategy}-{seed}".replace(" ", "-").replace(",", "")
    file = scratch / f"{name}.toml"
    file.write_text(emulation(machine, ranks, arguments.compute_us))
    command = runs.dtrain_command(
        ranks, scratch, name, "--model", arguments.model, "--dataset", arguments.dataset, "--data-root", arguments.data_root.resolve(),
        "--epochs", arguments.epochs, "--micro-batches", COPIES, "--seed", seed, "--emulate", file, "--validate-every",
        arguments.validate_every, "--checkpoint-every", "end", *STRATEGIES[strategy], oversubscribe=True)
    runs.run(command)
    with h5py.File(scratch / name / "results.h5", "r", locking=False) as results:
        times = {}
        for rank in results["ranks"].values():
            for row in rank["virtual_times"][:]:
                step = int(row["step"])
                times[step] = max(times.get(step, 0.0), float(row["virtual_time_s"]))
        validations = results["validations"][:]
        test = float(results["test"][0]["accuracy"])
    rows = [{"machine": machine, "strategy": strategy, "seed": seed, "step": int(row["step"]), "virtual_time_s": times[int(row["step"])],
             "validation_accuracy": float(row["accuracy"]), "validation_loss": float(row["loss"])} for row in validations]
    return rows, test


def reached(rows, accuracy):
    """The time at which a run first had the accuracy; None where it never had."""
    return next((row["virtual_time_s"] for row in rows if row["validation_accuracy"] >= accuracy), None)


def ratio(part, whole):
    return "-" if part is None or whole is None else f"{whole / part:.2f}"


def main():
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    everything, lines = [], []
    figure, panels = pyplot.subplots(1, len(arguments.machines), figsize=(6 * len(arguments.machines), 4), squeeze=False, layout="constrained")
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        for axes, machine in zip(panels[0], arguments.machines):
            base = None
            for strategy in arguments.strategies:
                trained = [train(arguments, machine, strategy, seed, pathlib.Path(scratch)) for seed in arguments.seeds]
                everything += [row for rows, _ in trained for row in rows]
                all_reached = [reached(rows, arguments.accuracy) for rows, _ in trained]
                time_s = None if None in all_reached else statistics.median(all_reached)
                total_s = statistics.median(rows[-1]["virtual_time_s"] for rows, _ in trained)
                final = [rows[-1]["validation_accuracy"] for rows, _ in trained]
                base = base or (time_s, total_s)
                lines.append(f"| {machine} | {strategy} | {total_s:.2f} | {ratio(total_s, base[1])} | "
                             f"{'never' if time_s is None else f'{time_s:.2f}'} | {ratio(time_s, base[0])} | {statistics.mean(final):.4f} | "
                             f"{min(final):.4f} to {max(final):.4f} | {statistics.mean(test for _, test in trained):.4f} |")
                print(lines[-1], flush=True)
                axes.plot([row["virtual_time_s"] for row in trained[0][0]], [row["validation_accuracy"] for row in trained[0][0]], label=strategy)
            axes.set_title(f"{machine}: {arguments.dataset}, {arguments.model}")
            axes.set_xlabel("virtual time, s")
            axes.set_xscale("log")
            axes.set_ylabel("validation accuracy")
            axes.set_ylim(bottom=0.85)
            axes.legend(fontsize=8)
    name = f"{arguments.model}-{arguments.dataset}-{runs.today()}"
    figure.savefig(arguments.out / f"{name}.png", dpi=80)
    with open(arguments.out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(everything[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(everything)
    first = arguments.strategies[0]
    table = "\n".join([
        f"| machine | strategy | time of all epochs, s | {first}'s over it | time to {arguments.accuracy:g}, s | {first}'s over it "
        "| final validation accuracy, mean | least and most | test accuracy, mean |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", *lines])
    (arguments.out / f"{name}.md").write_text(
        f"# Time to accuracy by virtual clock\n\n{COPIES} copies, {arguments.epochs} epochs, seeds {', '.join(map(str, arguments.seeds))}, "
        f"{arguments.compute_us:g} us a sample; slow: one copy computes 4 times as long; links: 1 Gb/s and 5 ms between all ranks. asgd has its "
        f"server on a fifth rank. Times are medians over the seeds.\n\n{table}\n\n![curves]({name}.png)\n", encoding="utf-8")


if __name__ == "__main__":
    main()
