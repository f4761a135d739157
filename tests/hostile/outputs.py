"""Where commands write: what dtrain keeps and what others have put there stays as it is, and what cannot be written is said."""

import json
import os
import shutil

import h5py
import numpy as np

import fixtures
from case import TRAIN, Family

FAMILY = Family("outputs")
SHARD = "test-00000-of-00001.h5"
THREADS = ("--threads", "1")
GO_ON = (*TRAIN[:5], "4", *TRAIN[6:], "--dataset", "table", "--data-root", "{given}")  # two steps more


def copies(*names):
    def prepare(folder, given):
        for name in names:
            fixtures.copy(given, folder, name)
    return prepare


def unchanged(name):
    """after: the file is the fixture's."""
    return lambda folder, given, output: "" if (folder / name).read_bytes() == (given / name).read_bytes() else f"{name} was written to"


PART = "checkpoint/part-00000.h5"
OVER = {
    "export over the part that it reads": ("checkpoint", ("export", "checkpoint", PART), PART),
    "export over the manifest": ("checkpoint", ("export", "checkpoint", "checkpoint/manifest.json"), "checkpoint/manifest.json"),
    "export over a run's results": ("run", ("export", "run", "run/results.h5"), "run/results.h5"),
    "predictions over the checkpoint": ("checkpoint", ("evaluate", "checkpoint", "--data-root", "{given}", "--predictions", PART, *THREADS), PART),
    "predictions over the shard that is evaluated": ("table", ("evaluate", "{given}/checkpoint", "--data-root", ".", "--dataset", "table", "--predictions",
                                                               f"table/{SHARD}", *THREADS), f"table/{SHARD}"),
    "answers over the checkpoint": ("of_rows", ("predict", "of_rows", "--from", "{given}/rows.csv", "--output", "of_rows/part-00000.h5", *THREADS),
                                    "of_rows/part-00000.h5"),
    "pictures over a run's results": ("run", ("report", "run", "--html", "run/results.h5"), "run/results.h5"),
    "pictures over the state": ("run", ("report", "run", "--html", "run/state"), "run/state"),
}
for name, (fixture, words, kept) in OVER.items():
    FAMILY.add(name, copies(fixture), *words, code=2, says=(kept, "name another file"), after=unchanged(kept),
               quick=name in ("export over the part that it reads", "pictures over a run's results"))


def others(folder, given):
    """Files of the same names that are none of dtrain's."""
    for name in ("manifest.json", "dataset.json"):
        (folder / name).write_text("{}")
    (folder / "results.h5").write_bytes(b"answers of yesterday")


FAMILY.add("answers over those of yesterday", others, "predict", "{given}/of_rows", "--from", "{given}/rows.csv", "--ignore", "kind", "--output", "results.h5", *THREADS,
           code=0, quick=True)
FAMILY.add("pictures in place of a FIFO", lambda folder, given: (fixtures.copy(given, folder, "run"), os.mkfifo(folder / "page.html")), "report", "run",
           "--html", "page.html", code=2, quick=True)


# ---- a run's folder -------------------------------------------------------------------------------------------------
def run_with(change):
    """prepare: a copy of the run, under the name that training gives its own, changed."""
    def prepare(folder, given):
        run = folder / "runs" / "out"
        shutil.copytree(given / "run", run, symlinks=True)
        change(run)
    return prepare


def with_a_thesis(run):
    place = run / "checkpoints" / "step-00000001"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")


def thesis_is_there(folder, given, output):
    return "" if (folder / "runs/out/checkpoints/step-00000001/thesis.txt").exists() else "the file of others is gone"


FAMILY.add("a folder of others among checkpoints", run_with(with_a_thesis), *GO_ON, "--keep", "1", code=0, check=thesis_is_there, quick=True)


def followed_links(run):
    for link in ("best", "last"):
        place = run / "checkpoints" / link
        target = place.resolve()
        place.unlink()
        shutil.copytree(target, place)


FAMILY.add("a run copied with its links followed", run_with(followed_links), *GO_ON, code=4, says=("folder", "cp -a"), quick=True)
RESULTS = {"half of it": lambda path: path.write_bytes(path.read_bytes()[:3000]), "text": lambda path: path.write_text("results\n"),
           "nothing": lambda path: path.write_bytes(b"")}
for name, spoil in RESULTS.items():
    FAMILY.add(f"results to go on from are {name}", run_with(lambda run, spoil=spoil: spoil(run / "results.h5")), *GO_ON, code=0, says=("results.h5.damaged", "missing"),
               quick=name == "half of it")


# ---- what a model says ----------------------------------------------------------------------------------------------
def no_numbers(folder, given):
    checkpoint = fixtures.copy(given, folder, "of_rows")
    with h5py.File(next(checkpoint.glob("*.h5")), "r+") as file:
        file["model/input_fc.weight"][0, 0] = np.nan
    fixtures.reseal(checkpoint)


FAMILY.add("weights that are no numbers", no_numbers, "predict", "of_rows", "--from", "{given}/rows.csv", "--ignore", "kind", "--output", "out.csv", *THREADS,
           code=1, says=("of_rows", "no numbers"), after=lambda folder, given, output: "out.csv is there" if (folder / "out.csv").exists() else "", quick=True)


def sites_of(number):
    """prepare: a dataset with owners, one of whose samples is of another one."""
    def prepare(folder, given):
        table = fixtures.copy(given, folder, "table")
        facts = json.loads((table / "dataset.json").read_text())
        (table / "dataset.json").write_text(json.dumps(facts | {"sites": ["east", "west"]}))
        for split, count in fixtures.SAMPLES.items():
            with h5py.File(table / f"{split}-00000-of-00001.h5", "r+") as file:
                file["sites"] = np.arange(count, dtype=np.int32) % 2
                if split == "train":
                    file["sites"][3] = number
    return prepare


for number, code in ((1, 0), (2, 3), (-1, 3), (2**30, 3)):
    FAMILY.add(f"a sample of site {number} of 2", sites_of(number), "--model", "mlp", "--model-option", "hidden=8", "--dataset", "table", "--data-root", ".", "--strategy",
               "fedavg", "--rounds", "1", *THREADS, "--name", "out", "--quiet", code=code, says=() if code == 0 else ("sample 3", SHARD.replace("test", "train")),
               quick=number == 2)

