"""The models that read text learn their synthetic sets, far above chance and alike on 1 and 2 ranks, each in seconds."""

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import run

# Options small enough for seconds, and what the last epoch must reach: accuracy of ten classes, or a loss per token.
# Guessing has ln 60 = 4.09 for gpt, whose chain has an entropy of 1.24, and ln 16 = 2.77 for seq2seq's words.
CASES = {
    "nbow": (["--epochs", 3, "--learning-rate", 1e-2], "validation_accuracy", 0.8),
    "gpt": (["--model-option", "layers=2", "--model-option", "heads=4", "--model-option", "width=64",
             "--model-option", "dropout=0", "--global-batch", 32, "--limit-steps", 200, "--epochs", 1,
             "--learning-rate", 3e-3], "validation_loss", 1.8),
    "seq2seq": (["--model-option", "embedding=32", "--model-option", "hidden=96", "--model-option", "dropout=0",
                 "--epochs", 4, "--learning-rate", 5e-3], "validation_loss", 2.0),
}


def train(binary, folder, model, ranks):
    options, column, bar = CASES[model]
    run(binary, ranks, "--model", model, "--name", f"{model}-{ranks}", "--micro-batches", 2, "--threads", 1, "--quiet",
        *options, cwd=folder)
    with h5py.File(folder / "runs" / f"{model}-{ranks}" / "results.h5") as results:
        epochs = results["epochs"][:]
        used = [int(rank["epochs"][-1]["samples"]) for rank in results["ranks"].values()]
    reached = float(epochs[-1][column])
    print(f"{model} on {ranks} ranks: {column} {reached:.3f}", flush=True)
    assert reached > bar if column.endswith("accuracy") else reached < bar, f"{model} has not learnt: {epochs}"
    assert np.isnan(epochs[-1]["validation_accuracy"]) == (model != "nbow"), "accuracy where there is no such notion"
    if model == "seq2seq":
        assert epochs[-1]["validation_loss_free_running"] > epochs[-1]["validation_loss"], epochs
    assert sum(used) == int(epochs[-1]["samples"]), "samples are counted as tokens"
    return epochs


def main():
    for model in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            one = train(sys.argv[1], Path(folder), model, 1)
            two = train(sys.argv[1], Path(folder), model, 2)
            assert abs(one[0]["train_loss"] - two[0]["train_loss"]) < 0.02 * one[0]["train_loss"], (one, two)


if __name__ == "__main__":
    main()
