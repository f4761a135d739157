"""FIFOs, devices, folders and links where a file of bytes is meant: refused at once, not waited for."""

import os

import fixtures
from case import EVALUATE, EXPORT, STAGE, TRAIN, Family
from trained import shows

FAMILY = Family("special files")
SHARD = "train-00000-of-00001.h5"
TRAIN_TABLE = (*TRAIN, "--dataset", "table", "--data-root", ".")
TRAIN_GIVEN = (*TRAIN, "--dataset", "table", "--data-root", "{given}")


def fifo(path):
    os.mkfifo(path)


def device(name):
    return lambda path: os.symlink(f"/dev/{name}", path)


KINDS = {"a FIFO": fifo, "/dev/zero": device("zero"), "/dev/full": device("full"), "a folder": os.mkdir}


def at(path, fixture=None):
    """prepare for each kind: what lies at `path`, in a copy of a fixture if there is one."""
    def of(make):
        def prepare(folder, given):
            if fixture:
                fixtures.copy(given, folder, fixture)
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                place.unlink()
            make(place)
        return prepare
    return of


def part_of(make):
    def prepare(folder, given):
        place = next(fixtures.copy(given, folder, "checkpoint").glob("*.h5"))
        place.unlink()
        make(place)
    return prepare


PLACES = {
    "to stage": (at("in"), (*STAGE, "in"), 3), "to stage as csv": (at("in.csv"), (*STAGE, "in.csv", "--format", "csv"), 3),
    "to stage as idx": (at("in/train-images-idx3-ubyte"), (*STAGE, "in", "--format", "idx"), 3),
    "to stage as npy": (at("in/x.npy"), (*STAGE, "in", "--inputs", "x.npy", "--targets", "x.npy"), 3),
    "to stage as hdf5": (at("in.h5"), (*STAGE, "in.h5", "--format", "hdf5", "--inputs", "/x", "--targets", "/y"), 3),
    "to stage as a tar": (at("in.tar"), (*STAGE, "in.tar"), 3), "to stage in a folder": (at("in/a.csv"), (*STAGE, "in"), 3),
    "as configuration": (at("c.toml"), (*TRAIN_GIVEN, "--config", "c.toml"), 2),
    "as dataset.json": (at("table/dataset.json", "table"), TRAIN_TABLE, 3), "as shard": (at(f"table/{SHARD}", "table"), TRAIN_TABLE, 3),
    "as manifest": (at("checkpoint/manifest.json", "checkpoint"), EVALUATE, 4),
    "as checksum": (at("checkpoint/manifest.sha256", "checkpoint"), EVALUATE, 4), "as part": (part_of, EXPORT, 4),
    "as checkpoint": (at("checkpoint"), EVALUATE, 4), "as weights": (at("w.safetensors"), (*TRAIN_GIVEN, "--init-from", "w.safetensors"), 4),
    "as HDF5 weights": (at("w.h5"), (*TRAIN_GIVEN, "--init-from", "w.h5"), 4), "as results": (at("run/results.h5", "run"), ("report", "run"), 3),
    "as state": (at("run/state", "run"), ("report", "run"), 3), "as lines to translate":
    (at("lines.txt"), ("generate", "{given}/checkpoint", "--translate", "lines.txt"), {2, 3}),
    "as the model": (at("net.pt2"), (*TRAIN_GIVEN[2:], "--model", "net.pt2"), 2),
}
for place, (prepare_of, arguments, code) in PLACES.items():
    for kind, make in KINDS.items():
        title = f"{kind} {place}"
        codes = {0, 3} if "as state" in title else {2, 3} if "as results" in title else code
        if kind == "a folder" and place in ("as weights", "to stage as hdf5"):
            codes = {2, code}
        FAMILY.add(title, prepare_of(make), *arguments, code=codes, check=shows("status    ", "validation_f1") if "as state" in title else None,
                   quick=title in ("a FIFO to stage as csv", "a FIFO as dataset.json", "/dev/zero as manifest", "a FIFO as configuration", "a FIFO as part"))


def export_to(make):
    def prepare(folder, given):
        make(folder / "out.h5")
        fixtures.copy(given, folder, "checkpoint")
    return prepare


for kind, make in {"a FIFO": fifo, "a folder": os.mkdir}.items():
    FAMILY.add(f"{kind} to export to", export_to(make), *EXPORT, code={0, 2, 4} if kind == "a FIFO" else {2, 4})
FAMILY.add("a device to export to", lambda folder, given: fixtures.copy(given, folder, "checkpoint"), "export", "checkpoint", "/dev/full", code={2, 4})
for name, out in {"control characters": "\x1b[2J\x07.h5", "300 letters": "x" * 300 + ".h5", "bytes that are no text": b"a\xff\xfe.h5".decode("utf-8", "surrogateescape")}.items():
    FAMILY.add(f"a file of {name} to export to", lambda folder, given: fixtures.copy(given, folder, "checkpoint"), "export", "checkpoint", out, code={0, 2, 4})
FAMILY.add("a folder that is not there to export to", lambda folder, given: fixtures.copy(given, folder, "checkpoint"), "export", "checkpoint",
           "gone/out.h5", code={2, 4})
FAMILY.add("a link that leads nowhere to stage", lambda folder, given: (folder / "in.csv").symlink_to("gone"), *STAGE, "in.csv", code=3)
FAMILY.add("a link to itself to stage", lambda folder, given: (folder / "in.csv").symlink_to("in.csv"), *STAGE, "in.csv", code=3)


def loop(folder, given):
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "in" / "deep" / "again").symlink_to(folder / "in")


FAMILY.add("a folder that holds itself to stage", loop, *STAGE, "in", code=3)
