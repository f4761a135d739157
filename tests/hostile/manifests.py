"""Manifests of checkpoints that wrap, contradict themselves, or order what is the user's to decide."""

import json
import os

import h5py
import numpy as np

import fixtures
import trained
from case import EVALUATE, EXPORT, TRAIN, Family

FAMILY = Family("manifest")
RESUME = (*TRAIN[:5], "4", *TRAIN[6:], "--dataset", "table", "--data-root", "{given}", "--resume", "checkpoint")
DEEP = "[" * 100_000


def changed(change):
    """prepare: a copy of the checkpoint, its manifest changed and sealed again."""
    def prepare(folder, given):
        checkpoint = fixtures.copy(given, folder, "checkpoint")
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        change(manifest, checkpoint)
        fixtures.seal(checkpoint, manifest)
    return prepare


def rewritten(text_of):
    """The same with the text itself."""
    def prepare(folder, given):
        checkpoint = fixtures.copy(given, folder, "checkpoint")
        fixtures.seal(checkpoint, text=text_of((checkpoint / "manifest.json").read_text()))
    return prepare


def matrix(manifest):
    """A tensor of the model with two dims."""
    return next(tensor for tensor in manifest["tensors"] if tensor["name"].startswith("model/") and len(tensor["shape"]) == 2)


def same_score(folder, given, output):
    """Weights and test samples are those of the run: so are loss and accuracy."""
    with h5py.File(given / "run" / "results.h5") as file:
        wanted = file["test"][0]
    return trained.shows(f"loss {wanted['loss']:.4f}", f"accuracy {wanted['accuracy']:.4f}")(folder, given, output)


def with_tensor(**facts):
    return changed(lambda manifest, _: matrix(manifest).update(facts))


def with_shape(shape_of):
    """Both the tensor and its one slice have the new shape."""
    def change(manifest, _):
        tensor = matrix(manifest)
        tensor["shape"] = shape_of(tensor["shape"])
        tensor["slices"][0].update(shape=tensor["shape"], offset=[0] * len(tensor["shape"]))
    return changed(change)


def with_slices(slices_of):
    def change(manifest, _):
        tensor = matrix(manifest)
        tensor["slices"] = slices_of(tensor["slices"][0], tensor["shape"])
    return changed(change)


def piece(slice_, offset, shape):
    return {**slice_, "offset": offset, "shape": shape}


# ---- shapes, slices and types ---------------------------------------------------------------------------------------
def exported_nothing(folder, given, output):
    """The tensor of no rows has none in what was exported either."""
    with h5py.File(folder / "out.h5") as file:
        rows = [values.shape[0] for values in file["model"].values()]
    return "" if 0 in rows else f"the tensors have {rows} rows"


SHAPES = {
    "wraps to its true size": lambda s: [2**62 + s[0], s[1]],
    "wraps to nothing": lambda s: [2**32, 2**32],
    "negative twice": lambda s: [-s[0], -s[1]],
    "negative once": lambda s: [-1, s[1]],
    "huge": lambda s: [2**40, s[1]],
    "largest number": lambda s: [2**63 - 1, 2**63 - 1],
    "ten thousand dims": lambda s: [1] * 10_000 + s,
    "one dim too few": lambda s: [s[0] * s[1]],
    "no dims": lambda s: [],
    "a zero": lambda s: [0, s[1]],
}
for number, (name, shape_of) in enumerate(SHAPES.items()):
    FAMILY.add(f"shape {name}, evaluate", with_shape(shape_of), *EVALUATE, code=4, quick=number == 0)
    FAMILY.add(f"shape {name}, export", with_shape(shape_of), *EXPORT, code={0, 4} if name == "a zero" else 4, check=exported_nothing,
               quick=number in (2, 4))

SLICES = {
    "none": lambda s, shape: [],
    "twice the whole": lambda s, shape: [s, s],
    "half twice": lambda s, shape: [piece(s, [0, 0], [shape[0] // 2, shape[1]])] * 2,
    "a hole": lambda s, shape: [piece(s, [0, 0], [shape[0] // 2, shape[1]])],
    "a negative offset": lambda s, shape: [piece(s, [-1, 0], shape)],
    "an offset beyond": lambda s, shape: [piece(s, [1, 0], shape)],
    "an offset that wraps": lambda s, shape: [piece(s, [2**63 - 1, 0], shape)],
    "negative extents": lambda s, shape: [piece(s, [0, 0], [-shape[0], -shape[1]])],
    "too few dims": lambda s, shape: [piece(s, [0], [shape[0]])],
    "an unlisted file": lambda s, shape: [{**s, "file": "unlisted.h5"}],
    "no file name": lambda s, shape: [{**s, "file": ""}],
    "a path": lambda s, shape: [{**s, "file": "../outside/secret.h5"}],
    "a number as file": lambda s, shape: [{**s, "file": 7}],
    "a float as offset": lambda s, shape: [piece(s, [0.5, 0], shape)],
    "not a list": lambda s, shape: {"file": s["file"]},
}
for name, slices_of in SLICES.items():
    FAMILY.add(f"slices: {name}", with_slices(slices_of), *EXPORT, code=4, quick=name in ("half twice", "an unlisted file"))
    if name in ("twice the whole", "half twice", "a hole", "a negative offset", "negative extents", "an offset that wraps"):
        FAMILY.add(f"slices: {name}, resume", with_slices(slices_of), *RESUME, code=4)

for name, dtype in {"unknown": "float31", "a number": 4, "another": "float64", "wider": "int64", "empty": "",
                    "with control characters": "\x1b[2Jfloat32"}.items():
    FAMILY.add(f"type {name}", with_tensor(dtype=dtype), *EXPORT, code=4)
for name, value in {"empty": "", "with control characters": "model/\x1b]0;x\x07", "of a megabyte": "model/" + "n" * 2**20,
                    "a list": []}.items():
    FAMILY.add(f"name {name}", with_tensor(name=value), *EVALUATE, code=4, quick=name.startswith("with"))
FAMILY.add("two tensors of one name", changed(lambda m, _: m["tensors"].append(matrix(m))), *EXPORT, code=4)
FAMILY.add("no tensors", changed(lambda m, _: m.update(tensors=[])), *EVALUATE, code=4)
FAMILY.add("a million tensors", changed(lambda m, _: m["tensors"].extend([{"name": "x", "dtype": "float32", "shape": [],
                                                                          "slices": []}] * 300_000)), *EXPORT, code=4)


# ---- files -----------------------------------------------------------------------------------------------------------
def unlisted_but_there(manifest, checkpoint):
    """Its hash was never checked: whoever changes it later is not noticed."""
    name = manifest["files"][0]["file"]
    (checkpoint / "more.h5").write_bytes((checkpoint / name).read_bytes())
    matrix(manifest)["slices"][0]["file"] = "more.h5"


def first_file(**facts):
    return changed(lambda manifest, _: manifest["files"][0].update(facts))


FAMILY.add("a part is there but not listed", changed(unlisted_but_there), *EXPORT, code=4, quick=True)
FAMILY.add("no file is listed", changed(lambda m, _: m.update(files=[])), *EVALUATE, code=4)
for name, facts in {"negative bytes": {"bytes": -1}, "huge bytes": {"bytes": 2**62}, "bytes beyond 64 bits": {"bytes": 2**64},
                    "another hash": {"sha256": "0" * 64}, "no hash": {"sha256": ""}, "a path": {"file": "/etc/passwd"},
                    "a path upwards": {"file": ".."}, "a control character": {"file": "a\nb\x1b[31m"}}.items():
    FAMILY.add(f"file with {name}", first_file(**facts), *EVALUATE, code=4)

# ---- where the run stood --------------------------------------------------------------------------------------------
STANDS = {
    "a negative step": {"step": -1},
    "the smallest step": {"step": -2**63},
    "the largest step": {"step": 2**63 - 1},
    "a step beyond 64 bits": {"step": 2**64},
    "a step of text": {"step": "2"},
    "a fraction as step": {"step": 1.5},
    "epoch 0": {"epoch": 0},
    "a negative epoch": {"epoch": -3},
    "the largest epoch": {"epoch": 2**63 - 1},
    "a negative position": {"position": {"samples": -8}},
    "a position behind the epoch's end": {"position": {"samples": 10**6}},
    "the largest position": {"position": {"samples": 2**63 - 1}},
    "no position": {"position": {}},
    "negative steps in total": {"total_steps": -5},
    "fewer steps in total than done": {"total_steps": 1},
    "a best step after the last": {"best": {"step": 99, "loss": 0.5}},
    "a negative best step": {"best": {"step": -1, "loss": 0.5}},
    "a negative weight": {"so_far": {"loss": 1.0, "weight": -4.0, "correct": 0.0, "counted": 0.0, "train_time_s": 0.0,
                                     "sample_hash": 0, "evaluated": False}},
    "more correct than counted": {"so_far": {"loss": 1.0, "weight": 4.0, "correct": 9.0, "counted": 4.0, "train_time_s": 0.0,
                                             "sample_hash": 0, "evaluated": False}},
    "an infinite loss": {"so_far": {"loss": 1e999, "weight": 4.0, "correct": 0.0, "counted": 4.0, "train_time_s": 0.0,
                                    "sample_hash": 0, "evaluated": False}},
    "a negative loss scale": {"loss_scale": {"scale": -2.0, "good_steps": 0}},
    "negative good steps": {"loss_scale": {"scale": 2.0, "good_steps": -7}},
    "no micro-batches": {"micro_batches": 0},
    "negative micro-batches": {"micro_batches": -1},
    "two milliard micro-batches": {"micro_batches": 2**31 - 1},
    "a negative seed": {"seed": -1},
    "a model of a path": {"model": "../../mlp"},
    "a model with control characters": {"model": "\x1b[2J\x07mlp"},
    "an unknown model": {"model": "transformer9000"},
    "a dataset hash of text": {"dataset_sha256": "zz", "dataset_samples": {"train": -1}},
    "an all_reduce table of noise": {"all_reduce": {"layout": "x", "by_size": "99999999999999999999 ring, -1 tree, ,,"}},
}
ALLOWED = {"an all_reduce table of noise": {0, 4}, "a negative seed": {0, 2, 4}, "a dataset hash of text": {3, 4}, "a model of a path": {0, 2, 4},
           "a model with control characters": {0, 2, 4}, "an unknown model": {0, 2, 4}}
for name, facts in STANDS.items():
    FAMILY.add(f"stands at {name}", changed(lambda m, _, facts=facts: m.update(facts)), *RESUME, code=ALLOWED.get(name, 4),
               check=trained.completed(32, "mlp"), quick=name in ("a negative step", "a position behind the epoch's end", "no micro-batches"))
for name in ("a negative step", "the smallest step", "no micro-batches", "an unknown model", "a model with control characters"):
    FAMILY.add(f"stands at {name}, evaluate", changed(lambda m, _, facts=STANDS[name]: m.update(facts)), *EVALUATE,
               code={0, 2, 4} if "model" in name else 4, check=same_score)


# ---- its configuration is data, not an order -------------------------------------------------------------------------
def configured(*lines):
    def change(manifest, _):
        keys = {line.split("=")[0].strip() for line in lines}
        kept = [line for line in manifest["config"].splitlines() if line.split("=")[0].strip() not in keys]
        manifest["config"] = "\n".join([*kept, *lines]) + "\n"
    return changed(change)


def wrote_nothing(folder, given, output):
    return "it copied the dataset" if (folder / "copies").exists() and any((folder / "copies").iterdir()) else ""


def make_copies(prepare):
    def both(folder, given):
        (folder / "copies").mkdir()
        prepare(folder, given)
    return both


WITHOUT_THREADS = EVALUATE[:-2]
FAMILY.add("config starts threads", configured("threads = 100000"), *WITHOUT_THREADS, code=0, quick=True)
FAMILY.add("config copies the dataset", make_copies(configured('staging = "local=copies"')), *EVALUATE, code=0, check=wrote_nothing)
FAMILY.add("config sets a huge evaluation batch", configured("eval-batch = 2000000000"), *EVALUATE, code={0, 4}, check=same_score)
CONFIGURED = {"huge layers": {1, 2, 4}, "another model": {2, 4}, "an unknown option": {2, 4}, "no model": {2, 4}}
for name, lines in {"huge layers": ['model-option = ["hidden=16777216,16777216"]'], "another model": ['model = "vgg11"'],
                    "an unknown option": ['model-option = ["colour=red"]'], "no model": ['model = ""'],
                    "a batch of 0": ["global-batch = 0"], "a negative batch": ["global-batch = -8"],
                    "text for a number": ['global-batch = "many"'], "an unknown key": ["frobnicate = 1"],
                    "a table": ["[model]", "x = 1"]}.items():
    FAMILY.add(f"config with {name}", configured(*lines), *EVALUATE, code=CONFIGURED.get(name, 4), quick=name == "huge layers")
for name, text in {"is no TOML": "= = =", "is deep": "x = " + DEEP, "has control characters": "\x1b[2J = \x07",
                   "is a number": 5, "is empty": ""}.items():
    FAMILY.add(f"config {name}", changed(lambda m, _, text=text: m.update(config=text)), *EVALUATE,
               code={0, 4} if name == "is empty" else 4)

# ---- the file itself -------------------------------------------------------------------------------------------------
TEXTS = {
    "empty": lambda text: "",
    "half": lambda text: text[:len(text) // 2],
    "a list": lambda text: "[]",
    "null": lambda text: "null",
    "a number": lambda text: "7",
    "deep": lambda text: DEEP,
    "deep inside": lambda text: text[:-1].rstrip().rstrip("}") + ', "more": ' + '{"a":' * 50_000,
    "not UTF-8": lambda text: text.encode().replace(b'"model"', b'"mod\xff"', 1),
    "of zeros": lambda text: b"\0" * 4096,
    "of another format": lambda text: text.replace("dtrain.checkpoint", "other.checkpoint"),
    "of version 2": lambda text: text.replace('"version": 1', '"version": 2'),
    "of a fractional version": lambda text: text.replace('"version": 1', '"version": 1.5'),
    "of version 1e30": lambda text: text.replace('"version": 1', '"version": 1e30'),
    "with the key epoch missing": lambda text: text.replace('"epoch"', '"epock"', 1),
    "40 MB of zeros": lambda text: text.rstrip().rstrip("}") + ', "more": [' + "0," * 20_000_000 + "0]}",
}
for name, text_of in TEXTS.items():
    FAMILY.add(f"text is {name}", rewritten(text_of), *EXPORT, code=4, quick=name == "deep")


def unsealed(change):
    def prepare(folder, given):
        change(fixtures.copy(given, folder, "checkpoint"))
    return prepare


FAMILY.add("no checksum", unsealed(lambda c: (c / "manifest.sha256").unlink()), *EVALUATE, code=4)
FAMILY.add("another checksum", unsealed(lambda c: (c / "manifest.sha256").write_text("0" * 64 + "  manifest.json\n")),
           *EVALUATE, code=4)
FAMILY.add("an empty checksum", unsealed(lambda c: (c / "manifest.sha256").write_text("")), *EVALUATE, code=4)
FAMILY.add("a checksum of 3 GiB", unsealed(lambda c: os.truncate(c / "manifest.sha256", 3 << 30)), *EVALUATE, code=4, says=("manifest.sha256",), quick=True)
FAMILY.add("no manifest", unsealed(lambda c: (c / "manifest.json").unlink()), *RESUME, code=4)


def infinite(checkpoint):
    """Weights that are no numbers, in a part whose hash is right."""
    part = next(checkpoint.glob("*.h5"))
    with h5py.File(part, "r+") as file:
        def spoil(name, item):
            if isinstance(item, h5py.Dataset) and name.startswith("model/"):
                item[...] = np.nan
        file.visititems(spoil)
    fixtures.reseal(checkpoint)


FAMILY.add("weights are not numbers", unsealed(infinite), *RESUME, code={1, 4})
