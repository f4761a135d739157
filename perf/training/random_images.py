"""Stages random images of CIFAR-10's shape and size, for speed only: a writer of the format that shares no code with
dtrain's own."""

import hashlib
import json

import h5py
import numpy


def stage(folder, shape=(3, 32, 32), classes=10, train_samples=45000, other_samples=0):
    """`other_samples` of validation and of test; 0: a twelfth of the training split's, at most 500."""
    others = other_samples or min(500, train_samples // 12)
    splits = {"train": train_samples, "validation": others, "test": others}
    folder.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.default_rng(1)
    facts = {"format": "dtrain.dataset", "version": 1, "name": folder.name, "task": "image_classification",
             "classes": [str(i) for i in range(classes)], "shape": list(shape), "mean": [0.5] * shape[0],
             "std": [0.289] * shape[0], "tokenizer": None, "seed": 1, "splits": {}, "sources": []}
    for split, samples in splits.items():
        path = folder / f"{split}-00000-of-00001.h5"
        with h5py.File(path, "w", libver="earliest") as file:
            file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": folder.name, "split": split,
                               "shard_index": 0, "shard_count": 1, "first_sample": 0, "sample_count": samples})
            rows = min(samples, (1 << 20) // int(numpy.prod(shape)))
            file.create_dataset("inputs", data=generator.integers(0, 256, (samples, *shape), numpy.uint8),
                                chunks=(rows, *shape), fletcher32=True)
            file.create_dataset("targets", data=generator.integers(0, classes, samples, numpy.int64),
                                chunks=(samples,), fletcher32=True)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        facts["splits"][split] = {"samples": samples,
                                  "shards": [{"file": path.name, "samples": samples, "sha256": sha256}]}
    (folder / "dataset.json").write_text(json.dumps(facts))  # last: now the dataset is whole
