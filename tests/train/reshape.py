"""The reshape matrix: what one mesh has saved another one loads, to the bit, and goes on with.

A cell takes a checkpoint of step 10 saved on one mesh, has another mesh load and save it (every tensor, the optimizer's
too, must be equal bit for bit) and train five more steps from it: their losses are those of the run that went on undisturbed,
to the bit on the same mesh, to 1e-9 (fp64) elsewhere.

    reshape.py BINARY [--full] [--out FOLDER]     without --full a fixed sample
"""

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from drawn import drawn
from dtrain_run import checkpoint_tensors, run, step_losses, write_rows
from small_data import stage_small

IN_PARTS = "pipe 2, in parts"  # two stages share a layer where the model has a large one
MESHES = {"1": (1, []), "data 2": (2, ["--mesh", "data=2"]), "pipe 2": (2, ["--mesh", "pipe=2"]),
          "tensor 2": (2, ["--mesh", "tensor=2"]), "data 4": (4, ["--mesh", "data=4"]),
          "data 2 x pipe 2": (4, ["--mesh", "data=2,pipe=2"]), "data 2 x tensor 2": (4, ["--mesh", "data=2,tensor=2"]),
          "pipe 2 x tensor 2": (4, ["--mesh", "pipe=2,tensor=2"]),
          IN_PARTS: (2, ["--mesh", "pipe=2", "--pipeline", "eager-1f1b"]),
          "data 2 x pipe 2, in parts": (4, ["--mesh", "data=2,pipe=2", "--pipeline", "eager-1f1b"])}
COMMON = ["--epochs", 2, "--threads", 1, "--quiet", "--micro-batches", 8, "--schedule", "constant", "--precision", "fp64",
          "--warmup-steps", 0]
MODELS = {  # slices of heads and words, a tied weight, dropout; BatchNorm's buffers and convolutions
    "gpt": ["--model", "gpt", "--global-batch", 50, "--model-option", "layers=2", "--model-option", "heads=4",
            "--model-option", "width=16", "--model-option", "dropout=0.1"],
    "resnet18": ["--model", "resnet18", "--global-batch", 60, "--model-option", "width=4", "--learning-rate", 0.05],
    "vgg11": ["--model", "vgg11", "--global-batch", 60, "--model-option", "width=32", "--model-option", "hidden=128",
              "--learning-rate", 0.05]}
SAMPLE = {"gpt": [("data 2 x tensor 2", "pipe 2"), ("pipe 2 x tensor 2", "1"), ("1", "tensor 2"), ("tensor 2", "tensor 2")],
          "resnet18": [("tensor 2", "data 4"), ("data 2 x pipe 2", "data 2"), ("data 2", "pipe 2 x tensor 2")],
          "vgg11": [(IN_PARTS, "pipe 2"), ("pipe 2", IN_PARTS), (IN_PARTS, IN_PARTS), (IN_PARTS, "data 2 x pipe 2, in parts")]}
SAVED, LAST = 10, 15


def all_tensors(run_folder):
    return checkpoint_tensors(run_folder / "checkpoints" / f"step-{SAVED:08}", group=None)


def has_parts(run_folder):
    manifest = json.loads((run_folder / "checkpoints" / f"step-{SAVED:08}" / "manifest.json").read_text())
    return any(len(tensor["slices"]) > 1 for tensor in manifest["tensors"])


def losses(run_folder):
    with h5py.File(run_folder / "results.h5") as file:
        return step_losses(file)


def begin(binary, folder, data, model, mesh):
    """The run that saves at step 10 and goes on undisturbed."""
    ranks, options = MESHES[mesh]
    name = f"{model}-{mesh}".replace(" ", "")
    run(binary, ranks, *MODELS[model], *data[model], *COMMON, *options, "--limit-steps", LAST, "--checkpoint-every", f"{SAVED}steps",
        "--name", name, cwd=folder)
    return folder / "runs" / name


def cell(binary, folder, data, model, saved_by, loaded_by):
    begun = folder / "runs" / f"{model}-{saved_by}".replace(" ", "")
    begun = begun if begun.exists() else begin(binary, folder, data, model, saved_by)
    ranks, options = MESHES[loaded_by]
    again = [*MODELS[model], *data[model], *COMMON, *options, "--resume", begun / "checkpoints" / f"step-{SAVED:08}"]
    with tempfile.TemporaryDirectory() as other:
        run(binary, ranks, *again, "--limit-steps", SAVED, "--name", "loaded", cwd=other)
        run(binary, ranks, *again, "--limit-steps", LAST, "--name", "gone-on", cwd=other)
        one, two = all_tensors(begun), all_tensors(Path(other) / "runs/loaded")
        found = losses(Path(other) / "runs/gone-on")
    if saved_by == IN_PARTS and model == "vgg11":
        assert has_parts(begun), "no layer was cut"
    different = [name for name in one if one.keys() != two.keys() or not np.array_equal(one[name], two[name])]
    expected = losses(begun)[SAVED:]
    assert len(found) == LAST - SAVED, found
    return {"model": model, "saved_by": saved_by, "loaded_by": loaded_by, "tensors": len(one), "different": len(different),
            "losses": float(np.max(np.abs(found - expected) / np.abs(expected)))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    arguments = parser.parse_args()
    rows, red = [], []
    with tempfile.TemporaryDirectory() as folder:
        data = stage_small(arguments.binary, Path(folder), MODELS)
        for model, sample in SAMPLE.items():
            for saved_by, loaded_by in itertools.product(MESHES, MESHES) if arguments.full else drawn(sample):
                row = cell(arguments.binary, Path(folder), data, model, saved_by, loaded_by)
                rows.append(row)
                print(*row.values(), flush=True)
                if row["different"] or not row["losses"] <= (0 if saved_by == loaded_by else 1e-9):
                    red.append(row)
    if arguments.out:
        write_rows(rows, arguments.out, "reshape")
    if red:
        sys.exit("not the same:\n" + "\n".join(str(row) for row in red))


if __name__ == "__main__":
    main()
