"""The same training on 1, 2 and 4 ranks at equal --micro-batches: accuracies as a table, loss curves on one picture.

Keeps a repacked results.h5 of each run (every 25th step recorded) beside the picture. Ends with 1 when an accuracy is missed.
"""

import argparse
import pathlib
import sys
import tempfile

import h5py
import matplotlib
import numpy

import runs

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  # after the choice of the back end

LEAST_ACCURACY = {"mnist": 0.975, "fashion-mnist": 0.87}
RANKS = (1, 2, 4)


def parse():
    parser = argparse.ArgumentParser(prog="perf/curves.sh", description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(LEAST_ACCURACY))
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--record-steps", type=int, default=25)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "curves")
    arguments = parser.parse_args()
    for dataset in arguments.datasets:
        if not (arguments.data_root / dataset / "dataset.json").exists():
            parser.error(f"{arguments.data_root / dataset} is not staged; run data/fetch.sh {dataset}")
    return arguments


def loss_curve(path):
    """Steps, and the mean loss of each over all ranks: every rank's own mean, weighted by its samples."""
    sums, weights = {}, {}
    with h5py.File(path, "r", locking=False) as file:
        for group in file["ranks"].values():
            for row in group["steps"][:]:
                if row["weight"] > 0:
                    step = int(row["step"])
                    sums[step] = sums.get(step, 0.0) + row["loss"] * row["weight"]
                    weights[step] = weights.get(step, 0.0) + row["weight"]
    steps = sorted(sums)
    return numpy.array(steps), numpy.array([sums[step] / weights[step] for step in steps])


def keep(results, kept):
    """A repacked copy: the same groups, tables and attributes, compressed, without room to grow or folders of
    this machine."""
    with h5py.File(results, "r", locking=False) as source, h5py.File(kept, "w", libver="earliest") as copy:
        copy.attrs.update(source.attrs)
        for name in ("command_line", "config"):
            text = source.attrs[name]
            text = text.decode() if isinstance(text, bytes) else str(text)
            copy.attrs[name] = numpy.bytes_(text.replace(f"{runs.TOP}/", "").replace(f"{results.parents[1]}", "runs"))

        def repack(name, item):
            if isinstance(item, h5py.Group):
                copied = copy.require_group(name)
            elif item.size:
                copied = copy.create_dataset(name, data=item[:], chunks=item.shape, compression="gzip", shuffle=True)
            else:
                copied = copy.create_dataset(name, shape=item.shape, dtype=item.dtype)
            copied.attrs.update(item.attrs)

        source.visititems(repack)


def train(arguments, dataset, scratch):
    """Runs it on each number of ranks; returns the table's lines and the curves."""
    lines, curves = [], {}
    for ranks in RANKS:
        name = f"{dataset}-{ranks}-ranks"
        command = runs.dtrain_command(
            ranks, scratch, name, "--model", "mlp", "--dataset", dataset, "--data-root", arguments.data_root.resolve(),
            "--epochs", arguments.epochs, "--micro-batches", 4, "--seed", 1, "--record-steps", arguments.record_steps,
            oversubscribe=ranks > 2)
        _, wall_s = runs.run(command)
        results = scratch / name / "results.h5"
        kept = arguments.out / f"{name}.h5"
        keep(results, kept)
        last = runs.epochs_table(scratch / name)[-1]
        with h5py.File(results, "r", locking=False) as file:
            test_accuracy = float(file["test"][0]["accuracy"])
        curves[ranks] = loss_curve(results)
        lines.append({"dataset": dataset, "ranks": ranks, "train_loss": float(last["train_loss"]),
                      "validation_accuracy": float(last["validation_accuracy"]), "test_accuracy": test_accuracy,
                      "wall_s": wall_s, "size_kb": kept.stat().st_size / 1024})
        print(f"{name}: validation {last['validation_accuracy']:.4f}, test {test_accuracy:.4f}, {wall_s:.1f} s, "
              f"{kept.name} {kept.stat().st_size / 1024:.0f} KiB", flush=True)
    return lines, curves


def draw(axes, dataset, curves):
    """Returns per number of ranks the largest difference from one rank's curve."""
    one_steps, one_losses = curves[1]
    differences = {}
    for (ranks, (steps, losses)), width in zip(curves.items(), (4.0, 2.0, 0.8)):
        if not numpy.array_equal(steps, one_steps):
            sys.exit(f"perf: {dataset}: {ranks} ranks recorded other steps than 1 rank")
        differences[ranks] = numpy.abs(losses - one_losses)
        text = "1 rank" if ranks == 1 else f"{ranks} ranks, differs by at most {differences[ranks].max():.1e}"
        axes.plot(steps, losses, linewidth=width, label=text)
    axes.set_title(f"{dataset}, mlp")
    axes.set_xlabel("step")
    axes.set_ylabel("loss of the step, nats")
    axes.set_yscale("log")
    axes.legend()
    return differences


def main():
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    machine = runs.machine()
    figure, panels = pyplot.subplots(1, len(arguments.datasets), figsize=(6 * len(arguments.datasets), 4),
                                     squeeze=False, layout="constrained")
    lines, notes, missed = [], [], []
    for axes, dataset in zip(panels[0], arguments.datasets):
        with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
            runs_of_dataset, curves = train(arguments, dataset, pathlib.Path(scratch))
        differences = draw(axes, dataset, curves)
        first_epoch = max(1, len(curves[1][0]) // arguments.epochs)
        for row in runs_of_dataset:
            difference = differences[row["ranks"]]
            lines.append(f"| {dataset} | {row['ranks']} | {row['train_loss']:.6f} | {row['validation_accuracy']:.4f} "
                         f"| {row['test_accuracy']:.4f} | {difference[:first_epoch].max():.1e} "
                         f"| {difference.max():.1e} |")
            if row["validation_accuracy"] < LEAST_ACCURACY.get(dataset, 0.0):
                missed.append(f"{dataset} on {row['ranks']} ranks: {row['validation_accuracy']:.4f}")
        notes.append(f"{dataset}: at least {LEAST_ACCURACY.get(dataset, 0.0)}")
    picture = arguments.out / "loss-curves.png"
    figure.savefig(picture, dpi=80)
    table = "\n".join(["| dataset | ranks | training loss | validation accuracy | test accuracy "
                       "| largest difference of a step's loss from 1 rank: first epoch | all epochs |",
                       "| --- | --- | --- | --- | --- | --- | --- |", *lines])
    (arguments.out / "README.md").write_text(
        f"# The same training on 1, 2 and 4 ranks\n\n`{' '.join(['perf/curves.sh', *sys.argv[1:]])}` on {runs.today()}: mlp, "
        f"{arguments.epochs} epochs, `--micro-batches 4 --seed 1`, fp32, one thread per rank; every "
        f"{arguments.record_steps}th step.\nMachine: {machine}.\nValidation accuracy to reach: {'; '.join(notes)}.\n\n"
        f"{table}\n\n"
        "One and four ranks add the four pieces of a step in the same order and agree bit for bit; two ranks add them in\n"
        "pairs. That difference is in the last bit of a sum at first, and thousands of updates amplify it as training does any\n"
        "perturbation; `tests/train/ranks_agree.py` holds 20 steps to 1e-9 in fp64 and 1e-5 in fp32.\n"
        f"\n![loss curves]({picture.name})\n", encoding="utf-8")
    print(f"\n{table}\n\nwritten: {arguments.out}/README.md, {picture.name} and the runs' results")
    if missed:
        sys.exit(f"perf: accuracy missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
