"""FedAvg on MNIST with 100 clients of 600 samples, ten in each round, and the convolutional network of McMahan et al. (AISTATS
2017), 1,663,370 parameters, as an exported program: in which round the test accuracy reaches 99 %, beside that paper's table 2.

The accuracy is that of the test split after each round, as in the paper: the dataset that this script stages has it as its
validation split as well, so that all 60,000 training samples lie with clients. A case that was interrupted goes on with its
next round. One process, one thread; a round of five local epochs is 30,000 samples.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

import runs

TOP = runs.TOP
sys.path.insert(0, str(TOP / "jobs"))
from export_model import export_model  # noqa: E402

GOAL = 0.99
# Name: partition, local epochs, local batch, rounds to make, rounds that the paper needed.
CASES = {"iid-E5-B10": ("iid", 5, 10, 30, 20), "iid-E1-B10": ("iid", 1, 10, 50, 34), "classes2-E5-B10": ("classes=2", 5, 10, 300, 230)}


class McMahan(nn.Sequential):
    """Two convolutions 5 x 5 of 32 and 64 channels, each with a maximum over 2 x 2, a layer of 512, ten outputs."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10))


def stage(data_root, folder):
    """All 60,000 training samples with clients; the test split stands for validation, too."""
    if (folder / "staged/mnist-by-test/dataset.json").exists():
        return
    def split(name):
        with h5py.File(data_root / "mnist" / f"{name}-00000-of-00001.h5") as file:
            return file["inputs"][:], file["targets"][:]
    parts = [split(name) for name in ("train", "validation")]
    test = split("test")
    arrays = {"x_train": np.concatenate([x for x, _ in parts]), "y_train": np.concatenate([y for _, y in parts])}
    arrays |= {"x_val": test[0], "y_val": test[1], "x_test": test[0], "y_test": test[1]}
    np.savez(folder / "mnist.npz", **arrays)
    subprocess.run([runs.program(), "stage", "mnist-by-test", "--from", str(folder / "mnist.npz"), "--inputs", "x", "--targets", "y",
                    "--data-root", str(folder / "staged")], check=True, cwd=folder)
    (folder / "mnist.npz").unlink()


def program_of(folder, seed):
    """The exported program with the seed's initial weights. Runs with seed 1 go on with the one of earlier calls."""
    return folder / ("mcmahan.pt2" if seed == 1 else f"mcmahan-seed{seed}.pt2")


def train(folder, name, rate, seed):
    partition, epochs, batch, rounds, _ = CASES[name]
    run = f"{name}-rate{rate:g}-seed{seed}"
    state = folder / "runs" / run / "state"
    if state.exists() and state.read_text().strip() == "completed":
        return run
    command = [runs.program(), "--model", program_of(folder, seed), "--dataset", "mnist-by-test", "--data-root", str(folder / "staged"),
               "--augment", "off", "--strategy", "fedavg", "--clients", "100", "--clients-per-round", "10", "--partition", partition,
               "--local-epochs", epochs, "--local-batch", batch, "--rounds", rounds, "--optimizer", "sgd", "--momentum", 0,
               "--schedule", "constant", "--learning-rate", rate, "--seed", seed, "--threads", 1, "--record-steps", "off", "--keep", 1,
               "--output", folder / "runs", "--name", run]
    subprocess.run([str(word) for word in command], check=True, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return run


def rows_of(folder, name, run, rate, seed):
    with h5py.File(folder / "runs" / run / "results.h5", locking=False) as file:
        epochs = file["epochs"][:]
    reached = epochs["epoch"][epochs["validation_accuracy"] >= GOAL]
    print(f"{name}: {GOAL:.0%} in round {int(reached[0]) if len(reached) else 'none of ' + str(len(epochs))}; the paper {CASES[name][4]}", flush=True)
    return [{"case": name, "rate": rate, "seed": seed, "round": int(row["epoch"]), "test_accuracy": round(float(row["validation_accuracy"]), 4),
             "test_loss": round(float(row["validation_loss"]), 5), "train_time_s": round(float(row["train_time_s"]), 2)} for row in epochs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="iid-E5-B10,iid-E1-B10", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-root", type=Path, default=TOP / "data/staged", help="where data/fetch.sh has staged mnist")
    parser.add_argument("--work", type=Path, default=TOP / "runs/federated-mnist", help="runs that go on lie here")
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/federated")
    parser.add_argument("--only-read", action="store_true", help="start nothing; write what there is")
    arguments = parser.parse_args()
    folder = arguments.work.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = arguments.cases.split(",")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]}; there are {', '.join(CASES)}")
    rows, comments = [], [runs.machine()]
    if not arguments.only_read:
        stage(arguments.data_root.resolve(), folder)
        torch.manual_seed(arguments.seed)
        network = McMahan()
        assert sum(parameter.numel() for parameter in network.parameters()) == 1_663_370
        program = program_of(folder, arguments.seed)
        if not program.exists():
            export_model(network, torch.randn(4, 1, 28, 28), str(program), loss="cross_entropy")
    for name in names:
        run = f"{name}-rate{arguments.rate:g}-seed{arguments.seed}"
        if not arguments.only_read:
            run = train(folder, name, arguments.rate, arguments.seed)
        if (folder / "runs" / run / "results.h5").exists():
            rows += rows_of(folder, name, run, arguments.rate, arguments.seed)
    runs.write_rows(f"{runs.free_stem(arguments.out, 'mnist')}.csv", rows, comments)


if __name__ == "__main__":
    main()
