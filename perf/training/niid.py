"""Cells of NIID-Bench (Li et al., ICDE 2022) on a short schedule: MNIST or CIFAR-10, 10 clients that all take part, FedAvg, FedProx,
SCAFFOLD and FedNova where the clients' classes are drawn from a Dirichlet distribution (0.5) or are two each; the same rounds as a loop in
PyTorch from the same weights on the same partition. 5,000 training samples, the 10,000 of the test split, 5 rounds of 5 local epochs in
batches of 32, plain sgd; mlp for MNIST, cnn for CIFAR-10. NIID-Bench itself has 50 rounds of 10 epochs and all samples, and a network
of convolutions for MNIST, too: its figures are others. After so few rounds the order of samples, which is each side's own, moves the
accuracy by some points; so MNIST's cells are there with all samples in each local step as well, ten in a round, where no order matters.

The part `flower`: the cells of MNIST with FedAvg and FedProx again, in Flower's simulation from the same weights on the same
partition. It needs the rows of the part `cells`, to which it adds a column.

The part `clients`: processor seconds of a client's round and clients per second on the clock, 100 clients, one process that computes on
each side, beside Flower's simulation on the same partition. The clock's rates are for a quiet machine. Both need --flower PYTHON, an interpreter with `flwr[simulation]`, PyTorch and h5py.

A run that is there already is not made again.
"""

import argparse
import itertools
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

import runs

sys.path.insert(0, str(runs.PEERS))
import networks  # noqa: E402

TRAIN, CLIENTS, ROUNDS = 5000, 10, 5
PARTITIONS = ("dirichlet=0.5", "classes=2")
METHODS = {"fedavg": [], "fedprox": ["--proximal-mu", 0.01], "scaffold": ["--federated-rule", "scaffold"], "fednova": ["--federated-rule", "fednova"]}
MODELS = {"mnist": "mlp", "cifar10": "cnn"}
LOCAL = ["--augment", "off", "--strategy", "fedavg", "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--schedule", "constant", "--threads", 1,
         "--quiet", "--overwrite"]
FEW_CLIENTS = ["--clients", CLIENTS, "--rounds", ROUNDS, "--learning-rate", 0.05]
BATCHES = {"32": ["--local-batch", 32, "--local-epochs", 5], "all": ["--local-batch", "all", "--local-epochs", 10]}
FLOWER_ORDERS = 3
MANY, MANY_ROUNDS = 100, 11
MANY_CLIENTS = ["--clients", MANY, "--partition", "iid", "--local-epochs", 3, "--local-batch", "all"]


def staged_name(dataset):
    return "niid" if dataset == "mnist" else f"niid-{dataset}"


def stage(data_root, folder, dataset):
    """The first training samples; the test split stands for validation, too."""
    name_here = staged_name(dataset)
    if (folder / "staged" / name_here / "dataset.json").exists():
        return
    arrays = {}
    for name, source, most in (("train", "train", TRAIN), ("val", "test", None), ("test", "test", None)):
        with h5py.File(data_root / dataset / f"{source}-00000-of-00001.h5") as file:
            arrays |= {f"x_{name}": file["inputs"][:most], f"y_{name}": file["targets"][:most]}
    np.savez(folder / "niid.npz", **arrays)
    runs.run([runs.program(), "stage", name_here, "--from", folder / "niid.npz", "--inputs", "x", "--targets", "y", "--data-root", folder / "staged"])
    (folder / "niid.npz").unlink()


def start(folder, model, seed):
    path = folder / f"start-{model}-{seed}.h5"
    with h5py.File(path, "w") as file:
        for name, value in networks.make_network(model, seed=seed).state_dict().items():
            file[f"model/{name}"] = value.numpy()
    return path


def trained(folder, dataset, name, *options):
    """The run's folder, and the processor seconds of making it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = ["--model", MODELS[dataset], "--dataset", staged_name(dataset), "--data-root", folder / "staged"]
    runs.run([str(word) for word in (runs.program(), *LOCAL, *data, "--output", folder / "runs", "--name", name, *options)])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return folder / "runs" / name, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def cell_run(folder, dataset, batch, partition, method, seed):
    """The run's folder, the weights that it began with, and its accuracy after each round."""
    weights = start(folder, MODELS[dataset], seed)
    name = f"{dataset}-{partition}-{method}-{batch}-{seed}"
    run, _ = trained(folder, dataset, name, *FEW_CLIENTS, *BATCHES[batch], "--partition", partition, "--seed", seed, "--init-from", weights, *METHODS[method])
    with h5py.File(run / "results.h5") as file:
        return run, weights, file["epochs"]["validation_accuracy"][:]


def peer_accuracies(python, script, run, weights, method, *options):
    """The peer's, after each round, on the run's partition."""
    mu = ["--proximal-mu", "0.01"] if method == "fedprox" else []
    said, _ = runs.run([python, str(runs.PEERS / script), str(run), str(weights), method, *mu, *map(str, options)])
    found = re.findall(r"^\d+ (0\.\d+)$", said, re.MULTILINE)
    if len(found) != ROUNDS:
        sys.exit(f"perf: {script} said\n{said[-2000:]}")
    return found


def cell(folder, dataset, batch, partition, method, seed):
    """Accuracy after each round of both."""
    run, weights, ours = cell_run(folder, dataset, batch, partition, method, seed)
    theirs = peer_accuracies(sys.executable, "niid_rounds.py", run, weights, method)
    return [{"local_batch": batch, "partition": partition, "method": method, "seed": seed, "round": k, "dtrain": round(float(a), 4), "pytorch": b}
            for k, (a, b) in enumerate(zip(ours, theirs), 1)]


def flower_column(order):
    return "flower" if order == 1 else f"flower_{order}"


def add_flower(folder, flower, cell_of, rows, order):
    """Adds what Flower comes to with this order of samples to the rows of one cell and seed."""
    run, weights, ours = cell_run(folder, "mnist", *cell_of)
    theirs = peer_accuracies(flower, "flower_niid.py", run, weights, cell_of[2], "--order", order)
    for row, now, theirs_now in zip(rows, ours, theirs):
        if float(row["dtrain"]) != float(f"{now:.4f}"):
            print(f"{', '.join(map(str, cell_of))}, round {row['round']}: dtrain had {row['dtrain']}, and has {now:.4f} now", flush=True)
        row |= {"dtrain": f"{now:.4f}", flower_column(order): theirs_now}


def flower_cells(folder, out, flower, seeds):
    """The cells that Flower has strategies for, beside the rows of niid.csv; in batches of 32 with several orders of the samples."""
    path = out / "niid.csv"
    rows = runs.read_rows(path)
    comments = [line[2:].rstrip() for line in path.read_text().splitlines() if line.startswith("# ")] if rows else []
    for batch, partition, method in itertools.product(BATCHES, PARTITIONS, ("fedavg", "fedprox")):
        last = []
        columns = [flower_column(order) for order in range(1, (FLOWER_ORDERS if batch == "32" else 1) + 1)]
        for seed in range(1, (seeds if batch == "32" else 1) + 1):
            cell_of = (batch, partition, method, seed)
            mine = [row for row in rows if (row["local_batch"], row["partition"], row["method"], int(row["seed"])) == cell_of]
            if len(mine) != ROUNDS:
                sys.exit(f"perf: {path} lacks {', '.join(map(str, cell_of))}: run the part cells first")
            for order, column in enumerate(columns, 1):
                if not all(row.get(column) for row in mine):
                    add_flower(folder, flower, cell_of, mine, order)
                    runs.write_rows(path, rows, comments)
            last.append((float(mine[-1]["dtrain"]), np.mean([float(mine[-1][column]) for column in columns])))
        difference = 100 * (np.array(last)[:, 0] - np.array(last)[:, 1])
        print(f"local batch {batch}, {partition}, {method}: dtrain {np.mean(last, axis=0)[0]:.4f}, flower {np.mean(last, axis=0)[1]:.4f}, difference "
              f"{difference.mean():+.2f} points ({len(last)} seeds, {len(columns)} orders, single seeds {np.abs(difference).max():.2f} at most)", flush=True)


def cell_names(dataset):
    return [(batch, partition, method) for batch in (BATCHES if dataset == "mnist" else ["32"]) for partition in PARTITIONS for method in METHODS]


def cells(folder, out, dataset, seeds, only):
    path = out / ("niid.csv" if dataset == "mnist" else f"niid-{dataset}.csv")
    rows = runs.read_rows(path)
    wanted = [what for what in cell_names(dataset) if only in (None, ",".join(what))]
    for batch, partition, method in wanted:
        for seed in range(1, (seeds if batch == "32" else 1) + 1):
            if any((row["local_batch"], row["partition"], row["method"], int(row["seed"])) == (batch, partition, method, seed) for row in rows):
                continue
            rows += cell(folder, dataset, batch, partition, method, seed)
            runs.write_rows(path, rows, [runs.machine(), "perf/niid.sh" + ("" if dataset == "mnist" else f" --only cells --dataset {dataset}")])
    for what in wanted:
        last = [row for row in rows if (row["local_batch"], row["partition"], row["method"]) == what and int(row["round"]) == ROUNDS]
        ours, theirs = (np.array([float(row[who]) for row in last]) for who in ("dtrain", "pytorch"))
        difference = 100 * (ours - theirs)
        error = difference.std(ddof=1) / np.sqrt(len(last)) if len(last) > 1 else np.nan
        print(f"{dataset}, local batch {', '.join(what)}: dtrain {ours.mean():.4f}, pytorch {theirs.mean():.4f}, difference {difference.mean():+.2f} "
              f"+- {error:.2f} points ({len(last)} seeds, single ones {np.abs(difference).max():.2f} at most)", flush=True)


def clients(folder, out, flower, repeats):
    rows, path = [], f"{runs.free_stem(out, 'flower-clients')}.csv"
    for repeat in range(1, repeats + 1):
        for precision in ("fp64", "fp32"):
            options = [*MANY_CLIENTS, "--precision", precision]
            first, one_s = trained(folder, "mnist", "first", *options, "--rounds", 1, "--learning-rate", 1e-300)
            run, all_s = trained(folder, "mnist", "run", *options, "--rounds", MANY_ROUNDS, "--learning-rate", 0.05)
            step = next((first / "checkpoints").glob("step-*"))
            done = subprocess.run([flower, str(runs.PEERS / "flower_rounds.py"), str(run), str(step)], text=True, capture_output=True, check=False,
                                  timeout=1200, env=runs.environment())
            found = re.search(r"flower: cpu_s_per_client=([\d.]+)", done.stdout)
            rates = dict(re.findall(r"^(flower|dtrain): clients_per_s=([\d.]+)", done.stdout, re.MULTILINE))
            if not found or len(rates) != 2:
                sys.exit(f"perf: Flower said\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
            rows.append({"repeat": repeat, "precision": precision, "clients": MANY, "rounds": MANY_ROUNDS - 1,
                         "dtrain_cpu_s_per_client": round((all_s - one_s) / MANY / (MANY_ROUNDS - 1), 6), "flower_cpu_s_per_client": float(found.group(1)),
                         "dtrain_clients_per_s": float(rates["dtrain"]), "flower_clients_per_s": float(rates["flower"])})
            print(rows[-1], flush=True)
            runs.write_rows(path, rows, [runs.machine(), "perf/niid.sh --only clients --flower PYTHON"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["cells", "flower", "clients"], help="one part")
    parser.add_argument("--dataset", choices=MODELS, default="mnist", help="of the part cells")
    parser.add_argument("--cell", metavar="BATCH,PARTITION,METHOD", help="this cell alone, for example 32,classes=2,scaffold")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of the part clients")
    parser.add_argument("--flower", help="an interpreter with Flower")
    parser.add_argument("--data-root", type=Path, default=runs.TOP / "data/staged", help="where data/fetch.sh has staged them")
    parser.add_argument("--work", type=Path, default=runs.TOP / "runs/niid", help="runs lie here")
    parser.add_argument("--out", type=Path, default=runs.TOP / "perf/results/federated")
    arguments = parser.parse_args()
    names = [",".join(what) for what in cell_names(arguments.dataset)]
    if arguments.cell not in (None, *names):
        parser.error(f"--cell {arguments.cell}: with --dataset {arguments.dataset} there are {' '.join(names)}")
    folder, out = arguments.work.resolve(), arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.flower is not None and not os.access(arguments.flower, os.X_OK):
        parser.error(f"--flower {arguments.flower}: no such program")
    if arguments.only in ("flower", "clients") and arguments.flower is None:
        parser.error(f"the part {arguments.only} needs --flower PYTHON, an interpreter with Flower")
    stage(arguments.data_root.resolve(), folder, arguments.dataset)
    if arguments.only in (None, "cells"):
        cells(folder, out, arguments.dataset, arguments.seeds, arguments.cell)
    if arguments.only == "flower" or (arguments.only is None and arguments.flower and arguments.dataset == "mnist"):
        flower_cells(folder, out, arguments.flower, arguments.seeds)
    if arguments.only == "clients" or (arguments.only is None and arguments.flower):
        stage(arguments.data_root.resolve(), folder, "mnist")
        clients(folder, out, arguments.flower, arguments.repeats)


if __name__ == "__main__":
    main()
