"""A split of a staged dataset folder (dataset.json and its shards), or a synthetic stand-in of the same size."""

import json
import pathlib

import h5py
import numpy


def read_split(folder, name):
    """uint8 or float32 images [N, C, H, W], int64 targets [N], and the dataset's mean and std per channel."""
    folder = pathlib.Path(folder)
    facts = json.loads((folder / "dataset.json").read_text())
    inputs, targets = [], []
    for shard in facts["splits"][name]["shards"]:
        with h5py.File(folder / shard["file"], "r") as file:
            inputs.append(file["inputs"][:])
            targets.append(file["targets"][:])
    return numpy.concatenate(inputs), numpy.concatenate(targets), facts["mean"], facts["std"]


def synthetic_training_split(shape, samples, seed=1):
    generator = numpy.random.default_rng(seed)
    inputs = generator.integers(0, 256, size=(samples, *shape), dtype=numpy.uint8)
    targets = generator.integers(0, 10, size=samples, dtype=numpy.int64)
    return inputs, targets, [0.5] * shape[0], [0.289] * shape[0]


def training_split(folder, shape, samples):
    """`folder` may be None: then random bytes, since speed does not depend on what the images show."""
    return read_split(folder, "train") if folder else synthetic_training_split(shape, samples)
