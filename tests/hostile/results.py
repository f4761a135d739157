"""results.h5 of others for `report`, which reads and never writes."""

import random

import h5py
import numpy as np

import fixtures
import judge
from case import Family
from trained import shows

FAMILY = Family("results")
REPORT = ("report", "run")
LOSS = "validation_f1"  # of what the run has, whatever else is wrong


def changed(change):
    """prepare: a copy of the run whose results.h5 `change(file)` changed."""
    def prepare(folder, given):
        run = fixtures.copy(given, folder, "run")
        with h5py.File(run / "results.h5", "r+") as file:
            change(file)
    return prepare


def attribute(name, value):
    def change(file):
        file.attrs.pop(name, None)
        if value is not None:
            file.attrs[name] = value
    return changed(change)


def table(path, make):
    """The table `path` is replaced by what `make(rows)` gives."""
    def change(file):
        rows = file[path][()]
        del file[path]
        made = make(rows)
        if made is not None:
            file[path] = made
    return changed(change)


FAMILY.add("as it should be", changed(lambda file: None), *REPORT, code=0, quick=True)
ATTRIBUTES = {
    "no format": ("format", None, 3), "another format": ("format", "x", 3), "a number as format": ("format", 5, 3), "version 99": ("version", 99, 3),
    "a version of text": ("version", "one", 3), "no version": ("version", None, 3), "no world size": ("world_size", None, 3),
    "a world size of text": ("world_size", "two", 3), "a negative world size": ("world_size", -1, 3),
    "a world size of 0": ("world_size", 0, 3), "a world size of 2^62": ("world_size", 2**62, 3), "a status of noise": ("status", "\x1b[2J", {0, 3}), "a number as status": ("status", 3, 3),
    "a name of control characters": ("name", "\x1b]0;title\x07\x1b[2J", {0, 3}), "a model of a list": ("model", [1, 2], 3),
    "a model that is not UTF-8": ("model", np.bytes_(b"m\xff\xfe"), {0, 3}), "a name of 60 KB": ("name", "x" * 60_000, {0, 3}),
    "a mesh of control characters": ("mesh", "\r\x1b[31m", {0, 3}),
}
SHOWN = {"a status of noise": shows("status    incomplete", LOSS), "a name of control characters": shows(r"\x1b]0;title\x07", LOSS),
         "a model that is not UTF-8": shows("1 rank", LOSS), "a name of 60 KB": shows("x" * 90, LOSS, without=("x" * 400,)),
         "a mesh of control characters": shows(r"\x1b[31m", LOSS)}
for name, (key, value, code) in ATTRIBUTES.items():
    FAMILY.add(name, attribute(key, value), *REPORT, code=code, check=SHOWN.get(name), quick=name == "a name of control characters")


def no_field(field):
    def make(rows):
        kept = [name for name in rows.dtype.names if name != field]
        return rows[kept].astype([(name, rows.dtype[name]) for name in kept])
    return make


def filled(field, value):
    def make(rows):
        rows[field] = value
        return rows
    return make


def as_text(field):
    def make(rows):
        kinds = [(name, "S8" if name == field else rows.dtype[name]) for name in rows.dtype.names]
        made = np.zeros(len(rows), kinds)
        made[field] = b"\x1b[2J\x07"
        return made
    return make


TABLES = {
    "no epochs": ("epochs", lambda rows: None), "epochs of numbers": ("epochs", lambda rows: np.zeros(4)),
    "epochs of two dims": ("epochs", lambda rows: np.repeat(rows[None], 2, 0)), "epochs without the field epoch": ("epochs", no_field("epoch")),
    "epochs without losses": ("epochs", no_field("train_loss")), "an epoch of text": ("epochs", as_text("epoch")),
    "an epoch of 2^62": ("epochs", filled("epoch", 2**62)), "a negative epoch": ("epochs", filled("epoch", -5)),
    "losses that are not numbers": ("epochs", filled("train_loss", np.nan)), "losses of 1e300": ("epochs", filled("train_loss", 1e300)),
    "no topology": ("topology", lambda rows: None), "no rows of topology": ("topology", lambda rows: rows[:0]),
    "topology of numbers": ("topology", lambda rows: np.zeros(3)), "no test": ("test", lambda rows: None), "no epochs of a rank":
    ("ranks/00000/epochs", lambda rows: None), "events of a rank of numbers": ("ranks/00000/events", lambda rows: np.zeros(3)),
    "samples of a rank with other fields": ("ranks/00000/samples", lambda rows: np.zeros(2, [("a", "f4"), ("b", "S3")])),
}
LEFT_OUT = shows("left out  rank 00000", LOSS)
SHOWN = {"epochs without the field epoch": shows("    -  ", LOSS), "epochs without losses": shows("1           -  ", LOSS),
         "an epoch of 2^62": shows(f"{2**62:,}", LOSS), "a negative epoch": shows(" -5 ", LOSS), "losses that are not numbers": shows("1           -  ", LOSS),
         "losses of 1e300": shows("1e+300", LOSS), "no rows of topology": shows("1 rank", LOSS), "no epochs of a rank": LEFT_OUT,
         "events of a rank of numbers": LEFT_OUT, "samples of a rank with other fields": LEFT_OUT}
for name, (path, make) in TABLES.items():
    FAMILY.add(name, table(path, make), *REPORT, code={0, 3}, check=SHOWN.get(name), quick=name == "epochs of two dims")
    if path == "epochs":
        FAMILY.add(f"{name}, compared", table(path, make), *REPORT, "--compare", "--csv", code={0, 3})


def hostnames(text):
    def make(rows):
        field = next(name for name in rows.dtype.names if rows.dtype[name].kind == "S")
        rows[field] = text
        return rows
    return make


FAMILY.add("hosts of control characters", table("topology", hostnames(b"\x1b[2J\x07h")), *REPORT, code={0, 3},
           check=shows(r"\x1b[2J\x07h", LOSS))


def replaced(path, make):
    def change(file):
        if path in file:
            del file[path]
        make(file)
    return changed(change)


def declared(file):
    """A table that says it has 2^40 rows; none was written."""
    kind = np.dtype([("epoch", "i8"), ("train_loss", "f8")])
    file.create_dataset("epochs", (2**40,), kind, chunks=(1024,))


def wide(file):
    """Strings of a megabyte each, declared but not there."""
    file.create_dataset("epochs", (4096,), np.dtype([("epoch", "i8"), ("text", "S1048576")]), chunks=(1,))


def bomb(file):
    file.create_dataset("epochs", (2**28,), np.dtype([("epoch", "i8"), ("train_loss", "f8")]), chunks=(2**22,), compression="gzip")


def of_another_run(folder, given):
    """A report shows nothing of a file that is not the run's."""
    other, run = (fixtures.copy(given, folder, "run", name) / "results.h5" for name in ("other", "run"))
    with h5py.File(other, "r+") as file:
        rows = file["epochs"][()]
        rows["train_loss"] = 77.5
        file["epochs"][...] = rows
    with h5py.File(run, "r+") as file:
        del file["epochs"]
        file["epochs"] = h5py.ExternalLink("../other/results.h5", "/epochs")


FAMILY.add("epochs of another run", of_another_run, *REPORT, code=3, says=("another file",), quick=True)
LINKS = {"epochs in another file": lambda file: file.__setitem__("epochs", h5py.ExternalLink("other.h5", "/epochs")),
         "epochs that link to themselves": lambda file: file.__setitem__("epochs", h5py.SoftLink("/epochs")), "2^40 epochs": declared,
         "texts of a megabyte": wide, "epochs that unpack to gigabytes": bomb,
         "epochs of variable text": lambda file: file.create_dataset("epochs", (3,), [("epoch", h5py.string_dtype())])}
for name, make in LINKS.items():
    FAMILY.add(name, replaced("epochs", make), *REPORT, code={0, 3} if name == "epochs of variable text" else 3, quick=name == "2^40 epochs")
GROUPS = {"no ranks": lambda file: None, "ranks that are no group": lambda file: file.__setitem__("ranks", 5),
          "a rank that is no number": lambda file: file.create_group("ranks/\x1b[2J"), "a rank of 2^70": lambda file: file.create_group(f"ranks/{2**70}"),
          "a negative rank": lambda file: file.create_group("ranks/-0001"), "an empty rank": lambda file: file.create_group("ranks/00000"),
          "a rank of another file": lambda file: file.__setitem__("ranks/00000", h5py.ExternalLink("other.h5", "/"))}
for name, make in GROUPS.items():
    FAMILY.add(name, replaced("ranks", make), *REPORT, code={0, 3},
               check=LEFT_OUT if name in ("an empty rank", "a rank of another file") else shows("1 rank", LOSS))


# ---- the file and the folder ----------------------------------------------------------------------------------------
def with_run(change):
    def prepare(folder, given):
        change(fixtures.copy(given, folder, "run"))
    return prepare


def noise(run):
    content = bytearray((run / "results.h5").read_bytes())
    choice = random.Random(8)
    for _ in range(200):
        content[choice.randrange(96, len(content))] = choice.randrange(256)
    (run / "results.h5").write_bytes(content)


FILES = {"is cut": lambda run: (run / "results.h5").write_bytes((run / "results.h5").read_bytes()[:3000]), "is empty": lambda run: (run / "results.h5").write_bytes(b""),
         "is text": lambda run: (run / "results.h5").write_text("epochs: 3\n"), "is a folder": lambda run: ((run / "results.h5").unlink(), (run / "results.h5").mkdir()),
         "is full of noise": noise}
for name, change in FILES.items():
    FAMILY.add(f"the file {name}", with_run(change), *REPORT, code={0, 3} if change is noise else {2, 3} if "folder" in name else 3)


def flipped(seed):
    def change(run):
        content = bytearray((run / "results.h5").read_bytes())
        choice = random.Random(seed)
        for _ in range(3):
            content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
        (run / "results.h5").write_bytes(content)
    return change


for seed in range(30):
    FAMILY.add(f"three flipped bits, choice {seed}", with_run(flipped(seed)), *REPORT, code={0, 3})
FAMILY.add("a state of control characters", with_run(lambda run: (run / "state").write_text("\x1b[2J\x07running\n")), *REPORT, code={0, 3}, check=shows("status    ", LOSS))
FAMILY.add("a run that seems to train", with_run(lambda run: ((run / "state").write_text("running\n"), (run / "alive").write_text("\x1b[2J 1\n"))),
           *REPORT, code={0, 3}, check=shows("status    ", LOSS))
FAMILY.add("no run at all", lambda folder, given: (folder / "run").mkdir(), *REPORT, code=2, quick=True)


def of_a_running_run(folder, given):
    """A rank's file of noise beside results.h5 that is not finished."""
    run = fixtures.copy(given, folder, "run")
    (run / "ranks").mkdir(exist_ok=True)
    (run / "ranks" / "rank-00000.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"x" * 500)
    (run / "ranks" / "rank-00001.h5").write_bytes(b"")
    with h5py.File(run / "results.h5", "r+") as file:
        file.attrs["status"] = "running"


FAMILY.add("files of ranks that are noise", of_a_running_run, *REPORT, code={0, 3}, check=shows("left out  rank 0", "left out  rank 1", LOSS))


def untouched(folder, given, output):
    """report leaves a run as it was, also one that looks as if it had died."""
    before = (folder / "fingerprint").read_text()
    return "" if judge.fingerprint(folder / "run") == before else "report wrote into the run"


def died(folder, given):
    run = fixtures.copy(given, folder, "run")
    with h5py.File(run / "results.h5", "r+") as file:
        file.attrs["status"] = "running"
    (run / "state").write_text("running\n")
    (folder / "fingerprint").write_text(judge.fingerprint(run))


FAMILY.add("a run that died", died, *REPORT, code=0, check=untouched, quick=True)
