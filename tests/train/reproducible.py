"""--reproducible: the same bits on any number of ranks along data and pipe, and however often the run was stopped between.

    reproducible.py BINARY [--full]
"""

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, ranks_of, refused, run
from small_data import stage_small

SMALL_GPT = ["--model-option", "layers=2", "--model-option", "heads=2", "--model-option", "width=16", "--global-batch", 64]
SMALL_CNNS = {"vgg11": ["--model-option", "width=8", "--model-option", "hidden=64", "--global-batch", 96],
              "resnet18": ["--model-option", "width=4", "--global-batch", 100]}
MODELS = {"mlp": [], "cnn": [], "resnet18": SMALL_CNNS["resnet18"], "gpt": SMALL_GPT}
MORE_MODELS = {"vgg11": SMALL_CNNS["vgg11"], "conv_autoencoder": [], "nbow": [],
               "seq2seq": ["--model-option", "embedding=16", "--model-option", "hidden=24"]}
MESHES = ["data=1", "data=2", "data=3", "data=2,pipe=2"]
MORE_MESHES = ["data=4", "data=8", "pipe=2", "pipe=3", "data=3,pipe=2", "data=1,pipe=4"]
LAYERS = {"nbow": 2, "seq2seq": 2}  # so many stages at most; the others have enough
STEPS = 12


def trained(binary, folder, name, mesh, *options, code=0):
    """The run's folder."""
    done = run(binary, ranks_of(mesh), *options, "--mesh", mesh, "--name", name, "--quiet", cwd=folder, check=False)
    assert done.returncode == code, (name, mesh, done.returncode, done.stdout, done.stderr)
    return folder / "runs" / name


def end_of(run_folder, step=STEPS):
    """All tensors of the last checkpoint, and what each epoch came to in training."""
    with h5py.File(run_folder / "results.h5") as file:
        losses = {"train_loss": file["epochs"]["train_loss"]}
    return checkpoint_tensors(run_folder / "checkpoints" / f"step-{step:08}", group=None) | losses


def others(one, other):
    """Names of the tensors whose bits are not the same."""
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def same_on_all(binary, folder, model, meshes, *options):
    common = ["--model", model, "--epochs", 2, "--limit-steps", STEPS, "--reproducible", "--grad-clip", 0.5, *options]
    expected = end_of(trained(binary, folder, f"{model}-{meshes[0]}", meshes[0], *common))
    assert any(name.startswith("model/") for name in expected)
    for mesh in meshes[1:]:
        found = end_of(trained(binary, folder, f"{model}-{mesh}", mesh, *common))
        assert not others(expected, found), (model, mesh, others(expected, found)[:5])
        print(f"{model} {mesh}: {len(expected)} tensors, the bits of {meshes[0]}", flush=True)
    return expected


def the_fast_mode_differs(binary, folder, expected, *options):
    """Or the comparison would show nothing."""
    common = ["--model", "cnn", "--epochs", 2, "--limit-steps", STEPS, "--grad-clip", 0.5, "--micro-batches", 8, "--threads", 1, *options]
    found = [end_of(trained(binary, folder, f"fast-{mesh}", mesh, *common)) for mesh in ("data=1", "data=3")]
    assert others(*found), "the fast mode has the same bits on one rank and on three"
    weights = {name: values for name, values in expected.items() if name.startswith("model/")}
    for name, values in weights.items():  # and yet both do the same
        assert np.allclose(values, found[0][name], rtol=1e-3, atol=1e-5), name


def the_same_after_stops(binary, folder, model, *options):
    """Stopped three times, in mid-epoch too, and gone on with on other numbers of ranks."""
    steps = [5, 9, 14, 20]
    common = ["--model", model, "--epochs", 3, "--reproducible", "--schedule", "constant", *options]
    whole = trained(binary, folder, f"{model}-whole", "data=1", *common, "--limit-steps", steps[-1])
    resume = "none"
    for limit, mesh in zip(steps, ("data=2", "data=3", "pipe=2", "data=4")):
        part = trained(binary, folder, f"{model}-{limit}", mesh, *common, "--limit-steps", limit, "--resume", resume)
        resume = part / "checkpoints" / f"step-{limit:08}"
    found, expected = end_of(part, steps[-1]), end_of(whole, steps[-1])
    for losses in (found, expected):
        losses["train_loss"] = losses["train_loss"][-1:]  # each part records its own epochs
    assert not others(expected, found), (model, others(expected, found)[:5])
    print(f"{model}: stopped three times, the bits of an undisturbed run", flush=True)


def over_tensor_to_rounding(binary, folder, expected, *options):
    found = end_of(trained(binary, folder, "tensor", "data=1,tensor=2", "--model", "cnn", "--epochs", 2, "--limit-steps", STEPS,
                           "--reproducible", "--grad-clip", 0.5, *options))
    for name in expected:
        assert np.allclose(expected[name], found[name], rtol=1e-3, atol=1e-5), name


def refuses(binary, folder):
    refused(binary, 2, 2, ["--pipeline interleaved", "1f1b"], "--model", "cnn", "--reproducible", "--mesh", "pipe=2", "--pipeline",
            "interleaved", "--name", "refused", cwd=folder)
    refused(binary, 2, 2, ["--global-batch", "8 micro-batches"], "--model", "cnn", "--reproducible", "--global-batch", 5,
            "--name", "refused", cwd=folder)
    trained(binary, folder, "fast", "data=2", "--model", "mlp", "--limit-steps", 2, "--threads", 1)
    refused(binary, 2, 2, ["--reproducible was false and is true"], "--model", "mlp", "--limit-steps", 4, "--threads", 1,
            "--reproducible", "--name", "other", "--resume", "runs/fast/checkpoints/step-00000002", cwd=folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--models", nargs="+", choices=[*MODELS, *MORE_MODELS], help="these only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        refuses(arguments.binary, folder)
        data = stage_small(arguments.binary, folder, [*MODELS, *MORE_MODELS])
        for model, options in (MODELS | (MORE_MODELS if arguments.full else {})).items():
            options = [*options, *data[model]]
            if arguments.models and model not in arguments.models:
                continue
            meshes = MESHES + (MORE_MESHES if arguments.full else [])
            meshes = [mesh for mesh in meshes if int((re.findall(r"pipe=(\d)", mesh) or [1])[0]) <= LAYERS.get(model, 4)]
            expected = same_on_all(arguments.binary, folder, model, meshes, *options)
            if model == "cnn":
                the_fast_mode_differs(arguments.binary, folder, expected, *options)
                over_tensor_to_rounding(arguments.binary, folder, expected, *options)
            if arguments.full or model in ("cnn", "resnet18"):
                the_same_after_stops(arguments.binary, folder, model, *options)
            shutil.rmtree(folder / "runs")


if __name__ == "__main__":
    main()
