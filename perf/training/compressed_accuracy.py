"""resnet18 on CIFAR-10 on two emulated nodes of one rank each, with all bits and with a compression, each pair from one seed: test
accuracies, and the bytes that cross in a step. With --program pytorch: DDP with its PowerSGD hook instead, on the same schedule.

A run that has ended is a row of the file, and is not made again; one that was stopped goes on from its newest checkpoint.
"""

import argparse
import pathlib
import re
import statistics
import sys

import h5py

import runs

# What two runs have in common that are compared.
SCHEDULE = ("program", "width", "epochs", "steps", "batch")


def parse():
    parser = argparse.ArgumentParser(prog="perf/compressed_accuracy.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="dtrain", choices=["dtrain", "pytorch"])
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
    arguments = parser.parse_args()
    if arguments.program == "pytorch" and not arguments.compression.startswith("powersgd="):
        parser.error("PyTorch is asked for its PowerSGD only")
    return arguments


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


def of_dtrain(arguments, compression, seed, name):
    """What a row says of a run."""
    runs.run(command(arguments, compression, seed, name, "--checkpoint-every", "50steps", "--keep", "1", "--limit-steps", str(arguments.steps)),
             limit_s=6 * 3600)
    folder = arguments.scratch / name
    epochs = runs.epochs_table(folder)
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        accuracy = float(file["test"][0]["accuracy"])
    return {"test_accuracy": f"{accuracy:.4f}", "validation_accuracy": f"{epochs[-1]['validation_accuracy']:.4f}",
            "train_loss": f"{epochs[-1]['train_loss']:.4f}"}


def of_peer(arguments, compression, seed):
    rank = 0 if compression == "none" else int(compression.removeprefix("powersgd="))
    said, _ = runs.run(runs.peer_command("compressed_training.py", 2, arguments.data_root.resolve() / "cifar10", "--rank", rank, "--after", arguments.after,
                                         "--width", arguments.width, "--epochs", arguments.epochs, "--steps", arguments.steps, "--batch", arguments.batch,
                                         "--seed", seed), limit_s=6 * 3600)
    return {"test_accuracy": re.search(r"test_accuracy=([0-9.]+)", said)[1], "validation_accuracy": "", "train_loss": ""}


def crossed_bytes(folder):
    """Of a step, from rank 0 to rank 1: between the two nodes."""
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        rows = file["ranks/00000/traffic"][:]
        steps = len(file["ranks/00000/steps"])
    return int(rows["bytes_sent"][rows["peer"] == 1].sum()) / steps


def key(row):
    return tuple(str(row[name]) for name in (*SCHEDULE, "seed", "compression", "after"))


def show_bytes(arguments):
    for compression in ("none", arguments.compression):
        name = f"bytes-{arguments.width}-{compression}"
        runs.run(command(arguments, compression, 1, name, "--limit-steps", "3", "--checkpoint-every", "end", "--overwrite"))
        print(f"width={arguments.width} compression={compression} bytes_of_step={crossed_bytes(arguments.scratch / name):.0f}", flush=True)


def main():
    arguments = parse()
    if arguments.bytes_only:
        return show_bytes(arguments)
    rows = runs.read_rows(arguments.output)
    for seed in range(1, arguments.seeds + 1):
        for compression in ("none", arguments.compression):
            facts = {name: getattr(arguments, name) for name in SCHEDULE}
            facts |= {"seed": seed, "compression": compression, "after": arguments.after if compression != "none" else 0}
            if key(facts) in map(key, rows):
                continue
            if arguments.program == "pytorch":
                said = of_peer(arguments, compression, seed)
            else:
                name = "-".join(map(str, (*key(facts)[1:6], compression, facts["after"])))
                said = of_dtrain(arguments, compression, seed, name)
            rows.append(facts | said)
            runs.write_rows(arguments.output, rows)
            print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    of = {row_key: float(row["test_accuracy"]) for row_key, row in zip(map(key, rows), rows)}
    differences = [100 * (accuracy - of[(*row_key[:-2], "none", "0")]) for row_key, accuracy in of.items()
                   if row_key[:len(SCHEDULE)] == tuple(str(getattr(arguments, name)) for name in SCHEDULE)
                   and row_key[-2:] == (arguments.compression, str(arguments.after))]
    print(f"points of accuracy, {arguments.compression} less none: {', '.join(f'{value:+.2f}' for value in differences)}; "
          f"mean {statistics.mean(differences):+.2f}")


if __name__ == "__main__":
    sys.exit(main())
