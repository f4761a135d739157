"""Data parallel training equals one rank: the same losses over 20 steps and the same weights at the end, at
equal micro-batches, on 1, 2, 3 and 4 ranks, with a ragged last batch and micro-batches of uneven size.

Tolerances: fp64 1e-9, fp32 1e-5, relative to the largest value: sums in another order, nothing else. Networks with
BatchNorm are small here and compared in fp64 only, buffers included: each normalisation divides by what another order
of sums has moved, and in fp32 twenty steps of a large rate make more of that than 1e-5.
"""

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from drawn import drawn
from dtrain_run import checkpoint_tensors, run, sample_hash, step_losses
from gaps import largest
from small_data import stage_small

# 800 samples in steps of 48: 17 steps, the last with 32 samples; 7 micro-batches of 6 or 7. Of the built-in set of mlp 8192 in
# steps of 500: 17 steps, the last with 192 samples; 7 micro-batches of 71 or 72.
COMMON = ["--micro-batches", 7, "--limit-steps", 20, "--epochs", 2, "--threads", 1,
          "--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.2, "--schedule", "cosine", "--grad-clip", 1.0,
          "--quiet"]


# What keeps the other models to seconds, and what they learn with; dropout and teacher forcing stay.
ADAM = ["--optimizer", "adam", "--momentum", 0, "--learning-rate", 0.01]
SMALL = {
    # On crops a rate of 0.2 makes 1.9e-5 of fp32's rounding within twenty steps, while fp64 stays at 3e-16;
    # objectives.py compares augmented runs.
    "cnn": ["--augment", "off"],
    "nbow": ADAM,
    "seq2seq": [*ADAM, "--model-option", "embedding=16", "--model-option", "hidden=24"],
    "gpt": [*ADAM, "--warmup-steps", 0, "--model-option", "layers=1", "--model-option", "heads=2", "--model-option", "width=16"],
    "vgg11": ["--learning-rate", 0.4, "--model-option", "width=4", "--model-option", "hidden=64"],
    "resnet18": ["--model-option", "width=4"],
    "conv_autoencoder": ADAM,
}
# Twenty steps leave an autoencoder near the mean picture, and a translator of 48 sentences a step near the frequencies of words;
# vision_learns.py and text_models.py have real bars.
LEARNS = {"conv_autoencoder": 0.999, "seq2seq": 0.97}
DOUBLE_ONLY = ("vgg11", "resnet18", "conv_autoencoder")
BATCH_NORM = ("vgg11", "resnet18")  # which take no micro-batch of one value
BIAS_SCALE = 1e-3  # of a bias that BatchNorm takes out again: its gradient is rounding, so it has no size of its own


def train(binary, folder, data, model, precision, ranks, *more):
    name = f"{model}-{precision}-{ranks}"
    run(binary, ranks, "--model", model, "--precision", precision, "--name", name, *COMMON,
        "--global-batch", 48 if data[model] else 500, *data[model], *SMALL.get(model, []), *more, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as results:
        losses, epochs = step_losses(results), results["epochs"][:]
        return losses, epochs, sample_hash(results), checkpoint_tensors(folder / f"runs/{name}/checkpoints/step-{len(losses):08}")


def main():
    binary = sys.argv[1]
    models = sys.argv[2:] or drawn(("mlp", "cnn", *DOUBLE_ONLY, "nbow", "seq2seq", "gpt"))
    with tempfile.TemporaryDirectory() as folder:
        data = stage_small(binary, Path(folder), models)
        compare(binary, models, data)
        for model in [model for model in models if model not in BATCH_NORM]:
            idle_ranks_agree(binary, model, data)


def compare(binary, models, data):
    for model in models:
        for precision, tolerance in (("fp64", 1e-9), ("fp32", 1e-5)):
            if precision == "fp32" and model in DOUBLE_ONLY:
                continue
            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                one, epochs_one, order_one, weights_one = train(binary, folder, data, model, precision, 1)
                assert len(one) == 20, len(one)
                assert one[-5:].mean() < LEARNS.get(model, 0.9) * one[:5].mean(), f"{model} does not learn: {one}"
                for ranks in (2, 3) if model in DOUBLE_ONLY else (2, 3, 4):
                    many, epochs, order, weights_many = train(binary, folder, data, model, precision, ranks)
                    loss_gap = np.max(np.abs(many - one)) / np.max(np.abs(one))
                    assert weights_many.keys() == weights_one.keys()
                    weight_gap = largest(*(np.max(np.abs(weights_many[k] - w)) / max(np.max(np.abs(w)), BIAS_SCALE)
                                           for k, w in weights_one.items()))
                    validation_gap = np.max(np.abs(epochs["validation_loss"] - epochs_one["validation_loss"]))
                    print(f"{model} {precision} {ranks} ranks: loss {loss_gap:.1e}, weights {weight_gap:.1e}, "
                          f"validation {validation_gap:.1e}")
                    assert loss_gap <= tolerance and weight_gap <= tolerance and validation_gap <= tolerance
                    assert order == order_one, "the ranks did not use each sample exactly once"


def idle_ranks_agree(binary, model, data):
    """The last step has two samples for three micro-batches: a rank of three has none of them, and passes no gradient. The steps are
    small, so that nbow's table is updated by rows."""
    batch, steps = (7, 115) if data[model] else (1365, 7)
    with tempfile.TemporaryDirectory() as folder:
        runs = [train(binary, Path(folder), data, model, "fp64", ranks, "--global-batch", batch, "--micro-batches", 3, "--epochs", 1, "--limit-steps", 0)
                for ranks in (1, 3)]
    (one, _, order_one, weights_one), (many, _, order, weights_many) = runs
    assert len(one) == steps and order == order_one, (len(one), order, order_one)
    assert np.allclose(many, one, rtol=1e-7), (model, np.max(np.abs(many - one)))  # of a hundred steps, each from weights that differ
    for name, value in weights_one.items():
        assert np.allclose(weights_many[name], value, rtol=0, atol=1e-7 * max(np.max(np.abs(value)), 1)), (model, name)


if __name__ == "__main__":
    main()
