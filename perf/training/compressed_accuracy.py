"""resnet18 on CIFAR-10 on two emulated nodes of one rank each, with all bits and with a compression, each pair from one seed: test
accuracies, and the bytes that cross in a step.

A run that has ended is a row of the file, and is not made again; one that was stopped goes on from its newest checkpoint.
"""

import argparse
import csv
import pathlib
import statistics
import sys

import h5py

import runs


def parse():
    parser = argparse.ArgumentParser(prog="perf/compressed_accuracy.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compression", default="powersgd=2")
    parser.add_argument("--after", type=int, default=0, help="steps in all bits before the compression begins")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=64, help="channels of the first convolution; 64 is the usual resnet18")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="end, and let the schedule end, after so many; 0: with the epochs")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--bytes-only", action="store_true", help="three steps of each, for the bytes; no accuracies, and no row is kept")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data/staged")
    parser.add_argument("--scratch", type=pathlib.Path, default=runs.TOP / "runs/compressed-accuracy", help="where unfinished runs lie")
    parser.add_argument("--output", type=pathlib.Path, default=runs.TOP / "perf/results/sharding/compressed-accuracy.csv")
    return parser.parse_args()


def command(arguments, compression, seed, name, *more):
    if compression != "none" and arguments.after:
        more = (*more, "--compression-after", str(arguments.after))
    machine = arguments.scratch / "two-nodes.toml"
    machine.parent.mkdir(parents=True, exist_ok=True)
    machine.write_text("[[node]]\nranks = [0]\n[[node]]\nranks = [1]\n")
    return ["mpirun", "--bind-to", "none", "-np", "2", runs.program(), "--model", "resnet18", "--model-option", f"width={arguments.width}",
            "--dataset", "cifar10", "--data-root", str(arguments.data_root.resolve()), "--global-batch", str(arguments.batch),
            "--epochs", str(arguments.epochs), "--compression", compression, "--seed", str(seed), "--threads", "1", "--emulate", str(machine),
            "--output", str(arguments.scratch), "--name", name, "--quiet", "--watchdog", "inf", *more]


def crossed_bytes(folder):
    """Of a step, from rank 0 to rank 1: between the two nodes."""
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        rows = file["ranks/00000/traffic"][:]
        steps = len(file["ranks/00000/steps"])
    return int(rows["bytes_sent"][rows["peer"] == 1].sum()) / steps


def rows_of(path):
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def key(row):
    return tuple(str(row[name]) for name in ("width", "epochs", "steps", "batch", "seed", "compression", "after"))


def show_bytes(arguments):
    for compression in ("none", arguments.compression):
        name = f"bytes-{arguments.width}-{compression}"
        runs.run(command(arguments, compression, 1, name, "--limit-steps", "3", "--checkpoint-every", "end", "--overwrite"))
        print(f"width={arguments.width} compression={compression} bytes_of_step={crossed_bytes(arguments.scratch / name):.0f}", flush=True)


def main():
    arguments = parse()
    if arguments.bytes_only:
        return show_bytes(arguments)
    rows = rows_of(arguments.output)
    for seed in range(1, arguments.seeds + 1):
        for compression in ("none", arguments.compression):
            facts = {"width": arguments.width, "epochs": arguments.epochs, "steps": arguments.steps, "batch": arguments.batch, "seed": seed, "compression": compression,
                     "after": arguments.after if compression != "none" else 0}
            if key(facts) in map(key, rows):
                continue
            name = f"{arguments.width}-{arguments.epochs}-{arguments.steps}-{arguments.batch}-{seed}-{compression}-{facts['after']}"
            runs.run(command(arguments, compression, seed, name, "--checkpoint-every", "50steps", "--keep", "1", "--limit-steps", str(arguments.steps)), limit_s=6 * 3600)
            folder = arguments.scratch / name
            epochs = runs.epochs_table(folder)
            with h5py.File(folder / "results.h5", "r", locking=False) as file:
                accuracy = float(file["test"][0]["accuracy"])
            rows.append(facts | {"test_accuracy": f"{accuracy:.4f}", "validation_accuracy": f"{epochs[-1]['validation_accuracy']:.4f}",
                                 "train_loss": f"{epochs[-1]['train_loss']:.4f}"})
            runs.write_rows(arguments.output, rows)
            print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    of = {row_key: float(row["test_accuracy"]) for row_key, row in zip(map(key, rows), rows)}
    differences = [100 * (accuracy - of[(*row_key[:-2], "none", "0")]) for row_key, accuracy in of.items()
                   if row_key[:4] == tuple(map(str, (arguments.width, arguments.epochs, arguments.steps, arguments.batch)))
                   and row_key[-2:] == (arguments.compression, str(arguments.after))]
    print(f"points of accuracy, {arguments.compression} less none: {', '.join(f'{value:+.2f}' for value in differences)}; "
          f"mean {statistics.mean(differences):+.2f}")


if __name__ == "__main__":
    sys.exit(main())
