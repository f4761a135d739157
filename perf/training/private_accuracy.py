"""What training with differential privacy reaches at a stated epsilon: runs of each case with several seeds, the last model's test accuracy.

Rows are added to perf/results/privacy/accuracy.csv after each run; a case and seed that is there is not run again. MNIST must be staged
(data/fetch.sh mnist), for `imdb` IMDB; the cases of scattering features stage them themselves, of the original files in --raw.
"""

import argparse
import csv
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import runs

TABLE = runs.TOP / "perf" / "results" / "privacy" / "accuracy.csv"
FIELDS = ("case", "seed", "test_accuracy", "validation_accuracy", "epsilon", "target_epsilon", "delta", "accountant", "noise", "clip", "batch",
          "steps", "learning_rate", "cpu_s", "options")
SCATTERING = {"model": "scattering.pt2", "dataset": "mnist-scattering", "delta": 1e-5, "batch": 4096, "clip": 0.1,
              "options": ["--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0, "--schedule", "constant"]}
CASES = {
    "mnist-1.16": {**SCATTERING, "target": 1.16, "epochs": 10, "rate": 8},
    "mnist-3": {**SCATTERING, "target": 3, "epochs": 15, "rate": 8},
    # A score for each word: an embedding of two numbers, which begins with zeros.
    "imdb-3": {"model": "nbow", "dataset": "imdb", "delta": 1e-5, "batch": 2048, "clip": 0.1, "target": 3, "epochs": 30, "rate": 0.04,
               "options": ["--optimizer", "adam", "--weight-decay", 0, "--schedule", "constant", "--model-option", "embedding=2",
                           "--model-option", "max-tokens=512"]},
}


def parse():
    parser = argparse.ArgumentParser(prog="perf/private_accuracy.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {' '.join(CASES)} [all of MNIST]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--raw", type=pathlib.Path, default=runs.TOP / "data" / "raw" / "mnist", help="folder of MNIST's original files")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of a case, for trying; kept nowhere")
    given = parser.parse_args()
    given.data_root = given.data_root.resolve()  # runs have another current folder
    if unknown := set(given.cases) - set(CASES):
        parser.error(f"there is no case {min(unknown)}; use {', '.join(CASES)}")
    given.cases = given.cases or [case for case in CASES if case.startswith("mnist")]
    given.set = dict(change_of(text, given.cases, parser) for text in given.set)
    return given


def change_of(text, cases, parser):
    """KEY=VALUE as both, where each case has a value of this kind."""
    key, _, value = text.partition("=")
    keys = [key for key, old in CASES[cases[0]].items() if isinstance(old, (int, float, str))]
    if key not in keys:
        parser.error(f"--set {text}: of a case {', '.join(keys)} can be set, as KEY=VALUE")
    if isinstance(CASES[cases[0]][key], str):
        return key, value
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return parser.error(f"--set {text}: {key} is a number")


def stage_features(given, scratch):
    """Features that need no data but the image itself: perf/training/scattering.py."""
    if (given.data_root / "mnist-scattering").exists():
        return
    features = scratch / "features.npz"
    subprocess.run([sys.executable, str(runs.TOP / "perf/training/scattering.py"), str(given.raw), str(features)], check=True)
    subprocess.run([runs.program(), "stage", "mnist-scattering", "--from", str(features), "--inputs", "x", "--targets", "y",
                    "--data-root", str(given.data_root)], check=True)
    features.unlink()


def export_linear(path):
    sys.path.insert(0, str(runs.TOP / "jobs"))
    import torch
    from export_model import export_model

    layer = torch.nn.Linear(3969, 10)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    export_model(torch.nn.Sequential(layer), torch.zeros(2, 3969), str(path), golden=False)


def start_of_words(path, dataset):
    """Weights of nbow that no data chose: each word counts nothing, and the classes are each other's opposite."""
    words = len(json.loads((dataset / "dataset.json").read_text())["tokenizer"]["vocabulary"])
    with h5py.File(path, "w") as file:
        file["model/embedding.weight"] = np.zeros((words, 2), np.float32)
        file["model/fc.weight"] = np.float32([[1, -1], [-1, 1]])
        file["model/fc.bias"] = np.zeros(2, np.float32)


def train(case, seed, given, scratch):
    model, start = case["model"], []
    if model == "nbow":
        start_of_words(scratch / "start.h5", given.data_root / case["dataset"])
        start = ["--init-from", scratch / "start.h5"]
    if model.endswith(".pt2"):
        model = scratch / model
        if not model.exists():
            export_linear(model)
    command = runs.dtrain_command(1, scratch, "run", "--model", model, "--dataset", case["dataset"], "--data-root", given.data_root, "--seed", seed,
                                  "--global-batch", case["batch"], "--epochs", case["epochs"], "--learning-rate", case["rate"], "--grad-clip", 0,
                                  "--dp-clip", case["clip"], "--target-epsilon", case["target"], "--dp-delta", case["delta"], "--dp-accountant", "pld",
                                  "--checkpoint-every", "end", *case["options"], *start)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    runs.run(command, limit_s=7200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with h5py.File(scratch / "run" / "results.h5", "r", locking=False) as file:
        spent = file["privacy"][-1]
        return {"seed": seed, "test_accuracy": round(float(file["test"][0]["accuracy"]), 5),
                "validation_accuracy": round(float(file["epochs"][-1]["validation_accuracy"]), 5), "epsilon": round(float(spent["epsilon"]), 5),
                "target_epsilon": case["target"], "delta": case["delta"], "accountant": "pld", "noise": round(float(spent["noise_multiplier"]), 5),
                "clip": case["clip"], "batch": case["batch"], "steps": int(spent["releases"]), "learning_rate": case["rate"],
                "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1), "options": " ".join(map(str, case["options"]))}


def known():
    if not TABLE.exists():
        return set()
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {(row["case"], int(row["seed"])) for row in csv.DictReader(file)}


def add_row(row):
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    new = not TABLE.exists()
    with open(TABLE, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())


def main():
    given = parse()
    with tempfile.TemporaryDirectory(prefix="dtrain-accuracy-") as folder:
        scratch = pathlib.Path(folder)
        for name in given.cases:
            case = {**CASES[name], **given.set}
            if case["dataset"] == "mnist-scattering":
                stage_features(given, scratch)
            for seed in range(1, given.seeds + 1):
                if not given.set and (name, seed) in known():
                    continue
                row = {"case": name, **train(case, seed, given, scratch)}
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                if not given.set:
                    add_row(row)


if __name__ == "__main__":
    main()
