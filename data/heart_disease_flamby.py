#!/usr/bin/env python3
"""Makes two tables, train.csv and test.csv, of UCI's heart disease with the records, the inputs and the split of FLamby, whose
figures are then comparable; `data/fetch.sh heart-disease-flamby` stages them.

    heart_disease_flamby.py FROM TO [--standardize site|pooled|off]

FROM has processed.*.data. heart-disease-flamby.csv says which records are of which split, and how that was found. The 13 inputs:
ten findings without slope, vessels and thal; of them chest pain (1 to 4) is three columns of 0 and 1, and the electrocardiogram
(0 to 2) two. They become (x - mean) / deviation, both of the training records of their hospital (`site`, as FLamby's) or of all
(`pooled`); the deviation is that of a sample (n - 1). A column that is the same in all training records of a hospital is divided
by 1; FLamby's by 1e-9. Statistics of a hospital that it computes itself are no secret to it, but they are not private to others who
see the model: docs/privacy.md.
"""

import argparse
import csv
import statistics
import sys
from pathlib import Path

SPLITS = Path(__file__).resolve().with_name("heart-disease-flamby.csv")
COLUMNS = ["age", "sex", "pressure", "cholesterol", "sugar", "rate", "angina", "depression",
           "pain_2", "pain_3", "pain_4", "ecg_1", "ecg_2"]
PLAIN, PAIN, ECG, DISEASE = (0, 1, 3, 4, 5, 7, 8, 9), 2, 6, 13  # in UCI's files


def fail(problem):
    sys.exit(f"heart_disease_flamby: {problem}")


def records(folder):
    """(hospital, split, inputs, disease) of each record, in the order of the file of splits."""
    rows = {}
    with open(SPLITS, encoding="utf-8") as file:
        for entry in csv.DictReader(line for line in file if not line.startswith("#")):
            hospital = entry["hospital"]
            path = folder / f"processed.{hospital}.data"
            if hospital not in rows:
                if not path.is_file():
                    fail(f"{path}: not there; take it with data/fetch.sh heart-disease --no-stage")
                with open(path, newline="", encoding="utf-8") as table:
                    rows[hospital] = list(csv.reader(table))
            try:
                cells = rows[hospital][int(entry["row"])]
                pain, ecg = float(cells[PAIN]), float(cells[ECG])
                inputs = [float(cells[k]) for k in PLAIN]
                inputs += [float(pain == k) for k in (2, 3, 4)] + [float(ecg == k) for k in (1, 2)]
                disease = int(float(cells[DISEASE]) > 0)
            except (IndexError, ValueError):
                fail(f"{path}: row {entry['row']} is not the record that {SPLITS.name} means; take the file of data/heart-disease.recipe")
            yield hospital, entry["split"], inputs, disease


def scales(found, of):
    """By column (mean, deviation) of the training records for which `of(hospital)` holds."""
    training = [inputs for hospital, split, inputs, _ in found if split == "train" and of(hospital)]
    return [(statistics.fmean(column), statistics.stdev(column) or 1.0) for column in zip(*training)]


def write_tables(found, target, standardize):
    """train.csv and test.csv in the folder `target`, of (hospital, split, inputs, disease)."""
    hospitals = sorted({hospital for hospital, *_ in found})
    scale = {name: [(0.0, 1.0)] * len(COLUMNS) for name in hospitals}
    if standardize == "site":
        scale = {name: scales(found, lambda other, name=name: other == name) for name in hospitals}
    elif standardize == "pooled":
        scale = dict.fromkeys(hospitals, scales(found, lambda _: True))
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        with open(target / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, "hospital", "disease"])
            for hospital, of, inputs, disease in found:
                if of == split:
                    scaled = [(x - mean) / deviation for x, (mean, deviation) in zip(inputs, scale[hospital])]
                    writer.writerow([*(f"{x:.9g}" for x in scaled), hospital, disease])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="FROM")
    parser.add_argument("target", type=Path, metavar="TO")
    parser.add_argument("--standardize", choices=["site", "pooled", "off"], default="site")
    arguments = parser.parse_args()
    write_tables(list(records(arguments.source)), arguments.target, arguments.standardize)


if __name__ == "__main__":
    main()
