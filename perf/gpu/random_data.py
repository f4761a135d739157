"""Staged datasets of random samples, made when a case first asks for one and gone with the scratch folder."""

import hashlib
import json

import h5py
import numpy

import random_images
import random_text

VALIDATION = 64  # samples: evaluation is not what is measured
# As many as CIFAR-10 has to train on, and a few more, so that batches of 2048 are whole.
IMAGES = 45056


class RandomData:
    def __init__(self, folder, quick):
        self._folder, self._quick = folder, quick

    def images(self, shape):
        folder = self._folder / f"images-{'x'.join(map(str, shape))}"
        if not folder.exists():
            random_images.stage(folder, shape, train_samples=512 if self._quick else IMAGES, other_samples=VALIDATION)
        return folder

    def text(self, model):
        """As long and as many words as IMDB or Multi30k."""
        folder = self._folder / f"text-{model}"
        if not folder.exists():
            random_text.stage(folder, model, 64 if self._quick else None)
        return folder

    def blocks(self, vocabulary, length):
        """Running text for gpt, in blocks of `length` ids."""
        folder = self._folder / f"blocks-{vocabulary}-{length}"
        if not folder.exists():
            stage_blocks(folder, vocabulary, length, 64 if self._quick else 1024)
        return folder


def stage_blocks(folder, vocabulary, length, samples):
    """What random_text.py makes of gpt's text, for any vocabulary and length."""
    folder.mkdir(parents=True)
    generator = numpy.random.default_rng(1)
    facts = {"format": "dtrain.dataset", "version": 1, "name": folder.name, "task": "language_modelling", "classes": [],
             "shape": [length], "mean": [], "std": [], "tokenizer": {"kind": "word", "vocabulary": random_text.words(vocabulary)},
             "seed": 1, "splits": {}, "sources": []}
    for split, count in {"train": samples, "validation": 16}.items():
        path = folder / f"{split}-00000-of-00001.h5"
        tokens = generator.integers(0, vocabulary, count * length + 1, numpy.int32)
        with h5py.File(path, "w", libver="earliest") as file:
            file.attrs.update({"format": "dtrain.shard", "version": 1, "dataset": folder.name, "split": split,
                               "shard_index": 0, "shard_count": 1, "first_sample": 0, "sample_count": count})
            file.create_dataset("tokens", data=tokens, chunks=(min(len(tokens), 1 << 18),), fletcher32=True)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        facts["splits"][split] = {"samples": count, "shards": [{"file": path.name, "samples": count, "sha256": sha256}]}
    (folder / "dataset.json").write_text(json.dumps(facts))  # last: now the dataset is whole
