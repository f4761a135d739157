"""Validation accuracy against the time of an emulated machine: four copies, (even) all alike, (slow) one of them computing four times as
long, (links) each on a node of its own, with 1 Gb/s and 5 ms between nodes. Times are those of a virtual clock, or of real delays.

A part is one strategy on one machine. Its rows are kept as soon as it is done, in SCENARIO-CLOCK.csv, and table and picture are made anew;
parts that the file has already are not run again, so that a long comparison can be made piece by piece. asgd's server is a fifth rank.
"""

import argparse
import csv
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

import h5py
import matplotlib

import runs

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402  # after the choice of the back end

COPIES = 4
PIECES_TO_DEAL = 4 * COPIES
# What a sample takes on one core, and how often the model is validated, so that each run has about 20 validations.
SCENARIOS = {
    "mlp": {"dataset": "mnist", "epochs": 5, "compute_us": 25, "validate_every": 200},
    "cnn": {"dataset": "cifar10", "epochs": 5, "compute_us": 200, "validate_every": 175},
    "nbow": {"dataset": "imdb", "epochs": 5, "compute_us": 66, "validate_every": 88},
}
QUICK = {"dataset": "synthetic", "epochs": 1, "compute_us": 100, "validate_every": 16}
STRATEGIES = {
    "ddp": [],
    "ddp, balanced": ["--balance", "data"],
    "ddp, adaptive batch": ["--adaptive-batch"],
    "local_sgd 4": ["--strategy", "local_sgd", "--sync-period", "4"],
    "local_sgd 16": ["--strategy", "local_sgd", "--sync-period", "16"],
    "local_sgd adaptive": ["--strategy", "local_sgd", "--sync-period", "adaptive"],
    "local_sgd 16, outer": ["--strategy", "local_sgd", "--sync-period", "16", "--outer-optimizer", "nesterov"],
    "easgd 16": ["--strategy", "easgd", "--sync-period", "16"],
    "asgd": ["--strategy", "asgd", "--servers", "1", "--staleness", "4"],
}
# Of the order that a paper found with longer periods and later updates; run where they are named.
OTHER_PERIODS = {
    **{f"local_sgd {steps}": ["--strategy", "local_sgd", "--sync-period", str(steps)] for steps in (64,)},
    **{f"easgd {steps}": ["--strategy", "easgd", "--sync-period", str(steps)] for steps in (1, 4, 64)},
    **{f"asgd, staleness {steps}": ["--strategy", "asgd", "--servers", "1", "--staleness", str(steps)] for steps in (1, 16, 64)},
    **{f"local_sgd 16, late {steps}": ["--strategy", "local_sgd", "--sync-period", "16", "--overlap-steps", str(steps)] for steps in (4, 15)},
    "local_sgd 16, outer, late 4": ["--strategy", "local_sgd", "--sync-period", "16", "--outer-optimizer", "nesterov", "--overlap-steps", "4"],
    "local_sgd 16, mild outer": ["--strategy", "local_sgd", "--sync-period", "16", "--outer-optimizer", "nesterov", "--outer-learning-rate", "0.3"],
}
ALL_STRATEGIES = STRATEGIES | OTHER_PERIODS
MACHINES = ("even", "slow", "links")
SLOWNESS = 4
FIELDS = ("machine", "strategy", "seed", "step", "time_s", "validation_accuracy", "validation_loss", "test_accuracy", "steps_of_rank_0", "steps_so_far")
BELOW_FIRST = 0.01  # that the accuracy to reach is below the first strategy's last one, unless it is given


def parse():
    parser = argparse.ArgumentParser(prog="perf/strategies.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--strategies", nargs="+", choices=list(ALL_STRATEGIES), default=list(STRATEGIES), metavar="NAME",
                        help=f"of: {'; '.join(ALL_STRATEGIES)} [up to asgd]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--clock", choices=("virtual", "real"), default="virtual")
    parser.add_argument("--epochs", type=int, help="instead of the scenario's")
    parser.add_argument("--global-batch", type=int, help="instead of the model's; small pieces cost time of a real clock")
    parser.add_argument("--accuracy", type=float, help=f"that the times are for [ddp's last one on the even machine, less {BELOW_FIRST}]")
    parser.add_argument("--limit-min", type=float, help="begin no run after so many minutes")
    parser.add_argument("--again", action="store_true", help="run parts that the files have already, too")
    parser.add_argument("--quick", action="store_true", help="short runs on synthetic data, of one seed: does it run? No figures, nothing kept")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "strategies")
    arguments = parser.parse_args()
    arguments.command = shlex.join(["perf/strategies.sh", *sys.argv[1:]])
    for scenario in arguments.scenarios:
        dataset = SCENARIOS[scenario]["dataset"]
        if not arguments.quick and not (arguments.data_root / dataset / "dataset.json").exists():
            parser.error(f"{arguments.data_root / dataset} is not staged; run data/fetch.sh {dataset}")
    if arguments.quick:
        arguments.seeds = arguments.seeds[:1]
    return arguments


def emulation(machine, ranks, clock, compute_us):
    text = f"clock = \"{clock}\"\n"
    if clock == "virtual":
        text += f"compute_us_per_sample = {compute_us:g}\n"
    if machine == "slow":
        text += f"[[slow]]\nrank = {COPIES - 1}\nfactor = {SLOWNESS}.0\n"
    if machine == "links":
        text += "".join(f"[[node]]\nranks = [{rank}]\n" for rank in range(ranks))
        text += "[[link]]\nlatency_ms = 5\ngbit_per_s = 1\n"
    return text


def times_by_step(results, clock):
    """For each step the time of the rank that was done with it last."""
    times = {}
    for rank in results["ranks"].values():
        passed_s = 0.0
        for row in rank["virtual_times" if clock == "virtual" else "steps"][:]:
            passed_s = float(row["virtual_time_s"]) if clock == "virtual" else passed_s + float(row["time_s"])
            step = int(row["step"])
            times[step] = max(times.get(step, 0.0), passed_s)
    return times


def train(arguments, scenario, machine, strategy, seed, scratch):
    """A row for each validation."""
    case = QUICK if arguments.quick else SCENARIOS[scenario]
    ranks = COPIES + (1 if strategy.startswith("asgd") else 0)
    name = f"{scenario}-{machine}-{strategy}-{seed}".replace(" ", "-").replace(",", "")
    emulated = []
    if arguments.clock == "virtual" or machine != "even":  # an even machine of real delays is this one
        (scratch / f"{name}.toml").write_text(emulation(machine, ranks, arguments.clock, case["compute_us"]))
        emulated = ["--emulate", scratch / f"{name}.toml"]
    batch = ["--global-batch", arguments.global_batch] if arguments.global_batch else []
    pieces = PIECES_TO_DEAL if strategy == "ddp, balanced" else COPIES
    runs.run(runs.dtrain_command(
        ranks, scratch, name, "--model", scenario, "--dataset", case["dataset"], "--data-root", arguments.data_root.resolve(),
        "--epochs", arguments.epochs or case["epochs"], "--micro-batches", pieces, "--seed", seed, *emulated, *batch, "--validate-every",
        f"{case['validate_every']}steps", "--checkpoint-every", "end", *ALL_STRATEGIES[strategy], oversubscribe=True))
    with h5py.File(scratch / name / "results.h5", "r", locking=False) as results:
        times = times_by_step(results, arguments.clock)
        own_steps = results["ranks/00000/steps"]["step"]
        last = {"test_accuracy": float(results["test"][0]["accuracy"]), "steps_of_rank_0": len(own_steps)}
        return [{"machine": machine, "strategy": strategy, "seed": seed, "step": int(row["step"]), "time_s": round(times[int(row["step"])], 6),
                 "validation_accuracy": float(row["accuracy"]), "validation_loss": float(row["loss"]), **last, "steps_so_far": int((own_steps <= row["step"]).sum())}
                for row in results["validations"][:]]


def kept_rows(path):
    """Rows of older programs lack steps_so_far."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: value if key in ("machine", "strategy") else int(value) if key in ("seed", "step", "steps_of_rank_0", "steps_so_far") else float(value)
                 for key, value in row.items() if value} for row in csv.DictReader(file)]


def write_rows(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def by_seed(rows, machine, strategy):
    """The rows of each run of a part, in the order of their steps."""
    chosen = [row for row in rows if row["machine"] == machine and row["strategy"] == strategy]
    return [sorted((row for row in chosen if row["seed"] == seed), key=lambda row: row["step"])
            for seed in sorted({row["seed"] for row in chosen})]


def last_accuracy(part):
    return statistics.mean(run[-1]["validation_accuracy"] for run in part)


def accuracy_to_reach(arguments, rows):
    """None: there is nothing to derive it from."""
    first = by_seed(rows, "even", "ddp")
    return arguments.accuracy or (last_accuracy(first) - BELOW_FIRST if first else None)


def first_with(part, accuracy, key="time_s"):
    """The median over the runs of a value of the validation that first had the accuracy; None where one run never had."""
    reached = [next((row.get(key) for row in run if row["validation_accuracy"] >= accuracy), None) for run in part]
    return None if None in reached else statistics.median(reached)


def time_of_all(part):
    return statistics.median(run[-1]["time_s"] for run in part) if part else None


def possible_gain(rows, machine, strategy):
    """By how much a strategy can be faster than ddp, of which it spares the waits; None: by nothing that a formula knows."""
    waits, computes = (time_of_all(by_seed(rows, of, "ddp")) for of in (machine, "even"))
    steps = ALL_STRATEGIES[strategy][3:4] if "--sync-period" in ALL_STRATEGIES[strategy] else []
    if machine == "links" and waits and computes and steps and steps[0].isdigit():  # the same messages after so many steps
        return waits / (computes + (waits - computes) / int(steps[0]))
    if machine == "slow" and (strategy == "ddp, balanced" or strategy.startswith("asgd")):  # all copies compute all the time
        return COPIES - 1 + 1 / SLOWNESS
    return None


def table(rows, target):
    """Of all parts that are there, in the order of MACHINES and ALL_STRATEGIES."""
    goal = "-" if target is None else f"{target:.4f}"
    lines = [f"| machine | strategy | seeds | steps of rank 0 | time of all epochs, s | x faster than ddp | of the possible, % | time to {goal}, s | x faster than ddp | steps of rank 0 to it "
             "| last validation accuracy: mean | least and most | below ddp, points | test accuracy, mean |", "| --- |" + " --- |" * 13]
    for machine in MACHINES:
        base = by_seed(rows, machine, "ddp")
        for strategy in ALL_STRATEGIES:
            part = by_seed(rows, machine, strategy)
            if not part:
                continue
            last = [run[-1]["validation_accuracy"] for run in part]
            of_all = [time_of_all(part), time_of_all(base)]
            possible = possible_gain(rows, machine, strategy)
            share = f"{100 * of_all[1] / of_all[0] / possible:.0f}" if possible and base else "-"
            to_goal = [first_with(runs_of, target) if runs_of and target is not None else None for runs_of in (part, base)]
            reached = "-" if target is None else "never" if to_goal[0] is None else f"{to_goal[0]:.2f}"
            steps = first_with(part, target, "steps_so_far") if target is not None else None
            behind = f"{100 * (last_accuracy(base) - last_accuracy(part)):+.2f}" if base else "-"
            lines.append(f"| {machine} | {strategy} | {len(part)} | {statistics.median(run[-1]['steps_of_rank_0'] for run in part):.0f} | {of_all[0]:.2f} | {ratio(of_all)} | "
                         f"{share} | {reached} | {ratio(to_goal)} | {'-' if steps is None else f'{steps:.0f}'} | {statistics.mean(last):.4f} | "
                         f"{min(last):.4f} to {max(last):.4f} | {behind} | {statistics.mean(run[-1]['test_accuracy'] for run in part):.4f} |")
    return "\n".join(lines)


def ratio(part_and_base):
    part, base = part_and_base
    return "-" if part is None or base is None or part == 0 else f"{base / part:.2f}"


def best_so_far(run):
    best = 0.0
    for row in run:
        best = max(best, row["validation_accuracy"])
        yield best


def draw(path, title, rows, target):
    """A panel for each machine; of each strategy the run of the first seed, the best accuracy so far, and its last step as a dot."""
    machines = [machine for machine in MACHINES if any(row["machine"] == machine for row in rows)]
    figure, panels = pyplot.subplots(1, len(machines), figsize=(4.6 * len(machines) + 0.6, 4.6), squeeze=False, layout="constrained", sharey=True)
    highest = max(row["validation_accuracy"] for row in rows)
    least = min(row["validation_accuracy"] for of in MACHINES for strategy in ALL_STRATEGIES for run in by_seed(rows, of, strategy) for row in run[-1:])
    named = {}
    for axes, machine in zip(panels[0], machines):
        for number, strategy in enumerate(ALL_STRATEGIES):
            part = by_seed(rows, machine, strategy)
            if not part:
                continue
            style = ["-", "--", ":"][number // 10] if not strategy.startswith("ddp") else "-"
            times, best = [row["time_s"] for row in part[0]], list(best_so_far(part[0]))
            line, = axes.plot(times, best, label=strategy, linewidth=2.6 if strategy == "ddp" else 1.5, color=f"C{number % 10}",
                              linestyle=style, drawstyle="steps-post")
            axes.plot(times[-1:], best[-1:], marker="o", markersize=4, color=line.get_color())
            named[strategy] = line
        if target is not None:
            axes.axhline(target, color="grey", linewidth=0.8)
            axes.set_ylim(max(0.0, min(target - 0.06, least - 0.006)), highest + 0.006)
        axes.set_title(f"{title}: {machine}")
        axes.set_xlabel("time of the emulated machine, s")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.grid(which="major", color="#e4e4e4")
    panels[0][0].set_ylabel("best validation accuracy so far")
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def describe(arguments, scenario, name, rows):
    """Writes the page and the picture of a scenario from its rows."""
    target = accuracy_to_reach(arguments, rows)
    case = QUICK if arguments.quick else SCENARIOS[scenario]
    clock = f"by a virtual clock, {case['compute_us']:g} us a sample" if arguments.clock == "virtual" else f"of real delays; {runs.machine()}"
    draw(arguments.out / f"{name}.png", f"{scenario}, {case['dataset']}", rows, target)
    text = table(rows, target)
    (arguments.out / f"{name}.md").write_text(
        f"# Time to accuracy: {scenario} on {case['dataset']}\n\n{COPIES} copies, epochs: {arguments.epochs or case['epochs']}; the model's recipe "
        f"without augmentation; times {clock}. slow: one copy computes {SLOWNESS} times as long; links: 1 Gb/s and 5 ms between all ranks. asgd has its "
        f"server on a fifth rank; balanced: {PIECES_TO_DEAL} micro-batches, of all others {COPIES}. Times are medians over the seeds, curves of the "
        f"first. Of the possible: on links, ddp's messages after each H-th step alone; on slow, all copies compute all the time. Last part: `{arguments.command}` on {runs.today()}; rows in [{name}.csv]({name}.csv).\n\n{text}\n\n"
        f"![curves]({name}.png)\n", encoding="utf-8")
    return text


def compare(arguments, scenario, begun_s):
    name = f"{scenario}-{arguments.clock}" + (f"-epochs-{arguments.epochs}" if arguments.epochs else "")
    name += f"-batch-{arguments.global_batch}" if arguments.global_batch else ""
    path = arguments.out / f"{name}.csv"
    rows = kept_rows(path)
    for machine in arguments.machines:
        for strategy in arguments.strategies:
            is_new = False
            for seed in arguments.seeds:
                mine = [row for row in rows if (row["machine"], row["strategy"], row["seed"]) == (machine, strategy, seed)]
                if mine and not arguments.again:
                    continue
                if arguments.limit_min and time.monotonic() - begun_s > 60 * arguments.limit_min:
                    print("perf: the time is up; the same command goes on")
                    return
                with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
                    found = train(arguments, scenario, machine, strategy, seed, pathlib.Path(scratch))
                rows = [row for row in rows if row not in mine] + found
                write_rows(path, rows)
                is_new = True
                print(f"{scenario}, {machine}, {strategy}, seed {seed}: {found[-1]['time_s']:.2f} s, accuracy "
                      f"{found[-1]['validation_accuracy']:.4f}; {(time.monotonic() - begun_s) / 60:.1f} min so far", flush=True)
            if is_new:
                describe(arguments, scenario, name, rows)
    print(f"\n{describe(arguments, scenario, name, rows)}\n")


def main():
    arguments = parse()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        if arguments.quick:
            arguments.out = pathlib.Path(scratch)
        arguments.out.mkdir(parents=True, exist_ok=True)
        for scenario in arguments.scenarios:
            compare(arguments, scenario, begun_s)


if __name__ == "__main__":
    main()
