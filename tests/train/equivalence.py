"""The equivalence matrix: every model on every way of splitting its work equals one rank at equal micro-batches.

A cell trains 10 steps with dropout, on a small dataset, on meshes with a pipe axis also with recomputation, and compares
the mean loss of each step and the final weights and buffers, put together from the parts that the ranks wrote, with those
of one rank: fp64 to 1e-9, fp32 to 1e-3, relative to the largest value. A cell that makes no sense is one that dtrain
refuses, and shows its reason.

    equivalence.py BINARY [--full] [--out FOLDER]     without --full a fixed sample over every row and column, in fp64
"""

import argparse
import csv
import sys
import tempfile
from datetime import date
from pathlib import Path

import h5py
import numpy as np

from drawn import drawn
from dtrain_run import checkpoint_tensors, refused, run, sample_hash, step_losses
from gaps import largest
from small_data import stage_small

STEPS = 10
COMMON = ["--epochs", 2, "--threads", 1, "--quiet", "--micro-batches", 8, "--schedule", "constant", "--grad-clip", 1.0,
          "--warmup-steps", 0]
SGD = ["--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.1]
ADAM = ["--optimizer", "adam", "--momentum", 0, "--learning-rate", 0.01]
# What keeps a model to seconds. Dropout stays where a model has it, and is put where an option can.
MODELS = {
    "mlp": ["--global-batch", 1365, *SGD],  # of 8192 samples: step 7 has two, most of its micro-batches none
    "cnn": ["--global-batch", 90, *SGD],  # of 800: the last step of an epoch has 80
    "vgg11": ["--global-batch", 100, *SGD, "--model-option", "width=4", "--model-option", "hidden=64"],
    "resnet18": ["--global-batch", 60, *SGD, "--model-option", "width=4"],
    "nbow": ["--global-batch", 90, *ADAM],
    "seq2seq": ["--global-batch", 100, *ADAM, "--model-option", "embedding=16", "--model-option", "hidden=24"],
    "conv_autoencoder": ["--global-batch", 100, *ADAM],
    "gpt": ["--global-batch", 50, *ADAM, "--model-option", "layers=2", "--model-option", "heads=4",
            "--model-option", "width=16", "--label-smoothing", 0.1],
}
# In fp32 a network with BatchNorm and ReLU is not a smooth function of its rounding: a value that moves across 0 changes
# the gradient by a percent, and ten steps at rate 0.1 carry that into every weight. One rank in fp32 is then as far from
# one rank in fp64 (0.04 for vgg11) as from any mesh whose sums round otherwise, while in fp64 all agree to 1e-13. Small
# steps keep what a flip can do below the tolerance. The losses of ten batches do not fall with them; in fp64 they do.
SMALL_STEPS = ["--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.002]
AGAIN = ["--recompute", "full"]
COLUMNS = {
    "ddp 2": (2, ["--mesh", "data=2"]),
    "ddp 4": (4, ["--mesh", "data=4"]),
    "layerwise 2": (2, ["--mesh", "pipe=2", "--pipeline", "layerwise", *AGAIN]),
    "layerwise 4": (4, ["--mesh", "pipe=4", "--pipeline", "layerwise", *AGAIN]),
    "gpipe 2": (2, ["--mesh", "pipe=2", "--pipeline", "gpipe", *AGAIN]),
    "1f1b 2": (2, ["--mesh", "pipe=2", "--pipeline", "1f1b", *AGAIN]),
    "1f1b 4": (4, ["--mesh", "pipe=4", "--pipeline", "1f1b", *AGAIN]),
    "eager 2": (2, ["--mesh", "pipe=2", "--pipeline", "eager-1f1b", *AGAIN]),
    "eager 4": (4, ["--mesh", "pipe=4", "--pipeline", "eager-1f1b"]),
    "interleaved 2x2": (2, ["--mesh", "pipe=2", "--pipeline", "interleaved", "--virtual-stages", 2, *AGAIN]),
    "data 2 x pipe 2": (4, ["--mesh", "data=2,pipe=2", *AGAIN]),
    "tensor 2": (2, ["--mesh", "tensor=2"]),
    "tensor 4": (4, ["--mesh", "tensor=4"]),
    "data 2 x tensor 2": (4, ["--mesh", "data=2,tensor=2"]),
    "pipe 2 x tensor 2": (4, ["--mesh", "pipe=2,tensor=2", *AGAIN]),
    "data 2 x pipe 2 x tensor 2": (8, ["--mesh", "data=2,pipe=2,tensor=2", *AGAIN]),
}
# Every row and every column at least twice.
SAMPLE = {"mlp": ("layerwise 4", "interleaved 2x2", "eager 2", "eager 4", "ddp 4", "tensor 4"),
          "cnn": ("gpipe 2", "data 2 x pipe 2", "tensor 4"),
          "vgg11": ("1f1b 4", "eager 4", "interleaved 2x2", "pipe 2 x tensor 2"),
          "resnet18": ("data 2 x pipe 2", "ddp 2", "tensor 2"),
          "nbow": ("1f1b 2", "ddp 4", "layerwise 4", "data 2 x tensor 2"),
          "seq2seq": ("gpipe 2", "layerwise 2", "data 2 x pipe 2 x tensor 2"),
          "conv_autoencoder": ("layerwise 2", "1f1b 4", "data 2 x tensor 2"),
          "gpt": ("1f1b 2", "eager 2", "data 2 x pipe 2", "ddp 2", "tensor 2", "pipe 2 x tensor 2", "data 2 x pipe 2 x tensor 2")}
TOLERANCES = {"fp64": 1e-9, "fp32": 1e-3}
SMALLEST = 1e-3  # a tensor that is nearly zero throughout, such as a bias before BatchNorm, has no size of its own


def takes_small_steps(model, precision):
    return model in ("vgg11", "resnet18") and precision == "fp32"


def options_of(model, precision, data):
    options = [*MODELS[model], *data[model]]
    if takes_small_steps(model, precision):
        place = options.index("--optimizer")
        options = [*options[:place], *SMALL_STEPS, *options[place + len(SMALL_STEPS):]]
    return [*COMMON, *options]


def train(binary, folder, data, model, precision, ranks, options, steps=STEPS):
    """`data`: what stage_small has given, by model."""
    name = "-".join(["run", model, precision, *(str(word).strip("-") for word in options)]).replace(",", "-")
    run(binary, ranks, "--model", model, "--precision", precision, "--name", name, *options_of(model, precision, data), *options,
        "--limit-steps", steps, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as results:
        return (step_losses(results), sample_hash(results),
                checkpoint_tensors(folder / "runs" / name / "checkpoints" / f"step-{steps:08}"))


def gap(found, expected, smallest=SMALLEST):
    return float(np.max(np.abs(found - expected)) / max(np.max(np.abs(expected)), smallest))


def scale_of(name, tensors):
    """A BatchNorm's bias begins at 0, its gradient is a sum that nearly cancels, and in fp32 one ReLU whose input rounding
    moves across 0 changes it by a percent. It is measured by what it is added to: values of deviation 1."""
    batch_norm = name.endswith(".bias") and name.removesuffix("bias") + "running_mean" in tensors
    return 1.0 if batch_norm else SMALLEST


def compare(one, other):
    """The largest relative differences of losses and of tensors."""
    assert one[1] == other[1], "the ranks did not use each sample exactly once"
    assert one[2].keys() == other[2].keys(), sorted(one[2].keys() ^ other[2].keys())
    return gap(other[0], one[0]), largest(*(gap(other[2][name], value, scale_of(name, one[2])) for name, value in one[2].items()))


def cell(binary, folder, data, model, precision, column, one):
    ranks, options = COLUMNS[column]
    layers = {"nbow": 2, "seq2seq": 2}.get(model, 99)
    stages = {"layerwise 4": 4, "1f1b 4": 4, "eager 4": 4, "interleaved 2x2": 4}.get(column, 2)
    if stages > layers and "ddp" not in column:
        refused(binary, ranks, 2, [f"{stages} stages are more than the {layers} layers of the model {model}"],
                "--model", model, *COMMON, *MODELS[model], *options, "--limit-steps", STEPS, cwd=folder)
        return {"model": model, "precision": precision, "column": column, "refused": f"{layers} layers, {stages} stages"}
    losses, weights = compare(one, train(binary, folder, data, model, precision, ranks, options))
    return {"model": model, "precision": precision, "column": column, "losses": losses, "weights": weights}


def page(rows, columns):
    text = []
    for precision, tolerance in TOLERANCES.items():
        text += [f"\n## {precision}, at most {tolerance:g}\n", "| model | " + " | ".join(columns) + " |",
                 "| --- |" + " --- |" * len(columns)]
        for model in MODELS:
            cells = []
            for column in columns:
                row = next((row for row in rows if (row["model"], row["precision"], row["column"]) == (model, precision, column)),
                           None)
                cells.append("" if row is None else row.get("refused") or f"{row['losses']:.0e}, {row['weights']:.0e}")
            text.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def matrix(arguments, data):
    """All rows, and those among them that are not equal to one rank."""
    rows, red = [], []
    for model in arguments.models:
        for precision in TOLERANCES if arguments.full else ("fp64",):
            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                one = train(arguments.binary, folder, data, model, precision, 1, [])
                assert len(one[0]) == STEPS, one[0]
                falls = one[0][-2:].mean() < one[0][:2].mean()
                assert falls or takes_small_steps(model, precision), f"{model}'s loss does not fall: {one[0]}"
                for column in COLUMNS if arguments.full else SAMPLE[model]:
                    row = cell(arguments.binary, folder, data, model, precision, column, one)
                    rows.append(row)
                    print(*row.values(), flush=True)
                    if "refused" not in row and not largest(row["losses"], row["weights"]) <= TOLERANCES[precision]:
                        red.append(row)
    return rows, red


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=drawn(MODELS))
    parser.add_argument("--out", type=Path, help="where the page and the raw figures go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, red = matrix(arguments, stage_small(arguments.binary, Path(folder), arguments.models))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        stem = arguments.out / f"equivalence-{date.today()}"
        with open(stem.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["model", "precision", "column", "losses", "weights", "refused"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        stem.with_suffix(".md").write_text(
            "# The equivalence matrix\n\n" + " ".join(__doc__.split("\n\n")[1].split()) +
            "\nA cell has the largest difference of a loss and of a weight.\n\n`tests/train/equivalence.py dtrain --full`\n" +
            page(rows, COLUMNS), encoding="utf-8")
    if red:
        sys.exit("not equal to one rank:\n" + "\n".join(str(row) for row in red))


if __name__ == "__main__":
    main()
