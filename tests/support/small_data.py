"""Small datasets for runs whose numbers are compared: of the built-in sets each run evaluates 2,048 samples, which is most of its work."""

import h5py
import numpy as np

from dtrain_run import run

TASKS = {"nbow": "text_classification", "seq2seq": "translation", "gpt": "language_modelling"}
IMAGE_MODELS = ("cnn", "vgg11", "resnet18", "conv_autoencoder")


def write_images(path, samples):
    """Images [3, 32, 32] of ten classes as /x and /y of an HDF5 file: squares in the colours of a class, and noise."""
    targets, random = np.arange(samples) % 10, np.random.default_rng(1)
    classes = np.kron(random.integers(0, 180, (10, 3, 4, 4)), np.ones((1, 1, 8, 8)))
    images = classes[targets] + random.integers(0, 60, (samples, 3, 32, 32))
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = images.astype(np.uint8), targets.astype(np.int64)


def stage_small(binary, folder, models, samples=800):
    """Options of a run by model, that name a staged set of so many training samples; none for a model of tables, mlp. It has a
    validation and a test split: of an eighth as many images, or of 1,024 texts."""
    options = {}
    if set(models) & set(IMAGE_MODELS):
        write_images(folder / "images.h5", samples * 10 // 8)
        run(binary, 1, "stage", "images", "--from", folder / "images.h5", "--inputs", "/x", "--targets", "/y", cwd=folder)
    for model in set(models) & set(TASKS):
        run(binary, 1, "stage", TASKS[model], "--format", "synthetic", "--task", TASKS[model], "--samples", samples, cwd=folder)
    for model in models:
        name = TASKS.get(model, "images")
        options[model] = ["--dataset", folder / "data/staged" / name] if (folder / "data/staged" / name).exists() and model != "mlp" else []
    return options
