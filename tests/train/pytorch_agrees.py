"""Weights go both ways: the same networks, written in plain PyTorch, load what `dtrain export` writes with strict
names, and agree on the loss, on one step's gradient and on what the step does to BatchNorm's statistics; PyTorch's own
start, loaded with --init-from, gives PyTorch's loss.

A training run of one plain sgd step at rate 0 exports the initial weights, at rate 1 those after the step: their
difference is the gradient. All in fp64, so that 1e-5 is far above rounding; the validation loss also in fp32.
"""

import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

from drawn import drawn
from dtrain_run import run
from gaps import largest, largest_of

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "perf" / "peers"), str(TOP / "perf" / "training")]
import networks  # noqa: E402
import random_images  # noqa: E402

TOLERANCE = 1e-5
TRAIN, VALIDATION = 16, 8
NO_RATE = 1e-300  # changes no weight
OPTIONS = {"vgg11": ["--model-option", "dropout=0"]}  # chance differs between the two
SHAPES = {"mlp": (1, 28, 28)}


def exported(binary, folder, model, name, rate, *options, precision="fp64"):
    """The results' epoch and the weights after one step of plain sgd over all training samples."""
    run(binary, 1, "--model", model, *OPTIONS.get(model, []), "--dataset", folder / "images", "--name", name,
        "--precision", precision, "--global-batch", TRAIN, "--limit-steps", 1, "--optimizer", "sgd", "--momentum", 0,
        "--weight-decay", 0, "--schedule", "constant", "--learning-rate", rate, "--augment", "off", "--quiet", *options, cwd=folder)
    # Not best/: a step at rate 1 may well be no improvement.
    run(binary, 1, "export", folder / "runs" / name / "checkpoints" / "step-00000001", folder / f"{name}.h5", cwd=folder)
    with h5py.File(folder / f"{name}.h5") as file:
        weights = {key: torch.from_numpy(np.asarray(item[()])) for key, item in file["model"].items()}
    with h5py.File(folder / "runs" / name / "results.h5") as results:
        return results["epochs"][0], weights


def batch(folder, split, recipe):
    facts = json.loads((folder / "images" / "dataset.json").read_text())
    with h5py.File(folder / "images" / f"{split}-00000-of-00001.h5") as file:
        images, targets = torch.from_numpy(file["inputs"][:]), torch.from_numpy(file["targets"][:])
    mean, std = networks.scale_of(recipe, facts["mean"], facts["std"])
    column = lambda values: torch.tensor(values).double().view(-1, 1, 1)  # noqa: E731  float32 first, as dtrain
    return (images.double() / 255 - column(mean)) / column(std), targets


def without_dropout(network):
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def gap(ours, theirs):
    scale = max(theirs.abs().max().item(), 1e-3)
    return (ours.double() - theirs).abs().max().item() / scale


def check(binary, folder, model):
    recipe = networks.RECIPES[model]
    random_images.stage(folder / "images", shape=SHAPES.get(model, (3, 32, 32)), train_samples=TRAIN,
                        other_samples=VALIDATION)
    before_epoch, before = exported(binary, folder, model, "before", NO_RATE)
    _, after = exported(binary, folder, model, "after", 1)
    single, _ = exported(binary, folder, model, "single", NO_RATE, precision="fp32")

    network = networks.make_network(model, seed=1).double()
    without_dropout(network)
    fresh = {name: value.clone() for name, value in network.named_buffers()}
    network.load_state_dict(before, strict=True)
    with torch.no_grad():
        for name, value in network.named_buffers():
            value.copy_(fresh[name])  # dtrain's have seen the step that follows
    x, y = batch(folder, "train", recipe)
    loss = networks.loss_of(recipe, network(x), x, y)
    loss.backward()
    worst = {"train loss": abs(before_epoch["train_loss"] - loss.item()) / loss.item()}
    for name, parameter in network.named_parameters():
        worst[f"gradient of {name}"] = gap(before[name] - after[name], parameter.grad)
    for name, value in network.named_buffers():
        assert before[name].dtype == value.dtype and before[name].shape == value.shape, name
        worst[name] = gap(before[name], value.double())

    theirs = networks.make_network(model, seed=2).double()
    without_dropout(theirs)
    with h5py.File(folder / "theirs.h5", "w") as file:
        for name, value in theirs.state_dict().items():
            file[f"model/{name}"] = value.numpy()
    loaded, _ = exported(binary, folder, model, "loaded", NO_RATE, "--init-from", folder / "theirs.h5")
    expected = networks.loss_of(recipe, theirs(x), x, y).item()
    worst["loss of PyTorch's weights"] = abs(loaded["train_loss"] - expected) / expected

    network.eval()
    with torch.no_grad():
        x, y = batch(folder, "validation", recipe)
        expected = networks.loss_of(recipe, network(x), x, y).item()
    for epoch in (before_epoch, single):
        worst["validation loss"] = largest(worst.get("validation loss", 0.0),
                                           abs(epoch["validation_loss"] - expected) / expected)
    name = largest_of(worst)
    print(f"{model}: {len(worst)} values compared, largest difference {worst[name]:.1e} ({name})", flush=True)
    assert worst[name] <= TOLERANCE, (model, name, worst[name])


def check_smoothed_and_frozen(binary, folder):
    """One step with --label-smoothing and --freeze: PyTorch's loss and gradients, and none where nothing is trained."""
    recipe = networks.RECIPES["mlp"]
    random_images.stage(folder / "images", shape=SHAPES["mlp"], train_samples=TRAIN, other_samples=VALIDATION)
    options = ["--label-smoothing", 0.2, "--freeze", "^hidden_fc"]
    epoch, before = exported(binary, folder, "mlp", "before", NO_RATE, *options)
    _, after = exported(binary, folder, "mlp", "after", 1, *options)
    network = networks.make_network("mlp", seed=1).double()
    network.load_state_dict(before, strict=True)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not name.startswith("hidden_fc"))
    x, y = batch(folder, "train", recipe)
    loss = torch.nn.functional.cross_entropy(network(x), y, label_smoothing=0.2)
    loss.backward()
    worst = abs(epoch["train_loss"] - loss.item()) / loss.item()
    for name, parameter in network.named_parameters():
        if parameter.grad is None:
            assert torch.equal(before[name], after[name]), f"{name} was frozen"
        else:
            worst = largest(worst, gap(before[name] - after[name], parameter.grad))
    print(f"label smoothing, frozen parameters: largest difference {worst:.1e}", flush=True)
    assert worst <= TOLERANCE, worst


def main():
    binary = sys.argv[1]
    torch.set_num_threads(1)
    for model in drawn(("mlp", "cnn", "vgg11", "resnet18", "conv_autoencoder")):
        with tempfile.TemporaryDirectory() as folder:
            check(binary, Path(folder), model)
    with tempfile.TemporaryDirectory() as folder:
        check_smoothed_and_frozen(binary, Path(folder))


if __name__ == "__main__":
    main()
