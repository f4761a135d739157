"""Federated training: 1,000 clients on four ranks, with the memory of all ranks; and heart disease at four hospitals, beside
training on all rows in one place, over several seeds, by site.

Heart disease needs data/fetch.sh heart-disease. Its rows and split are those of dtrain's staging, not FLamby's.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import h5py
import numpy as np

import runs

TOP = Path(__file__).resolve().parents[2]
MPIRUN = TOP / "tests/support/mpirun.sh"
DTRAIN = os.environ.get("DTRAIN", TOP / "build/release/bin/dtrain")
LOCAL = ["--optimizer", "sgd", "--momentum", 0, "--schedule", "constant", "--threads", 1]
ROUNDS = ["--strategy", "fedavg", "--local-epochs", 5, "--local-batch", 4, "--rounds", 40]
HOSPITALS = {
    "one place": [*LOCAL, "--learning-rate", 0.01, "--global-batch", 4, "--epochs", 40],
    "fedavg": [*LOCAL, *ROUNDS, "--learning-rate", 0.01],
    "fedprox": [*LOCAL, *ROUNDS, "--learning-rate", 0.01, "--proximal-mu", 0.1],
    "fednova": [*LOCAL, *ROUNDS, "--learning-rate", 0.01, "--federated-rule", "fednova"],
    "scaffold": [*LOCAL, *ROUNDS, "--learning-rate", 0.01, "--federated-rule", "scaffold"],
    "fedadam": [*LOCAL, *ROUNDS, "--learning-rate", 0.01, "--server-optimizer", "adam"],
    "fedyogi": [*LOCAL, *ROUNDS, "--learning-rate", 0.01, "--server-optimizer", "yogi"],
}


def trained(folder, name, ranks, *options):
    command = [str(MPIRUN), str(ranks), str(DTRAIN), "--quiet", "--name", name, "--overwrite", *map(str, options)]
    subprocess.run(command, cwd=folder, check=True, timeout=3600, stdin=subprocess.DEVNULL, capture_output=True)
    return h5py.File(folder / "runs" / name / "results.h5")


def many_clients(folder, rows):
    """A round with all of 1,000 clients, mlp on built-in samples."""
    options = ["--model", "mlp", "--clients", 1000, "--partition", "dirichlet=0.5", "--rounds", 3, "--local-batch", 10]
    for rule in ("fedavg", "scaffold"):
        with trained(folder, "many", 4, "--strategy", "fedavg", *LOCAL, *options, "--federated-rule", rule) as file:
            memory = sum(rank["epochs"]["peak_memory_bytes"].max() for rank in file["ranks"].values())
            seconds = file["epochs"]["train_time_s"][1:].mean()
            rows.append({"what": "1000 clients, 4 ranks", "method": rule, "seed": 1, "site": "", "value": round(memory / 2**20), "unit": "MiB in all"})
            rows.append({"what": "1000 clients, 4 ranks", "method": rule, "seed": 1, "site": "", "value": round(1000 / seconds), "unit": "clients/s"})
            print(f"1000 clients on 4 ranks, {rule}: {memory / 2**20:.0f} MiB in all, {1000 / seconds:.0f} clients/s", flush=True)


def hospitals(folder, rows, seeds, data_root):
    for method, options in HOSPITALS.items():
        found = []
        for seed in range(1, seeds + 1):
            data = ["--dataset", "heart-disease", "--data-root", data_root, "--model", "mlp", "--model-option", "hidden=16"]
            with trained(folder, "hospitals", 1, *data, "--seed", seed, *options) as file:
                sites = file["test_sites"][:]
            found.append(sites["accuracy"])
            rows += [{"what": "heart disease", "method": method, "seed": seed, "site": row["site"].decode(), "value": round(row["accuracy"], 4),
                      "unit": "accuracy"} for row in sites]
        mean = np.mean(found, axis=0)
        print(f"heart disease, {method}: " + ", ".join(f"{row['site'].decode()} {value:.3f}" for row, value in zip(sites, mean))
              + f"; mean of sites {mean.mean():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data-root", type=Path, default=TOP / "data/staged")
    parser.add_argument("--only", choices=["clients", "hospitals"])
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/federated")
    arguments = parser.parse_args()
    parts = {"clients": [], "hospitals": []}
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.only != "hospitals":
            many_clients(Path(scratch), parts["clients"])
        if arguments.only != "clients":
            hospitals(Path(scratch), parts["hospitals"], arguments.seeds, arguments.data_root)
    for name, rows in parts.items():
        if rows:
            runs.write_rows(arguments.out / f"{name}-{runs.today()}.csv", rows)


if __name__ == "__main__":
    main()
