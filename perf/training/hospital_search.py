"""Heart disease at four hospitals with FLamby's records and split, logistic regression: rates, rounds and what each method has besides are
chosen by cross-validation within the training records, and then the test records are measured once, over several seeds.

Each hospital's training records are dealt to five folds, ill and well ones apart. Four folds train, and the fifth is measured; inputs are
standardised by the four. A setting's score is the mean of the four hospitals' accuracies over all folds, the measure of FLamby's page; of
equal scores the first in the order below counts. Local work is FLamby's, two epochs in batches of 4 for a round, and no more than its 15 rounds.
`fedavg, then alone` begins with the model of the chosen FedAvg, which each hospital then trains on with its own records. All settings
tried are in hospital-search-DATE.csv, what the test records say of the chosen ones in hospital-chosen-DATE.csv.
"""

import argparse
import itertools
import random
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import runs

sys.path.insert(0, str(runs.TOP / "data"))
import heart_disease_flamby  # noqa: E402

FOLDS = 5
RATES, ROUNDS, SERVER_RATES = (0.003, 0.01, 0.03, 0.1), (5, 15), (0.01, 0.03, 0.1)
RUN = ["--model", "mlp", "--model-option", "hidden=", "--strategy", "fedavg", "--local-epochs", 2, "--local-batch", 4, "--optimizer", "sgd",
       "--momentum", 0, "--schedule", "constant", "--threads", 1, "--checkpoint-every", "end", "--record-steps", "off", "--quiet", "--overwrite"]
TOGETHER, ALONE = "fedavg", "fedavg, then alone"


def settings(**choices):
    """All combinations, each as options; the order is that of the arguments, the last one changing fastest."""
    names = [f"--{name.replace('_', '-')}" for name in choices]
    return [dict(zip(names, values)) for values in itertools.product(*choices.values())]


METHODS = {
    "one place": settings(learning_rate=RATES, rounds=ROUNDS, partition=["pooled"]),
    "each alone": settings(learning_rate=RATES, rounds=ROUNDS, federated_rule=["local"]),
    TOGETHER: settings(learning_rate=RATES, rounds=ROUNDS),
    "fedprox": settings(learning_rate=RATES, rounds=ROUNDS, proximal_mu=[0.1, 1]),
    "fednova": settings(learning_rate=RATES, rounds=ROUNDS, federated_rule=["fednova"]),
    "scaffold": settings(learning_rate=RATES, rounds=ROUNDS, federated_rule=["scaffold"]),
    "fedadam": settings(learning_rate=RATES, rounds=ROUNDS, server_optimizer=["adam"], server_rate=SERVER_RATES),
    ALONE: settings(learning_rate=(0.01, 0.03, 0.1), rounds=(2, 5, 15), federated_rule=["local"]),
}


def words(options):
    return " ".join(f"{name} {value}" for name, value in options.items())


def folds(found):
    """For each fold the training records, those of that fold marked as test records."""
    places = {}
    for number, (hospital, split, _, disease) in enumerate(found):
        if split == "train":
            places.setdefault((hospital, disease), []).append(number)
    fold_of, deal, draw = {}, itertools.cycle(range(FOLDS)), random.Random(1)
    for key in sorted(places):
        draw.shuffle(places[key])
        fold_of |= {number: next(deal) for number in places[key]}
    return [[(hospital, "test" if fold_of[number] == fold else "train", inputs, disease)
             for number, (hospital, split, inputs, disease) in enumerate(found) if split == "train"] for fold in range(FOLDS)]


class Search:
    def __init__(self, folder):
        self.folder = folder

    def stage(self, name, found, standardize):
        heart_disease_flamby.write_tables(found, self.folder / name, standardize)
        runs.run([runs.program(), "stage", name, "--from", self.folder / name / "train.csv", "--test", self.folder / name / "test.csv",
                  "--validation", "none", "--target", "disease", "--site", "hospital", "--standardize", "off",
                  "--data-root", self.folder / "staged"])

    def correct(self, dataset, name, seed, options):
        """{hospital: (right, of)} on the dataset's test records."""
        command = [runs.program(), *RUN, "--dataset", dataset, "--data-root", self.folder / "staged", "--output", self.folder / "runs",
                   "--name", name, "--seed", seed, *itertools.chain.from_iterable(options.items())]
        runs.run([str(word) for word in command], limit_s=300)
        pooled = options.get("--partition") == "pooled"
        with h5py.File(self.folder / "runs" / name / "results.h5") as file:
            sites = file["test_sites" if pooled else "test_clients"][:]
        names = sites["site" if pooled else "name"]
        return {name.decode(): (round(row["accuracy"] * row["samples"]), int(row["samples"])) for name, row in zip(names, sites)}

    def by_hospital(self, datasets, seed, options, begin=None):
        """Accuracies over all datasets together. `begin`: of the runs that these go on from, by dataset."""
        right, of = {}, {}
        for dataset in datasets:
            more = {} if begin is None else {"--init-from": self.folder / "runs" / begin[dataset] / "checkpoints/last"}
            for hospital, (hits, count) in self.correct(dataset, "run", seed, options | more).items():
                right[hospital] = right.get(hospital, 0) + hits
                of[hospital] = of.get(hospital, 0) + count
        return {hospital: right[hospital] / of[hospital] for hospital in sorted(of)}

    def train_together(self, datasets, seed, options):
        """Runs of the chosen FedAvg, kept to go on from."""
        names = {dataset: f"begin-{dataset}" for dataset in datasets}
        for dataset, name in names.items():
            self.correct(dataset, name, seed, options)
        return names


def row_of(standardize, method, options, accuracies, **more):
    return {"standardised": standardize, "method": method, **more, "options": words(options), **{name: round(value, 4) for name, value in accuracies.items()},
            "mean": round(float(np.mean(list(accuracies.values()))), 4)}


def choose(search, standardize, methods, tried, save):
    """{method: its best options}; adds a row of each setting, and saves after each method."""
    datasets = [f"{standardize}-{fold}" for fold in range(FOLDS)]
    chosen = {}
    for method in methods:
        begin = search.train_together(datasets, 1, chosen[TOGETHER]) if method == ALONE else None
        rows = [row_of(standardize, method, options, search.by_hospital(datasets, 1, options, begin)) for options in METHODS[method]]
        best = max(range(len(rows)), key=lambda number: rows[number]["mean"])
        chosen[method] = METHODS[method][best]
        tried += rows
        save()
        print(f"{standardize}, {method}: {rows[best]['mean']:.4f} with {words(chosen[method])}, of {len(rows)} settings", flush=True)
    return chosen


def measure(search, standardize, chosen, seeds, rows):
    for method, options in chosen.items():
        found = []
        for seed in range(1, seeds + 1):
            begin = search.train_together([standardize], seed, chosen[TOGETHER]) if method == ALONE else None
            found.append(search.by_hospital([standardize], seed, options, begin))
            rows.append(row_of(standardize, method, options, found[-1], seed=seed))
        means = {name: np.mean([one[name] for one in found]) for name in found[0]}
        print(f"{standardize}, {method}, test records: " + ", ".join(f"{name} {value:.3f}" for name, value in means.items())
              + f"; mean of 4 {np.mean(list(means.values())):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, metavar="FOLDER", help="with processed.cleveland.data and the others, of UCI")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS), help=f"'{ALONE}' needs {TOGETHER}")
    parser.add_argument("--standardize", nargs="*", choices=["site", "pooled"], default=["site", "pooled"], help="by the records of each hospital, as FLamby, or of all")
    parser.add_argument("--out", type=Path, default=runs.TOP / "perf/results/federated")
    arguments = parser.parse_args()
    if ALONE in arguments.methods and TOGETHER not in arguments.methods:
        parser.error(f"'{ALONE}' needs {TOGETHER}")
    methods = [method for method in METHODS if method in arguments.methods]
    found = list(heart_disease_flamby.records(arguments.records.resolve()))
    tried, measured = [], []
    stems = {name: runs.free_stem(arguments.out, f"hospital-{name}") for name in ("search", "chosen")}

    def save():
        comments = [runs.machine(), "perf/hospital_search.sh FOLDER"]
        for name, rows, what in (("search", tried, f"accuracy over {FOLDS} folds of the training records"),
                                 ("chosen", measured, "accuracy on the test records, with the settings that the training records chose")):
            runs.write_rows(f"{stems[name]}.csv", rows, [*comments, what])

    with tempfile.TemporaryDirectory(prefix="dtrain-hospitals-") as scratch:
        search = Search(Path(scratch))
        for standardize in arguments.standardize:
            for fold, records in enumerate(folds(found)):
                search.stage(f"{standardize}-{fold}", records, standardize)
            chosen = choose(search, standardize, methods, tried, save)
            search.stage(standardize, found, standardize)
            measure(search, standardize, chosen, arguments.seeds, measured)
            save()


if __name__ == "__main__":
    main()
