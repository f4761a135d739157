"""The rule of the study's closing table, on numbers made up for it; and its tables fit one another."""

import contextlib
import csv
import io
import math
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, sys.argv[1])
import findings  # noqa: E402

# Accuracy: beyond the floor of 0.005 and twice the standard error.
assert findings.verdict("validation_accuracy", [.90, .90, .90], [.92, .92, .92]) == "improves"
assert findings.verdict("validation_accuracy", [.92, .92, .92], [.90, .90, .90]) == "deteriorates"
assert findings.verdict("validation_accuracy", [.900, .900], [.904, .904]) == "no change"
assert findings.verdict("validation_accuracy", [.85, .95], [.87, .97]) == "no change"  # the seeds differ more
# Loss: less is better, 1 % is the floor. Time: 10 %.
assert findings.verdict("train_loss", [1.0, 1.0], [0.9, 0.9]) == "improves"
assert findings.verdict("train_loss", [1.0, 1.0], [1.1, 1.1]) == "deteriorates"
assert findings.verdict("train_loss", [1.0, 1.0], [0.995, 0.995]) == "no change"
assert findings.verdict("train_time_s", [10.0, 10.0], [9.5, 9.5]) == "no change"
assert findings.verdict("train_time_s", [10.0, 10.0], [5.0, 5.2]) == "improves"
# One seed: the floor alone; nothing to compare: no verdict.
assert findings.verdict("test_loss", [1.0], [0.5]) == "improves"
assert findings.verdict("test_accuracy", [math.nan], [0.5]) is None
assert findings.verdict("test_accuracy", [], [0.5]) is None

# A run that was killed, or has fewer epochs than its case, is no seed.
with tempfile.TemporaryDirectory() as folder:
    for seed, status, epochs in ((1, "completed", 3), (2, "running", 2), (3, "completed", 3), (4, "completed", 1), (5, "running", 0)):
        run = Path(folder) / f"mlp-one-rank-seed{seed}"
        run.mkdir()
        with h5py.File(run / "results.h5", "w") as file:
            file.attrs["status"] = np.bytes_(status)
            file["epochs"] = np.full(epochs, seed, [("train_loss", "f8")])
            file["test"] = np.zeros(0, "f8")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        cases = findings.read_cases(folder)
    assert cases["mlp"]["one rank"].values("train_loss").tolist() == [1, 3]
    lines = said.getvalue().splitlines()
    assert len(lines) == 3 and all(f"seed{seed} is left out" in line for seed, line in zip((2, 4, 5), lines)), lines

with open(findings.HERE / "cases.csv", newline="") as file:
    models = {row["model"] for row in csv.DictReader(file)}
assert models == {model for model, _ in findings.published()}, models
assert {metric for _, metric in findings.published()} <= set(findings.METRICS)
assert {word for _, _, word in findings.published().values()} == {"improves", "no change", "deteriorates"}
