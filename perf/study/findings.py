"""What the runs of the study come to, beside its published values: read by perf/notebooks/study.ipynb.

The rule of the closing table. A metric is a number per seed: losses and accuracies of the last epoch or of the test
split, times per epoch as the median over epochs after the first. Let d be the mean over the seeds of two ranks minus
that of one rank, and s the standard error of d, sqrt(v1 / n1 + v2 / n2) with the seeds' sample variances. The metric
improves or deteriorates if d points that way and |d| exceeds both 2 s and a floor: 0.005 for an accuracy, 1 % of one
rank's value for a loss, 10 % for a time. Otherwise there is no change. With a single seed s is unknown and only the
floor decides, which the table marks with a star.
"""

import argparse
import csv
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "training"))
from dated import free_stem  # noqa: E402

METRICS = ["train_loss", "validation_loss", "train_accuracy", "validation_accuracy", "test_loss", "test_accuracy",
           "train_time_s", "validation_time_s"]
ONE_RANK = "one rank"


@dataclass
class Case:
    """The runs of one case, one per seed."""
    model: str
    name: str
    epochs: list = field(default_factory=list)  # a table per seed
    ranks: list = field(default_factory=list)   # per seed the tables of the ranks
    tests: list = field(default_factory=list)   # a row per seed, or None

    def values(self, metric):
        """One number per seed; NaN where the model has no such notion."""
        if metric.startswith("test_"):
            return np.array([float(row[metric[5:]]) if row is not None else math.nan for row in self.tests])
        if metric.endswith("_time_s"):
            return np.array([float(np.median(table[metric][1:] if len(table) > 1 else table[metric]))
                             for table in self.epochs])
        return np.array([float(table[metric][-1]) for table in self.epochs])


def complete_runs(paths):
    """Those of one case's results.h5 that are a whole seed; says which are not."""
    known = []
    for path in paths:
        with h5py.File(path, "r") as results:
            known.append((path, results.attrs["status"].decode(), len(results["epochs"])))
    most = max((epochs for _, status, epochs in known if status == "completed"), default=0)
    for path, status, epochs in known:
        if status != "completed":
            print(f"study: {path.parent.name} is left out: {status} after {epochs} epochs; jobs/study.sh goes on with it")
        elif epochs < most:
            print(f"study: {path.parent.name} is left out: it has {epochs} epochs, others of its case {most}")
    return [path for path, status, epochs in known if status == "completed" and epochs == most > 0]


def read_cases(folder):
    """The cases of cases.csv that have runs with an epoch below `folder`, by model and then case. A run that is not complete,
    or has fewer epochs than another of its case, is no seed: it is named and left out."""
    found = {}
    with open(HERE / "cases.csv", newline="") as file:
        for row in csv.DictReader(file):
            words = row["case"].replace(",", "").split()
            pattern = "-".join([row["model"], *words]) + "-seed*/results.h5"
            for path in complete_runs(sorted(Path(folder).glob(pattern))):
                with h5py.File(path, "r") as results:
                    epochs = results["epochs"][:]
                    case = found.setdefault(row["model"], {}).setdefault(row["case"], Case(row["model"], row["case"]))
                    case.epochs.append(epochs)
                    groups = [results["ranks"].get(name) for name in sorted(results["ranks"])] if "ranks" in results else []
                    case.ranks.append([group["epochs"][:] for group in groups if group is not None])
                    case.tests.append(results["test"][0] if len(results["test"]) else None)
    return found


def published():
    """(model, metric) -> what the study printed."""
    with open(HERE / "published.csv", newline="") as file:
        return {(row["model"], row["metric"]): (float(row["one"]), float(row["two"]), row["verdict"])
                for row in csv.DictReader(file)}


def verdict(metric, one, two):
    """`improves`, `no change` or `deteriorates` by the rule above; None where a value is missing."""
    one, two = np.asarray(one, float), np.asarray(two, float)
    if len(one) == 0 or len(two) == 0 or np.isnan(one).any() or np.isnan(two).any():
        return None
    difference = two.mean() - one.mean()
    if metric.endswith("accuracy"):
        floor, better = 0.005, difference > 0
    else:
        floor, better = (0.1 if metric.endswith("time_s") else 0.01) * abs(one.mean()), difference < 0
    known = len(one) > 1 and len(two) > 1
    error = math.sqrt(one.var(ddof=1) / len(one) + two.var(ddof=1) / len(two)) if known else 0.0
    if abs(difference) <= max(floor, 2 * error):
        return "no change"
    return "improves" if better else "deteriorates"


def closing_table(cases):
    """Rows (model, case, metric, one rank, this case, verdict, published one, two, verdict); means over seeds."""
    rows = []
    values = published()
    for model, of_model in cases.items():
        base = of_model.get(ONE_RANK)
        if base is None:
            continue
        for name, case in of_model.items():
            if name == ONE_RANK:
                continue
            for metric in METRICS:
                word = verdict(metric, base.values(metric), case.values(metric))
                if word is None:
                    continue
                if min(len(base.epochs), len(case.epochs)) < 2:
                    word += " *"
                rows.append((model, name, metric, base.values(metric).mean(), case.values(metric).mean(), word,
                             *values.get((model, metric), (math.nan, math.nan, ""))))
    return rows


def write_epochs(cases, path):
    """Every epoch of every run, one row each."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "case", "run", "epoch", *METRICS[:4], "train_time_s", "validation_time_s"])
        for model, of_model in cases.items():
            for name, case in of_model.items():
                for run, epochs in enumerate(case.epochs, 1):
                    for row in epochs:
                        values = [row[metric] for metric in (*METRICS[:4], "train_time_s", "validation_time_s")]
                        writer.writerow([model, name, run, row["epoch"], *(f"{value:.6g}" for value in values)])


def page(cases, times):
    lines = ["| model | case | runs | metric | one rank | this case | verdict | the study's one, two | its verdict |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for model, name, metric, one, two, word, study_one, study_two, study_word in closing_table(cases):
        if metric.endswith("time_s") and not times:
            continue
        study = "" if math.isnan(study_one) else f"{study_one:g}, {study_two:g}"
        lines.append(f"| {model} | {name} | {len(cases[model][name].epochs)} | {metric} | {one:.4f} | {two:.4f} | {word} "
                     f"| {study} | {study_word} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Writes what the study's runs came to as a table and every epoch as CSV.")
    parser.add_argument("runs", type=Path, help="where jobs/study.sh left them, such as runs/study")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-times", action="store_true", help="the machine did other things meanwhile: leave times out")
    arguments = parser.parse_args()
    cases = read_cases(arguments.runs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = free_stem(arguments.out, "study")
    write_epochs(cases, stem.with_suffix(".csv"))
    rule = " ".join(__doc__.split("\n\n")[1].split())
    command = "`jobs/study.sh`, then `python perf/study/findings.py runs/study --out perf/results/study`."
    without = " Times are left out: the machine did other things meanwhile." if arguments.no_times else ""
    stem.with_suffix(".md").write_text(f"# The comparison study\n\n{command}\n\n{rule}{without}\n\n{page(cases, not arguments.no_times)}",
                                       encoding="utf-8")


if __name__ == "__main__":
    main()
