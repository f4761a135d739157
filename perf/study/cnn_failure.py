"""Why the study's CNN stood still on two GPUs (loss 2.3, accuracy .10 after 20 epochs), found by leaving one thing out at a time.

Every run trains cnn on CIFAR-10 for 20 epochs by plain SGD at rate 0.001, without momentum, decay, schedule or
augmentation, unless its row says otherwise. The study kept the batch per GPU, so that two GPUs made half as many steps
of the same length. Writes every run's epochs as CSV and a table.
"""

import argparse
import csv
import shlex
import subprocess
import sys
from pathlib import Path

import h5py

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(TOP / "perf" / "training"))
from dated import free_stem  # noqa: E402

PLAIN = ["--optimizer", "sgd", "--learning-rate", "0.001", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant",
         "--augment", "off", "--epochs", "20"]
# What is tried, ranks, global batch, further options.
RUNS = [("the study's one GPU: batch 64", 1, 64, PLAIN),
        ("its two GPUs: batch 64 each", 2, 128, PLAIN),
        ("one rank with their batch of 128", 1, 128, PLAIN),
        ("two ranks, other initial weights (seed 2)", 2, 128, [*PLAIN, "--seed", "2"]),
        ("two ranks, batch 128, rate 0.0005: the sum divided by the ranks twice", 2, 128,
         [*PLAIN, "--learning-rate", "0.0005"]),
        ("two ranks, global batch 64", 2, 64, PLAIN),
        ("two ranks, batch 128, rate 0.002", 2, 128, [*PLAIN, "--learning-rate", "0.002"]),
        ("two ranks, batch 128, momentum 0.9", 2, 128, [*PLAIN, "--momentum", "0.9"]),
        ("two ranks, dtrain's recipe", 2, 64, [])]


def last_wins(options):
    """Each option once, as given last."""
    pairs = dict(zip(options[::2], options[1::2]))
    return [word for pair in pairs.items() for word in pair]


def main():
    parser = argparse.ArgumentParser(prog="perf/cnn_failure.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-root", default=str(TOP / "data/staged"))
    parser.add_argument("--output", type=Path, default=Path("runs/cnn-failure"))
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/study")
    parser.add_argument("--dtrain", default=str(TOP / "dtrain"))
    parser.add_argument("--mpirun", default="mpirun --oversubscribe")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, table = [], []
    for number, (what, ranks, batch, options) in enumerate(RUNS):
        name = f"run-{number}"
        command = [*shlex.split(arguments.mpirun), "-np", str(ranks), arguments.dtrain, "--model", "cnn", "--dataset", "cifar10",
                   "--data-root", arguments.data_root, "--output", str(arguments.output), "--name", name, "--overwrite",
                   "--quiet", "--threads", "1", "--global-batch", str(batch), *last_wins(options)]
        subprocess.run(command, check=True, timeout=3600, stdin=subprocess.DEVNULL)
        with h5py.File(arguments.output / name / "results.h5", "r") as file:
            epochs = file["epochs"][:]
        rows += [(what, ranks, batch, row["epoch"], row["train_loss"], row["train_accuracy"], row["validation_loss"],
                  row["validation_accuracy"]) for row in epochs]
        last = epochs[-1]
        left = next((int(row["epoch"]) for row in epochs if row["train_loss"] < 2.25), None)
        table.append(f"| {what} | {ranks} | {batch} | {left or 'never'} | {last['train_loss']:.3f} | {last['train_accuracy']:.3f} "
                     f"| {last['validation_accuracy']:.3f} |")
        print(table[-1], flush=True)
    stem = free_stem(arguments.out, "cnn-failure")
    with open(stem.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "ranks", "global_batch", "epoch", "train_loss", "train_accuracy", "validation_loss",
                         "validation_accuracy"])
        writer.writerows(rows)
    stem.with_suffix(".md").write_text(
        "# The study's CNN on two GPUs\n\n" + " ".join(__doc__.split("\n\n")[1].split()) + "\n\n`perf/cnn_failure.sh`\n\n"
        "| what | ranks | global batch | first epoch with training loss below 2.25 | training loss | training accuracy | "
        "validation accuracy |\n| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
