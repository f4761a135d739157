"""Federated training: 1,000 clients on four ranks, with the memory of all ranks; and heart disease at four hospitals, beside
training on all rows in one place, over several seeds, by site.

Heart disease needs data/fetch.sh heart-disease, whose rows and split are those of dtrain's staging. The part `flamby` has FLamby's
rows and split, and needs data/fetch.sh heart-disease-flamby and heart-disease-flamby-pooled: logistic regression, an exported
program, alone, together and in one place, 15 rounds of two local epochs (FLamby has 15 of 100 steps).
"""

import argparse
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

import runs

sys.path.insert(0, str(runs.TOP / "jobs"))
from export_model import export_model  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
MPIRUN = TOP / "tests/support/mpirun.sh"
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
FLAMBY_ROUNDS = [*LOCAL, "--strategy", "fedavg", "--local-epochs", 2, "--local-batch", 4, "--rounds", 15, "--learning-rate", 0.01]
FLAMBY = {
    "pooled": [*FLAMBY_ROUNDS, "--partition", "pooled"],
    "local": [*FLAMBY_ROUNDS, "--federated-rule", "local"],
    "fedavg": FLAMBY_ROUNDS,
    "scaffold": [*FLAMBY_ROUNDS, "--federated-rule", "scaffold"],
    "fedadam": [*FLAMBY_ROUNDS, "--server-optimizer", "adam"],
    "fedyogi": [*FLAMBY_ROUNDS, "--server-optimizer", "yogi"],
    "fedavg, masked": [*FLAMBY_ROUNDS, "--secure-aggregation", "on", "--secure-ring", 64],
}


def trained(folder, name, ranks, *options):
    runs.run([str(MPIRUN), str(ranks), runs.program(), "--quiet", "--name", name, "--overwrite", *map(str, options)], cwd=folder, limit_s=3600)
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


def flamby(folder, rows, seeds, data_root):
    """FLamby's rows and split; each site counts alike in the mean, as there."""
    for dataset in ("heart-disease-flamby-pooled", "heart-disease-flamby"):
        for method, options in FLAMBY.items():
            found = []
            for seed in range(1, seeds + 1):
                torch.manual_seed(seed)  # the initial weights, as PyTorch draws them
                export_model(torch.nn.Linear(13, 2), torch.randn(4, 13), str(folder / "logistic.pt2"), loss="cross_entropy", golden=False)
                data = ["--dataset", dataset, "--data-root", data_root, "--model", folder / "logistic.pt2"]
                ranks = 2 if "--secure-aggregation" in options else 1  # one is the server
                with trained(folder, "flamby", ranks, *data, "--seed", seed, *options) as file:
                    sites = file["test_sites" if method == "pooled" else "test_clients"][:]
                names = [name.decode() for name in sites["site" if method == "pooled" else "name"]]
                found.append(sites["accuracy"])
                rows += [{"dataset": dataset, "method": method, "seed": seed, "site": name, "samples": int(row["samples"]),
                          "accuracy": round(row["accuracy"], 4), "auc": round(row["auc"], 4)} for name, row in zip(names, sites)]
            mean, weights = np.mean(found, axis=0), sites["samples"] / sites["samples"].sum()
            print(f"{dataset}, {method}: " + ", ".join(f"{name} {value:.3f}" for name, value in zip(names, mean))
                  + f"; mean of sites {mean.mean():.3f}, of patients {mean @ weights:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data-root", type=Path, default=TOP / "data/staged")
    parser.add_argument("--only", choices=["clients", "hospitals", "flamby"])
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/federated")
    arguments = parser.parse_args()
    arguments.data_root = arguments.data_root.resolve()  # runs have another current folder
    parts = {"clients": [], "hospitals": [], "flamby": []}
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.only in (None, "clients"):
            many_clients(Path(scratch), parts["clients"])
        if arguments.only in (None, "hospitals"):
            hospitals(Path(scratch), parts["hospitals"], arguments.seeds, arguments.data_root)
        if arguments.only in (None, "flamby"):
            flamby(Path(scratch), parts["flamby"], arguments.seeds, arguments.data_root)
    for name, rows in parts.items():
        if rows:
            runs.write_rows(f"{runs.free_stem(arguments.out, name)}.csv", rows)


if __name__ == "__main__":
    main()
