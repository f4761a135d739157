"""Programs that PyTorch exported train in dtrain as in PyTorch, and on every mesh as on one rank.

    agreement.py BINARY [--full] [NAME...]     without --full or names the three programs of every build

All in fp64. Beside a loop in PyTorch, on one rank with one micro-batch and without dropout: the loss, the gradient norm and
every parameter's gradient of a step; losses, norms, weights and buffers after three steps; the validation loss. Across
meshes, with dropout: losses and weights of three steps, and with --reproducible their bits; on the tensor axis, of programs
that have attentions, to rounding.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

import programs
from drawn import drawn
from dtrain_run import checkpoint_tensors, ranks_of, run, step_losses
from export_model import mean_loss
from gaps import largest, largest_of

STEPS = 3
BESIDE_PYTORCH = 1e-6  # both in fp64; sums in other orders differ by far less
ACROSS_MESHES = 1e-9
SMALLEST = 1e-6  # of the largest gradient: a bias before BatchNorm has one of rounding only
# Samples of a step and its micro-batches across meshes. The deepest images have one pixel, and BatchNorm over the two values
# of two samples turns their last bits into percents: twelve samples do not.
BATCHES = {"image": (48, 4), "text": (16, 8), "blocks": (16, 8), "pairs": (16, 8)}
MESHES = ("data=2", "pipe=2", "data=2,pipe=2")
TENSOR_MESHES = ("tensor=2", "data=2,tensor=2", "pipe=2,tensor=2")  # equal to rounding, also with --reproducible
DATA = {
    "image": ["--from", "images", "--inputs", "inputs.npy", "--targets", "targets.npy"],
    "text": ["--format", "synthetic", "--task", "text_classification", "--samples", 70,
             "--vocab-size", programs.WORDS, "--max-length", programs.LENGTH],
    "blocks": ["--format", "synthetic", "--task", "language_modelling", "--samples", 70,
             "--vocab-size", programs.WORDS, "--max-length", programs.LENGTH],
    "pairs": ["--format", "synthetic", "--task", "translation", "--samples", 70, "--vocab-size", programs.WORDS, "--max-length",
              programs.LENGTH],
}


def stage(binary, folder):
    generator = np.random.default_rng(1)
    (folder / "images").mkdir()
    np.save(folder / "images/inputs.npy", generator.integers(0, 256, (60, 3, 32, 32), np.uint8))
    np.save(folder / "images/targets.npy", np.arange(60) % programs.CLASSES["image"])
    for name, options in DATA.items():
        run(binary, 1, "stage", name, *options, cwd=folder)


def padded(file, kind, length):
    """The texts of a shard as ids [n, length], 0 behind the last word."""
    offsets, tokens = file[kind + "offsets"][:], torch.from_numpy(file[kind + "tokens"][:]).long()
    ids = torch.zeros(len(offsets) - 1, length, dtype=torch.int64)
    for row, (first, last) in enumerate(zip(offsets, offsets[1:])):
        ids[row, :last - first] = tokens[first:last]
    return ids


def split(folder, program, part, length=programs.LENGTH):
    """All inputs and targets of a split as dtrain gives them to a model, in float64; texts have `length` words."""
    name = program.data
    facts = json.loads((folder / "data/staged" / name / "dataset.json").read_text())
    (shard,) = facts["splits"][part]["shards"]
    with h5py.File(folder / "data/staged" / name / shard["file"]) as file:
        if name == "image":
            mean, deviation = (torch.tensor(facts[key]).double().view(-1, 1, 1) for key in ("mean", "std"))  # float32 first
            images = torch.from_numpy(file["inputs"][:]).double() / 255
            if program.loss == "mse":
                return images, images
            return (images - mean) / deviation, torch.from_numpy(file["targets"][:])
        if name == "series":
            return torch.from_numpy(file["inputs"][:]).double(), torch.from_numpy(file["targets"][:])
        if name == "pairs":
            return padded(file, "source_", length), padded(file, "target_", length)
        if name == "text":
            return padded(file, "", length), torch.from_numpy(file["targets"][:])
        tokens = torch.from_numpy(file["tokens"][:]).long()
        count = (len(tokens) - 1) // length
        cut = lambda first: tokens[first:first + count * length].view(count, length)  # noqa: E731
        return cut(0), cut(1)


def loss_of(program, module, inputs, targets):  # of pairs the targets are the second input
    outputs = module(inputs, targets) if program.loss == "model" else module(inputs)
    return mean_loss(program.loss, outputs, targets)


def in_pytorch(program, data, steps, rate, momentum):
    """Losses and gradient norms of the steps, the state_dict after them, and the validation loss."""
    module = programs.make(program, dropout=False).double().train()
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum)
    losses, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(program, module, *data["train"])
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None]).item())
        optimizer.step()
    module.eval()
    with torch.no_grad():
        validation = loss_of(program, module, *data["validation"]).item()
    return np.array(losses), np.array(norms), module, validation


def options_of(program, path, name, batch, micro_batches, rate, momentum, steps):
    return ["--model", path, "--loss", program.loss, "--dataset", program.data, "--precision", "fp64", "--name", name,
            "--global-batch", batch, "--micro-batches", micro_batches, "--limit-steps", steps, "--epochs", steps, "--optimizer",
            "sgd", "--momentum", momentum, "--weight-decay", 0, "--schedule", "constant", "--learning-rate", rate, "--grad-clip",
            0, "--warmup-steps", 0, "--augment", "off", "--threads", 1, "--quiet"]


def in_dtrain(binary, folder, program, path, name, steps, rate, momentum, batch):
    run(binary, 1, *options_of(program, path, name, batch, 1, rate, momentum, steps), cwd=folder)
    run(binary, 1, "export", folder / "runs" / name / "checkpoints" / f"step-{steps:08}", f"{name}.h5", cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as results, h5py.File(folder / f"{name}.h5") as exported:
        return (step_losses(results), results["ranks/00000/steps"]["gradient_norm"], results["epochs"][-1]["validation_loss"],
                {key: torch.from_numpy(np.asarray(item[()])) for key, item in exported["model"].items()})


def gap(found, expected, smallest=0.0):
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    return float(np.max(np.abs(found - expected), initial=0) / max(np.max(np.abs(expected), initial=0), smallest, 1e-300))


def beside_pytorch(binary, folder, name, program):
    path = folder / f"{name}.pt2"
    module, _ = programs.export(program, path, dropout=False)
    before = {key: value.double() for key, value in module.state_dict().items()}
    data = {part: split(folder, program, part) for part in ("train", "validation")}
    batch = len(data["train"][1])
    worst = {}

    # One step of plain sgd at rate 1: the difference of the weights is the gradient.
    losses, norms, module, _ = in_pytorch(program, data, 1, 1.0, 0.0)
    ours = in_dtrain(binary, folder, program, path, f"{name}-gradient", 1, 1.0, 0.0, batch)
    worst["loss"], worst["gradient norm"] = gap(ours[0], losses), gap(ours[1], norms)
    largest = max(p.grad.abs().max().item() for p in module.parameters() if p.grad is not None)
    for key, parameter in module.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        worst[f"gradient of {key}"] = gap(before[key] - ours[3][key].double(), gradient, SMALLEST * largest)

    losses, norms, module, validation = in_pytorch(program, data, STEPS, 0.05, 0.9)
    ours = in_dtrain(binary, folder, program, path, f"{name}-steps", STEPS, 0.05, 0.9, batch)
    worst["losses"], worst["gradient norms"], worst["validation loss"] = gap(ours[0], losses), gap(ours[1], norms), gap(ours[2], validation)
    theirs = module.state_dict()
    for key, value in theirs.items():
        assert ours[3][key].dtype == value.dtype, (key, ours[3][key].dtype, value.dtype)
        worst[key] = gap(ours[3][key], value, 1e-3)
    module.load_state_dict(ours[3], strict=True)
    key = largest_of(worst)
    print(f"{name}: beside PyTorch {len(worst)} values, largest difference {worst[key]:.1e} ({key})", flush=True)
    assert worst[key] <= BESIDE_PYTORCH, (name, key, worst[key])


def across_meshes(binary, folder, name, program):
    path = folder / f"{name}.pt2"
    programs.export(program, path)
    batch, micro_batches = BATCHES[program.data]

    def train(mesh, *options):
        run_name = "-".join([name, mesh, *options]).replace(",", "-")
        said = run(binary, ranks_of(mesh), *options_of(program, path, run_name, batch, micro_batches, 0.05, 0.9, STEPS)[:-1], "--mesh",
                   mesh, *options, cwd=folder)
        assert "tensor" not in mesh or program.tensor in said.stdout + said.stderr, (name, mesh, said)
        with h5py.File(folder / "runs" / run_name / "results.h5") as results:
            return step_losses(results), checkpoint_tensors(folder / "runs" / run_name / "checkpoints" / f"step-{STEPS:08}")

    said = []
    losses, weights = train("data=1")
    again = train("data=1", "--reproducible")
    for mesh in (*MESHES, *(TENSOR_MESHES if program.tensor else ())):
        other = train(mesh)
        assert other[1].keys() == weights.keys(), (name, mesh, other[1].keys() ^ weights.keys())
        worst = largest(gap(other[0], losses), *(gap(other[1][key], value, 1e-3) for key, value in weights.items()))
        assert worst <= ACROSS_MESHES, (name, mesh, worst)
        said.append(f"{mesh} {worst:.0e}")
        if mesh in TENSOR_MESHES:
            continue
        bits = train(mesh, "--reproducible")
        for key, value in again[1].items():
            assert value.tobytes() == bits[1][key].tobytes(), (name, mesh, key)
    print(f"{name}: one rank against {'; '.join(said)}; --reproducible to the bit{' on the first three' if program.tensor else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = given.names or drawn([name for name, program in programs.PROGRAMS.items() if given.full or program.ci])
    failures, missing = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        stage(given.binary, folder)
        for name in chosen:
            program = programs.PROGRAMS[name]
            if not programs.installed(program):
                missing.append(name)
                print(f"{name}: skipped, since {program.needs} is not installed (jobs/setup.sh --for-tests)")
                continue
            for check in (beside_pytorch, across_meshes):
                try:
                    check(given.binary, folder, name, program)
                except AssertionError as error:
                    failures.append(f"{name}, {check.__name__}: {error}")
                    print(failures[-1], flush=True)
    return 1 if failures else 77 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
