"""The rule of the study's closing table, on numbers made up for it; and its tables fit one another."""

import csv
import math
import sys

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

with open(findings.HERE / "cases.csv", newline="") as file:
    models = {row["model"] for row in csv.DictReader(file)}
assert models == {model for model, _ in findings.published()}, models
assert {metric for _, metric in findings.published()} <= set(findings.METRICS)
assert {word for _, _, word in findings.published().values()} == {"improves", "no change", "deteriorates"}
