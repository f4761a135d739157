"""--precision bf16 and fp16: models learn as in fp32, on one rank and on several, and fp16 leaves out what overflows.

    mixed_precision.py BINARY
"""

import re
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from drawn import drawn
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses
from small_data import stage_small

COMMON = ["--threads", 1, "--epochs", 2, "--quiet"]
SMALL_GPT = ["--model-option", "layers=2", "--model-option", "heads=2", "--model-option", "width=16", "--global-batch", 64]
# What a model is trained with, so that its loss falls by far more than the precision changes it, and the meshes that are compared with one rank.
MODELS = {"mlp": ["--limit-steps", 40], "cnn": ["--limit-steps", 40, "--schedule", "constant", "--learning-rate", 0.03],
          "nbow": ["--limit-steps", 20, "--schedule", "constant", "--learning-rate", 0.01],
          "gpt": [*SMALL_GPT, "--limit-steps", 12, "--schedule", "constant", "--learning-rate", 0.01],
          "resnet18": ["--model-option", "width=4", "--global-batch", 64, "--limit-steps", 8, "--optimizer", "adamw", "--schedule", "constant",
                       "--learning-rate", 0.01]}
MESHES = {"mlp": ["data=2", "pipe=2", "tensor=2"], "cnn": ["data=2,pipe=2"], "nbow": ["data=2"], "gpt": ["tensor=2", "pipe=2"],
          "resnet18": ["data=2", "tensor=2"]}
# How far losses may be apart, as a share of their fall: 1 is a run that learns nothing. Which fp16 steps overflow and are left out depends on
# the mesh, and gpt leaves out one or two of its twelve.
APART = {"bf16": 0.1, "fp16": 0.25}


def train(binary, folder, name, mesh, *options):
    run(binary, ranks_of(mesh), *COMMON, *options, "--mesh", mesh, "--name", name, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as file, np.errstate(invalid="ignore"):  # a step left out has no loss
        assert file.attrs["status"] in ("completed", b"completed")
        return step_losses(file)


def learns_beside_fp32(binary, folder, model, precision, data):
    """The losses fall, near those of fp32 but not the same; all tensors of the checkpoint are in full precision."""
    options = ["--model", model, "--micro-batches", 4, *MODELS[model], *data.get(model, [])]
    full = train(binary, folder, f"{model}-fp32", "data=1", *options, "--overwrite")
    one = train(binary, folder, f"{model}-{precision}", "data=1", *options, "--precision", precision)
    assert one[-4:].mean() < one[:4].mean(), (model, one)
    fall = one[0] - one.min()
    assert fall > 0.1 * one[0], (model, one)
    gap = np.abs(one - full).max() / fall
    assert 0 < gap < APART[precision], (model, precision, gap)
    saved = folder / f"runs/{model}-{precision}/checkpoints/best"
    assert {tensor.dtype for tensor in checkpoint_tensors(saved).values()} <= {np.dtype("float32"), np.dtype("int64")}
    for mesh in MESHES[model]:
        many = train(binary, folder, f"{model}-{precision}-{mesh}", mesh, *options, "--precision", precision)
        apart = np.abs(many - one).max() / fall
        # Sums of slices are rounded to half precision, those of copies are not: a step differs like one from fp32.
        assert apart < APART[precision], (model, precision, mesh, apart)
        print(f"{model} {precision}: of the loss's fall {gap:.1e} from fp32, {mesh} {apart:.1e} from one rank", flush=True)


def is_reproducible(binary, folder):
    """The same bits on any number of copies and stages."""
    options = ["--model", "cnn", "--precision", "bf16", "--reproducible", "--limit-steps", 10]
    train(binary, folder, "same-1", "data=1", *options)
    expected = checkpoint_tensors(folder / "runs/same-1/checkpoints/best", group=None)
    for mesh in ("data=2", "data=4", "data=2,pipe=2"):
        train(binary, folder, f"same-{mesh}", mesh, *options)
        found = checkpoint_tensors(folder / f"runs/same-{mesh}/checkpoints/best", group=None)
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected), mesh


def scales(folder, name):
    with h5py.File(folder / "runs" / name / "results.h5") as file:
        details = [event["detail"].decode() for event in file["ranks/00000/events"][:] if event["kind"] == b"step_left_out"]
    return [(int(re.search(r"step (\d+):", text)[1]), float(re.search(r"by ([\d.e+]+) now", text)[1])) for text in details]


def moves_as_by_the_first_update(binary, folder):
    """Adam's first update moves an element by the learning rate, whatever was left out before it. As the second one it would
    move it by 0.74 of that: the gradient's share of both moments, over their corrections (Kingma and Ba 2015, algorithm 1)."""
    options = ["--model", "mlp", "--optimizer", "adam", "--learning-rate", 0.001, "--schedule", "constant", "--precision", "fp16"]
    start = folder / "runs/left-out/checkpoints/step-00000001"
    train(binary, folder, "left-out", "data=1", *options, "--limit-steps", 1, "--inject", "nan:rank=0,step=1")
    train(binary, folder, "first-update", "data=1", *options, "--limit-steps", 2, "--resume", start)
    before, after = (checkpoint_tensors(saved)["output_fc.weight"]
                     for saved in (start, folder / "runs/first-update/checkpoints/step-00000002"))
    moved = np.median(np.abs(after - before)) / 0.001
    assert 0.98 < moved < 1.02, moved


def leaves_out_what_overflows(binary, folder):
    """A loss that is not a number at step 5: nothing is updated, the scale is halved, and a resumed run knows it."""
    options = ["--model", "mlp", "--precision", "fp16"]
    for ranks in (1, 2):
        mesh, name = f"data={ranks}", f"overflow-{ranks}"
        train(binary, folder, name, mesh, *options, "--limit-steps", 12, "--inject", "nan:rank=0,step=5")
        left_out = scales(folder, name)
        assert (5, 512.0) in left_out, left_out
        with h5py.File(folder / f"runs/{name}/results.h5") as file:
            assert np.isfinite(file["epochs"]["train_loss"]).all()
        manifest = (folder / f"runs/{name}/checkpoints/best/manifest.json").read_text()
        assert re.search(r'"loss_scale": *\{\s*"scale": *512.0', manifest), manifest[:800]
        train(binary, folder, name + "-on", mesh, *options, "--limit-steps", 20, "--inject", "nan:rank=0,step=15", "--resume",
              folder / f"runs/{name}/checkpoints/step-00000012")
        assert (15, 256.0) in scales(folder, name + "-on"), scales(folder, name + "-on")
    moves_as_by_the_first_update(binary, folder)
    for precision in ("fp32", "bf16"):  # without a scale such a step ends the run
        refused(binary, 1, 1, ["step 5", "not finite"], *COMMON, "--model", "mlp", "--precision", precision, "--limit-steps", 12,
                "--name", f"ends-{precision}", "--inject", "nan:rank=0,step=5", cwd=folder)


def says_what_it_is_good_for(binary, folder):
    """Half precision is for speed on a processor with units for it, and for memory elsewhere."""
    faster, smaller = "has units of its own", "saves memory"
    has_tiles = "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    # The kernel does not list the units for fp16.
    expected = {"bf16": [faster if has_tiles else smaller], "fp16": [faster, smaller] if has_tiles else [smaller]}
    for precision, words in expected.items():
        done = run(binary, 1, "--model", "mlp", "--precision", precision, "--threads", 1, "--limit-steps", 1, "--name", f"says-{precision}", cwd=folder)
        said = done.stdout + done.stderr
        assert any(f"precision  {precision} {word}" in said for word in words), said


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        says_what_it_is_good_for(binary, folder)
        leaves_out_what_overflows(binary, folder)
        is_reproducible(binary, folder)
        data = stage_small(binary, folder, ["gpt", "resnet18"])
        for model, precision in drawn([(model, "bf16") for model in MODELS] + [("mlp", "fp16"), ("gpt", "fp16")]):
            learns_beside_fp32(binary, folder, model, precision, data)


if __name__ == "__main__":
    main()
