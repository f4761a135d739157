"""What the cases begin with: small staged datasets, written here with h5py, and a checkpoint and results of dtrain's own."""

import hashlib
import json
import shutil

import h5py
import numpy as np

SAMPLES = {"train": 32, "validation": 8, "test": 8}
CLASSES = 3
WORDS = 12


def write_shard(path, dataset, split, count, arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
        file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": dataset, "split": split, "shard_index": 0,
                           "shard_count": 1, "first_sample": 0, "sample_count": count})


def write_dataset(folder, name, task, shape, arrays_of, **facts):
    """A staged dataset as docs/data.md has it; `arrays_of(count)` gives the arrays of a split."""
    folder.mkdir(parents=True)
    info = {"format": "dtrain.dataset", "version": 1, "name": name, "task": task, "classes": [], "shape": shape, "mean": [],
            "std": [], "tokenizer": None, "seed": 1, "splits": {}, **facts}
    for split, count in SAMPLES.items():
        file = f"{split}-00000-of-00001.h5"
        write_shard(folder / file, name, split, count, arrays_of(count))
        info["splits"][split] = {"samples": count, "shards": [{"file": file, "samples": count}]}
    (folder / "dataset.json").write_text(json.dumps(info))


def sequences(random, count, low=4):
    """Tokens of `count` texts, and where each begins."""
    lengths = random.integers(2, 6, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return random.integers(low, WORDS, int(offsets[-1])).astype(np.int32), offsets


def vocabulary():
    return {"kind": "word", "vocabulary": ["<pad>", "<unk>", "<start>", "<end>"] + [f"word{i}" for i in range(4, WORDS)]}


def write_datasets(given):
    random = np.random.default_rng(1)
    names = [f"class{i}" for i in range(CLASSES)]

    def targets(count):
        return random.integers(0, CLASSES, count).astype(np.int64)

    def text(count):
        tokens, offsets = sequences(random, count)
        return {"tokens": tokens, "offsets": offsets, "targets": targets(count)}

    write_dataset(given / "table", "table", "table_classification", [4],
                  lambda n: {"inputs": random.normal(size=(n, 4)).astype(np.float32), "targets": targets(n)}, classes=names)
    write_dataset(given / "numbers", "numbers", "regression", [4],
                  lambda n: {"inputs": random.normal(size=(n, 4)).astype(np.float32),
                             "targets": random.normal(size=n).astype(np.float32)})
    write_dataset(given / "images", "images", "image_classification", [1, 4, 4],
                  lambda n: {"inputs": random.integers(0, 255, (n, 1, 4, 4)).astype(np.uint8), "targets": targets(n)},
                  classes=names, mean=[0.5], std=[0.3])
    write_dataset(given / "text", "text", "text_classification", [6], text, classes=names, tokenizer=vocabulary())
    write_dataset(given / "running", "running", "language_modelling", [8],
                  lambda n: {"tokens": random.integers(0, WORDS, 8 * n + 1).astype(np.int32)}, tokenizer=vocabulary())


def trained(given, start, name, *words):
    """A checkpoint of a small network, in the folder `name`."""
    start(given, "--global-batch", "8", "--threads", "1", "--limit-steps", "2", "--quiet", "--data-root", str(given), "--output", str(given),
          "--name", f"run_{name}", *words)
    shutil.copytree((given / f"run_{name}" / "checkpoints" / "best").resolve(), given / name)
    shutil.rmtree(given / f"run_{name}")


def stage_rows(given, start):
    """A table that dtrain itself has staged: predict needs its columns."""
    lines = [f"{i + 0.5},{40 - i},{('north', 'south', 'west')[i % 3]},{('red', 'blue')[i // 2 % 2]}" for i in range(40)]
    (given / "rows.csv").write_text("width,length,place,kind\n" + "\n".join(lines) + "\n")
    start(given, "stage", "rows", "--from", "rows.csv", "--data-root", str(given), "--standardize")


def make(given, start):
    """Everything below `given`; `start(folder, ARGUMENTS...)` runs dtrain there and must succeed."""
    write_datasets(given)
    small = ("--model", "mlp", "--model-option", "hidden=8")
    train = (*small, "--global-batch", "8", "--threads", "1", "--limit-steps", "2", "--quiet", "--data-root", str(given), "--output", str(given))
    start(given, *train, "--dataset", "table", "--name", "run")
    folder = given / "checkpoint"
    shutil.copytree((given / "run" / "checkpoints" / "best").resolve(), folder)
    start(given, "export", "checkpoint", "weights.h5")
    start(given, "export", "checkpoint", "weights.safetensors")
    stage_rows(given, start)
    start(given, *train, "--dataset", "table", "--dp-clip", "1", "--dp-noise", "1", "--output", given / "private_run", "--name", "out")
    trained(given, start, "of_rows", *small, "--dataset", "rows")
    trained(given, start, "of_images", *small, "--dataset", "images")
    trained(given, start, "of_text", "--model", "nbow", "--dataset", "text")


def copy(given, folder, name, new=None):
    """A copy of a fixture that the case may change."""
    target = folder / (new or name)
    source = given / name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target


def weights(given):
    """The tensors of the checkpoint, as h5py reads them from what dtrain exported."""
    with h5py.File(given / "weights.h5") as file:
        return {name: values[()] for name, values in file["model"].items()}


def seal(checkpoint, manifest=None, text=None):
    """Writes a manifest with the checksum that belongs to it: whoever forges one can do that."""
    if text is None:
        text = json.dumps(manifest)
    content = text if isinstance(text, bytes) else text.encode()
    (checkpoint / "manifest.json").write_bytes(content)
    (checkpoint / "manifest.sha256").write_text(hashlib.sha256(content).hexdigest() + "  manifest.json\n")


def reseal(checkpoint):
    """The same after a part was changed: its size and hash are those of the changed file."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for entry in manifest["files"]:
        content = (checkpoint / entry["file"]).read_bytes()
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    seal(checkpoint, manifest)
