"""Shards of staged datasets whose attributes and arrays are not what dataset.json says of them."""

import json

import h5py
import numpy as np

import fixtures
import trained
from case import TRAIN, Family

FAMILY = Family("shards")
SHARD = "train-00000-of-00001.h5"
N = fixtures.SAMPLES["train"]


def train_on(dataset, *more):
    return (*TRAIN, "--dataset", dataset, "--data-root", ".", *more)


TEXT = ("--model", "nbow", "--limit-steps", "1", "--global-batch", "8", "--threads", "1", "--name", "out", "--quiet", "--dataset", "text",
        "--data-root", ".")
RUNNING = ("--model", "gpt", "--model-option", "layers=1", "--model-option", "heads=1", "--model-option", "width=8", "--limit-steps", "1",
           "--global-batch", "8", "--threads", "1", "--name", "out", "--quiet", "--dataset", "running", "--data-root", ".")


def with_shard(change, dataset="table"):
    """prepare: a copy of the dataset whose training shard was changed; no hash is in its dataset.json."""
    def prepare(folder, given):
        copy = fixtures.copy(given, folder, dataset)
        with h5py.File(copy / SHARD, "r+") as file:
            change(file, copy)
    return prepare


def with_array(name, make, dataset="table"):
    """The same with one array, which `make(values)` makes anew."""
    def change(file, copy):
        values = file[name][()]
        del file[name]
        file[name] = make(values)
    return with_shard(change, dataset)


def with_attribute(name, value):
    def change(file, copy):
        del file.attrs[name]
        if value is not None:
            file.attrs[name] = value
    return with_shard(change)


def put(index, value):
    def make(values):
        values[index] = value
        return values
    return make


FAMILY.add("as they should be", with_shard(lambda f, c: None), *train_on("table"), code=0, quick=True)
ATTRIBUTES = {
    "no format": ("format", None), "another format": ("format", "other.shard"), "a number as format": ("format", 7),
    "a long format": ("format", "x" * 60_000), "version 2": ("version", 2), "a negative version": ("version", -1),
    "a version of text": ("version", "1"), "a version of many": ("version", [1, 1]), "no version": ("version", None),
    "another split": ("split", "test"), "a split of control characters": ("split", "\x1b[2J\x07\r"),
    "a negative first sample": ("first_sample", -1), "a large first sample": ("first_sample", 2**62),
    "one sample too many": ("sample_count", N + 1), "negative samples": ("sample_count", -N),
    "too many samples": ("sample_count", 2**63 - 1), "fractional samples": ("sample_count", N + 0.5),
    "another dataset": ("dataset", "other"), "a dataset of control characters": ("dataset", "\x1b]0;title\x07"),
}
for name, (key, value) in ATTRIBUTES.items():
    FAMILY.add(name, with_attribute(key, value), *train_on("table"), code=3, quick=name == "a split of control characters")

# ---- targets and inputs ---------------------------------------------------------------------------------------------
TARGETS = {"the number of classes": fixtures.CLASSES, "minus one": -1, "minus a hundred": -100, "2^62": 2**62, "2^32": 2**32,
           "the smallest": -2**63}
for name, value in TARGETS.items():
    FAMILY.add(f"a target of {name}", with_array("targets", put(5, value)), *train_on("table"), code=3,
               says=(SHARD, f"class {value} ", "sample 5", f"0 to {fixtures.CLASSES - 1}"), quick=name in ("the number of classes", "minus a hundred"))
    FAMILY.add(f"a text's target of {name}", with_array("targets", put(5, value), "text"), *TEXT, code=3,
               says=(SHARD, f"class {value} ", "sample 5"))
for name, value in {"not a number": np.nan, "infinite": np.inf}.items():
    FAMILY.add(f"an input that is {name}", with_array("inputs", put((3, 2), value)), *train_on("table"), code=3,
               says=(SHARD, f"has {value} ", "sample 3, element 2"))
    FAMILY.add(f"a number to predict that is {name}", with_array("targets", put(3, value), "numbers"), *train_on("numbers"), code=3,
               says=(SHARD, f"has {value} ", "target of sample 3"))
ARRAYS = {
    "no inputs": ("inputs", None), "no targets": ("targets", None),
    "inputs of one dim": ("inputs", lambda v: v[:, 0]), "inputs of another width": ("inputs", lambda v: v[:, :3]),
    "inputs of three dims": ("inputs", lambda v: v.reshape(N, 2, 2)), "too few inputs": ("inputs", lambda v: v[:N - 4]),
    "too many inputs": ("inputs", lambda v: np.concatenate([v, v])), "no rows": ("inputs", lambda v: v[:0]),
    "too few targets": ("targets", lambda v: v[:N - 4]), "targets of two dims": ("targets", lambda v: v.reshape(N, 1)),
    "targets with fractions": ("targets", lambda v: v + 0.5), "inputs of text": ("inputs", lambda v: v.astype("S8")),
    "a single value": ("inputs", lambda v: np.float32(1)), "inputs of pairs": ("inputs", lambda v: v.astype([("a", "f4"), ("b", "f4")])),
    "complex inputs": ("inputs", lambda v: v.astype("c8")),
}
for name, (array, make) in ARRAYS.items():
    prepare = with_array(array, make) if make else with_shard(lambda f, c, array=array: f.__delitem__(array))
    FAMILY.add(name, prepare, *train_on("table"), code=3, quick=name == "too few targets")
for name, kind in {"big-endian inputs": ">f4", "inputs in double precision": "f8", "inputs in half precision": "f2"}.items():
    FAMILY.add(name, with_array("inputs", lambda v, kind=kind: v.astype(kind)), *train_on("table"),
               code={0, 3} if kind == "f2" else 0, check=trained.completed())
FAMILY.add("big-endian targets", with_array("targets", lambda v: v.astype(">i8")), *train_on("table"), code=0)


# ---- where the arrays lie -------------------------------------------------------------------------------------------
def external_link(file, copy):
    with h5py.File(copy / "other.h5", "w") as other:
        other["padding"], other["x"] = np.zeros(5000), file["inputs"][()]
    del file["inputs"]
    file["inputs"] = h5py.ExternalLink(str(copy / "other.h5"), "/x")


def external_storage(file, copy):
    values = file["inputs"][()]
    (copy / "raw").write_bytes(values.tobytes())
    del file["inputs"]
    file.create_dataset("inputs", values.shape, values.dtype, external=[(str(copy / "raw"), 0, values.nbytes)])


def foreign_virtual(file, copy):
    values = file["inputs"][()]
    with h5py.File(copy / "other.h5", "w") as other:
        other["x"] = values
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[...] = h5py.VirtualSource(str(copy / "other.h5"), "x", values.shape)
    del file["inputs"]
    file.create_virtual_dataset("inputs", layout)


def link_to_itself(file, copy):
    del file["inputs"]
    file["inputs"] = h5py.SoftLink("/inputs")


def group(file, copy):
    del file["inputs"]
    file.create_group("inputs")


def declared(shape, chunks, **options):
    def change(file, copy):
        del file["inputs"]
        file.create_dataset("inputs", shape, "f4", chunks=chunks, **options)
    return change


def biased(file, copy):
    values = file["inputs"][()]
    del file["inputs"]
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(100)
    made = h5py.h5d.create(file.id, b"inputs", kind, h5py.h5s.create_simple(values.shape))
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)


for name, change in {"an external link": external_link, "external storage": external_storage, "a foreign virtual dataset": foreign_virtual,
                     "a link to itself": link_to_itself, "a group for inputs": group, "an exponent of another bias": biased}.items():
    FAMILY.add(name, with_shard(change), *train_on("table"), code=3,
               quick=name in ("an external link", "external storage"))
FAMILY.add("a width of 2^40", with_shard(declared((N, 2**40), (1, 2**10))), *train_on("table"), code=3)
FAMILY.add("2^40 rows", with_shard(declared((2**40, 4), (2**10, 4))), *train_on("table"), code=3)
FAMILY.add("zeros that unpack to 8 GiB", with_shard(declared((N, 2**26), (1, 2**26), compression="gzip", fillvalue=0)),
           *train_on("table"), code=3)


def many_chunks(folder, given):
    """60,000 chunks of a row each: they are read in linear time."""
    count = 60_000
    copy = fixtures.copy(given, folder, "table")
    info = json.loads((copy / "dataset.json").read_text())
    info["splits"]["train"] = {"samples": count, "shards": [{"file": SHARD, "samples": count}]}
    (copy / "dataset.json").write_text(json.dumps(info))
    with h5py.File(copy / SHARD, "w", libver="earliest") as file:
        file.create_dataset("inputs", data=np.ones((count, 4), "f4"), chunks=(1, 4), fletcher32=True)
        file["targets"] = np.zeros(count, np.int64)
        file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": "table", "split": "train", "shard_index": 0,
                           "shard_count": 1, "first_sample": 0, "sample_count": count})


FAMILY.add("60,000 chunks of a row", many_chunks, *train_on("table"), code=0)

# ---- text -----------------------------------------------------------------------------------------------------------
TOKENS = {"the size of the vocabulary": fixtures.WORDS, "minus one": -1, "the largest": 2**31 - 1}
for name, value in TOKENS.items():
    FAMILY.add(f"a token of {name}", with_array("tokens", put(9, value), "text"), *TEXT, code=3,
               says=(SHARD, f"token {value} ", "place 9", f"{fixtures.WORDS} tokens"), quick=name == "minus one")
    FAMILY.add(f"a running token of {name}", with_array("tokens", put(9, value), "running"), *RUNNING, code=3,
               says=(SHARD, f"token {value} ", "place 9", f"{fixtures.WORDS} tokens"))
OFFSETS = {"that fall": put(3, 0), "that are negative": put(3, -4), "beyond the tokens": put(3, 10**9), "that begin late": put(0, 1),
           "that end early": put(-1, 3), "that wrap": put(3, 2**63 - 1), "that are none": lambda v: v[:0],
           "of which one is missing": lambda v: v[:-1], "with one too many": lambda v: np.append(v, v[-1])}
for name, make in OFFSETS.items():
    FAMILY.add(f"offsets {name}", with_array("offsets", make, "text"), *TEXT, code=3, quick=name == "that wrap")
FAMILY.add("running text that is too short", with_array("tokens", lambda v: v[:8], "running"), *RUNNING, code=3)
FAMILY.add("tokens with fractions", with_array("tokens", lambda v: v + 0.5, "text"), *TEXT, code=3)


# ---- the file itself -------------------------------------------------------------------------------------------------
def with_file(change):
    def prepare(folder, given):
        change(fixtures.copy(given, folder, "table") / SHARD)
    return prepare


def flip(path):
    content = bytearray(path.read_bytes())
    content[600] ^= 0x40
    path.write_bytes(content)


def protect(path):
    """Each chunk has a check sum; then one of its bytes changes."""
    with h5py.File(path, "r+") as file:
        values = file["inputs"][()]
        del file["inputs"]
        made = file.create_dataset("inputs", data=values, chunks=(8, 4), fletcher32=True)
        place = made.id.get_chunk_info(1).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)


FILES = {"is empty": lambda p: p.write_bytes(b""), "is cut": lambda p: p.write_bytes(p.read_bytes()[:1500]),
         "is a folder": lambda p: (p.unlink(), p.mkdir()), "is missing": lambda p: p.unlink(), "is text": lambda p: p.write_text("text"),
         "has a damaged chunk": protect, "links to itself": lambda p: (p.unlink(), p.symlink_to(p.name))}
for name, change in FILES.items():
    FAMILY.add(f"the file {name}", with_file(change), *train_on("table"), code=3, quick=name == "has a damaged chunk")
