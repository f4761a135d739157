"""Federated training with differential privacy of each record: heart disease at four hospitals with the records and the split of
FLamby (data/heart_disease_flamby.py), logistic regression, over several seeds, by hospital.

Inputs are scaled by constants that name no record: (age - 50) / 10, (pressure - 130) / 20, (cholesterol - 200) / 100,
(heart rate - 150) / 25. So nothing but the local steps releases anything of a training record. The model is that of the last round. A
round is one local step with all records of a hospital. Learning rate, clip norm and rounds were chosen by cross-validation on the
training records, which the epsilons do not count; test records chose nothing.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import runs

sys.path[:0] = [str(runs.TOP / "tests/support")]
from dtrain_run import checkpoint_tensors  # noqa: E402  # isort: skip

SCALES = {"age": (50, 10), "pressure": (130, 20), "cholesterol": (200, 100), "rate": (150, 25)}
ROUNDS, DELTA = 40, 1e-3
ROUND = ["--strategy", "fedavg", "--local-batch", "all", "--rounds", ROUNDS, "--optimizer", "sgd", "--momentum", 0, "--schedule", "constant",
         "--learning-rate", 1, "--threads", 1]
METHODS = {"no privacy": [], **{f"epsilon {epsilon}": ["--dp-clip", 1, "--target-epsilon", epsilon, "--dp-delta", DELTA, "--dp-accountant", "pld"]
                                for epsilon in (5, 3, 1)}}


def tables(records, folder):
    """Scaled train.csv and test.csv; the test records as (inputs, hospital, disease)."""
    subprocess.run([sys.executable, runs.TOP / "data/heart_disease_flamby.py", records, folder / "plain", "--standardize", "off"], check=True)
    test = []
    for split in ("train", "test"):
        with open(folder / "plain" / f"{split}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            for column, (middle, width) in SCALES.items():
                row[column] = (float(row[column]) - middle) / width
        with open(folder / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        test = [([float(value) for key, value in row.items() if key not in ("hospital", "disease")], row["hospital"], int(row["disease"]))
                for row in rows]
    return test


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, metavar="FOLDER", help="with processed.cleveland.data and the others, of UCI")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=runs.TOP / "perf/results/privacy")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        test = tables(arguments.records.resolve(), folder)
        inputs, hospitals, disease = np.array([row[0] for row in test]), np.array([row[1] for row in test]), np.array([row[2] for row in test])
        command = [str(runs.TOP / "tests/support/mpirun.sh"), "1", runs.program()]
        # The validation split decides nothing: the last model is taken.
        runs.run([*command, "stage", "heart", "--from", "train.csv", "--validation", "train.csv", "--test", "test.csv", "--target", "disease",
                  "--site", "hospital", "--standardize", "off"], cwd=folder)
        for method, options in METHODS.items():
            found = []
            for seed in range(1, arguments.seeds + 1):
                runs.run([*command, "--quiet", "--overwrite", "--name", "run", "--dataset", "heart", "--model", "mlp", "--model-option", "hidden=",
                          "--seed", str(seed), *map(str, ROUND), *map(str, options)], cwd=folder)
                tensors = checkpoint_tensors(folder / "runs/run/checkpoints" / f"step-{ROUNDS:08}")
                said = (inputs @ tensors["output_fc.weight"].T + tensors["output_fc.bias"]).argmax(axis=1)
                with h5py.File(folder / "runs/run/results.h5") as file:
                    epsilon = float(file["privacy"]["epsilon"][-1]) if options else float("inf")
                    noise = float(file["privacy"]["noise_multiplier"][-1]) if options else 0.0
                sites = {str(name): float((said == disease)[hospitals == name].mean()) for name in np.unique(hospitals)}
                found.append(list(sites.values()))
                rows += [{"method": method, "seed": seed, "epsilon": round(epsilon, 4), "delta": DELTA, "noise": round(noise, 4), "site": name,
                          "accuracy": round(value, 4)} for name, value in sites.items()]
            mean = np.mean(found, axis=0)
            print(f"{method}: " + ", ".join(f"{name} {value:.3f}" for name, value in zip(sites, mean))
                  + f"; mean of hospitals {mean.mean():.4f}, deviation over seeds {np.mean(found, axis=1).std(ddof=1):.4f}", flush=True)
    runs.write_rows(f"{runs.free_stem(arguments.out, 'hospitals')}.csv", rows)


if __name__ == "__main__":
    main()
