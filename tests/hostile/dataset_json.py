"""dataset.json that contradicts itself, its shards or what dtrain can do."""

import json

import fixtures
import trained
from case import TRAIN, Family

FAMILY = Family("dataset.json")
SHARD = "train-00000-of-00001.h5"
N = fixtures.SAMPLES["train"]


def train_on(dataset):
    return (*TRAIN, "--dataset", dataset, "--data-root", ".")


TEXT = ("--model", "nbow", "--limit-steps", "1", "--global-batch", "8", "--threads", "1", "--name", "out", "--quiet", "--dataset", "text",
        "--data-root", ".")


def changed(change, dataset="table"):
    def prepare(folder, given):
        file = fixtures.copy(given, folder, dataset) / "dataset.json"
        info = json.loads(file.read_text())
        change(info)
        file.write_text(json.dumps(info))
    return prepare


def field(dataset="table", **facts):
    return changed(lambda info: info.update(facts), dataset)


def without(key):
    return changed(lambda info: info.pop(key))


def split(name, **facts):
    return changed(lambda info: info["splits"][name].update(facts))


def shard(**facts):
    return changed(lambda info: info["splits"]["train"]["shards"][0].update(facts))


def rewritten(text_of):
    def prepare(folder, given):
        file = fixtures.copy(given, folder, "table") / "dataset.json"
        content = text_of(file.read_text())
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return prepare


for key in ("format", "version", "name", "task", "shape", "splits"):
    FAMILY.add(f"without {key}", without(key), *train_on("table"), code=3, says=(key,))
FIELDS = {
    "format of a number": {"format": 1}, "another format": {"format": "x"}, "version 2": {"version": 2},
    "version beyond 64 bits": {"version": 2**64}, "a fractional version": {"version": 1.5}, "name of a number": {"name": 5},
    "another name": {"name": "other"}, "a name with a slash": {"name": "../table"}, "a name of control characters": {"name": "\x1b[2Jx\x07"},
    "an unknown task": {"task": "alchemy"}, "a task of control characters": {"task": "\x1b[31mred\x07"}, "a task of null": {"task": None},
    "the task of other arrays": {"task": "language_modelling"}, "a shape of 0": {"shape": [0]}, "a negative shape": {"shape": [-4]},
    "a shape of 2^62": {"shape": [2**62]}, "a shape that wraps": {"shape": [2**32, 2**32, 4]}, "a fractional shape": {"shape": [4.5]},
    "a shape of text": {"shape": "4"}, "no shape": {"shape": []}, "a shape of another width": {"shape": [5]},
    "a shape of a million dims": {"shape": [1] * 1_000_000}, "a mean without std": {"mean": [0.5]}, "a std of 0": {"std": [0.0], "mean": [0.0]},
    "a mean of null": {"mean": [None], "std": [1.0]}, "a mean of text": {"mean": "0.5"}, "no classes": {"classes": []},
    "classes of numbers": {"classes": [1, 2, 3]}, "one class": {"classes": ["only"]}, "a class of a megabyte": {"classes": ["x" * 2**20, 1]},
    "a negative seed": {"seed": -1}, "a seed of text": {"seed": "one"}, "splits of null": {"splits": None}, "splits of a list": {"splits": []},
    "no splits": {"splits": {}}, "an unknown split": {"splits": {"dev": {"samples": 1, "shards": []}}},
    "columns of null": {"columns": [None]}, "columns that are too few": {"columns": [{"name": "x"}]}, "columns of text": {"columns": "abc"},
    "sites without shards of them": {"sites": ["a", "b"]}, "sites of numbers": {"sites": [1]}, "sources of numbers": {"sources": [1]},
    "a tokenizer of text": {"tokenizer": "word"}, "a scale of classes": {"target_scales": [{"shift": 1.0, "scale": 2.0}]},
    "a target over 0": {"target_scales": [{"shift": 1.0, "scale": 0.0}]}, "a target over 1e-320": {"target_scales": [{"shift": 1.0, "scale": 1e-320}]},
    "a target shifted by text": {"target_scales": [{"shift": "1", "scale": 1.0}]}, "a target without scale": {"target_scales": [{"shift": 1.0}]},
}
ALLOWED = {"sites without shards of them": {0, 3}, "a negative seed": {0, 3}, "no shape": {2, 3}, "the task of other arrays": {2, 3}}
for name, facts in FIELDS.items():
    FAMILY.add(name, field(**facts), *train_on("table"), code=ALLOWED.get(name, 3), check=trained.completed(),
               quick=name in ("a shape that wraps", "a task of control characters"))
SAMPLES = {"negative samples": -1, "samples beyond 64 bits": 2**64, "fractional samples": N + 0.5, "samples of text": "32",
           "one sample more": N + 1, "2^62 samples": 2**62}
for name, samples in SAMPLES.items():
    FAMILY.add(f"{name} of a split", split("train", samples=samples), *train_on("table"), code=3)
    FAMILY.add(f"{name} of a shard", shard(samples=samples), *train_on("table"), code=3, quick=name == "2^62 samples")
FAMILY.add("2^62 samples of both", changed(lambda i: (i["splits"]["train"].update(samples=2**62),
                                                      i["splits"]["train"]["shards"][0].update(samples=2**62))), *train_on("table"), code=3)
FAMILY.add("samples whose sum wraps", changed(lambda i: i["splits"]["train"].update(
    samples=N, shards=[{"file": SHARD, "samples": 2**63 - 1}, {"file": SHARD, "samples": 2**63 - 1}, {"file": SHARD, "samples": N + 2}])),
           *train_on("table"), code=3)
FAMILY.add("one shard twice", changed(lambda i: i["splits"]["train"].update(
    samples=2 * N, shards=[{"file": SHARD, "samples": N}] * 2)), *train_on("table"), code=3)
FAMILY.add("shards of null", split("train", shards=None), *train_on("table"), code=3)
FAMILY.add("shards of numbers", split("train", shards=[1, 2]), *train_on("table"), code=3)
FAMILY.add("no shards", split("train", shards=[]), *train_on("table"), code=3)
for name, file in {"upwards": "../outside/secret.txt", "absolute": "/etc/passwd", "missing": "gone.h5", "the folder": ".", "empty": "",
                   "of control characters": "a\x1b[2J\n.h5", "of a device": "/dev/zero", "with a zero": "train\0.h5", "long": "x" * 5000}.items():
    FAMILY.add(f"a shard's file that is {name}", shard(file=file), *train_on("table"), code=3, quick=name == "of control characters")
FAMILY.add("a shard's hash of another file", shard(sha256="0" * 64), *train_on("table"), "--staging", "local=.", code=3)
FAMILY.add("a shard's hash that is a number", shard(sha256=5), *train_on("table"), code=3)
for name, shape in {"images without channels": [4, 4], "images of no height": [1, 0, 4], "images of another size": [1, 4, 5],
                    "images that wrap": [2**31, 2**31, 16]}.items():
    FAMILY.add(name, field("images", shape=shape), *train_on("images"), code=3)

WORDS = fixtures.vocabulary()
TOKENIZERS = {
    "no tokenizer": None, "a tokenizer without a kind": {"vocabulary": []}, "an unknown tokenizer": {**WORDS, "kind": "magic"},
    "no vocabulary": {"kind": "word"}, "an empty vocabulary": {"kind": "word", "vocabulary": []},
    "a vocabulary of numbers": {"kind": "word", "vocabulary": [1, 2]}, "a vocabulary of one": {"kind": "word", "vocabulary": ["<pad>"]},
    "a model that is no base64": {**WORDS, "kind": "sentencepiece", "model": "*not base64*"},
    "a model of noise": {**WORDS, "kind": "sentencepiece", "model": "AAECAwQFBgcICQ=="},
    "a model that says it is huge": {**WORDS, "kind": "sentencepiece", "model": "Cv////8P" * 8},
    "a model of control characters": {**WORDS, "kind": "\x1b[2J"},
}
for name, tokenizer in TOKENIZERS.items():
    of_pieces = bool(tokenizer) and tokenizer.get("kind") == "sentencepiece"
    FAMILY.add(name, field("text", tokenizer=tokenizer), *TEXT, code=3 if of_pieces else {0, 2, 3}, check=None if of_pieces else trained.completed(model="nbow"),
               quick=name == "a model that says it is huge")

TEXTS = {
    "empty": lambda t: "", "half": lambda t: t[:len(t) // 2], "a list": lambda t: "[]", "null": lambda t: "null", "deep": lambda t: "[" * 200_000,
    "deep inside": lambda t: t.rstrip("}") + "}}, \"more\": " + "[" * 200_000, "not UTF-8": lambda t: t.encode().replace(b"class0", b"cl\xe4ss0"),
    "of zeros": lambda t: b"\0" * 100, "with comments": lambda t: "// staged\n" + t, "followed by more": lambda t: t + "{}",
    "50 MB of zeros": lambda t: '{"more": [' + "0," * 25_000_000 + "0]}",
}
for name, text_of in TEXTS.items():
    FAMILY.add(f"text is {name}", rewritten(text_of), *train_on("table"), code=3, quick=name == "deep")
