"""The comparison with one rank can fail: a program with a planted mistake turns the cells red that it touches.

    planted_faults.py BINARY_WITH_FAULTS
"""

import os
import sys
import tempfile
from pathlib import Path

import equivalence
from gaps import largest
from small_data import stage_small

STEPS = 3  # the first shows most of the mistakes, a gradient of the step before the second
# Mistake, model, column of the matrix.
CELLS = [("skipped_all_reduce", "mlp", "ddp 2"),
         ("skipped_all_reduce", "cnn", "data 2 x pipe 2"),
         ("share_counted_twice", "gpt", "1f1b 2"),
         ("wrong_mask", "vgg11", "gpipe 2"),
         ("wrong_mask", "gpt", "ddp 2"),
         ("dropped_micro_batch", "mlp", "layerwise 2"),
         ("dropped_micro_batch", "cnn", "interleaved 2x2"),
         ("stale_gradient", "mlp", "1f1b 2"),
         ("stale_gradient", "conv_autoencoder", "gpipe 2"),
         ("unsummed_slice", "cnn", "tensor 2"),
         ("unsummed_slice", "gpt", "tensor 2"),
         ("wrong_slice_of_mask", "vgg11", "tensor 2"),
         ("bias_on_every_slice", "mlp", "tensor 2")]


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        os.environ.pop("DTRAIN_FAULT", None)
        models = sorted({cell[1] for cell in CELLS})
        data = stage_small(binary, folder, models)
        one = {model: equivalence.train(binary, folder, data, model, "fp64", 1, [], STEPS) for model in models}
        for fault, model, column in CELLS:
            for planted in (False, True):
                os.environ.pop("DTRAIN_FAULT", None)
                if planted:
                    os.environ["DTRAIN_FAULT"] = fault
                ranks, options = equivalence.COLUMNS[column]
                with tempfile.TemporaryDirectory() as other:
                    losses, weights = equivalence.compare(
                        one[model], equivalence.train(binary, Path(other), data, model, "fp64", ranks, options, STEPS))
                red = not largest(losses, weights) <= equivalence.TOLERANCES["fp64"]
                print(fault if planted else "as it is", model, column, f"{losses:.1e}", f"{weights:.1e}", flush=True)
                assert red == planted, f"{fault} in {model} on {column}: losses {losses}, weights {weights}"


if __name__ == "__main__":
    main()
