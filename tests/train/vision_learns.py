"""The models of images learn their synthetic dataset (ten smooth pictures under noise), on 1 and on 2 ranks, and both
come to the same. The networks are narrow, so that seconds do."""

import sys
import tempfile
import time
from pathlib import Path

import h5py

from drawn import drawn
from dtrain_run import run

CHANCE = 0.1  # ten classes
CASES = [  # model, options, the metric of /epochs that the bar is for, the bar, how far the two may be apart: fp32 has other sums
    ("vgg11", ["--model-option", "width=16", "--model-option", "hidden=128", "--epochs", 1, "--limit-steps", 60],
     "validation_accuracy", 0.6, 0.05),
    ("resnet18", ["--model-option", "width=8", "--epochs", 1], "validation_accuracy", 0.6, 0.05),
    # 0.0594 is the error of the mean picture; most of the rest is noise, which no code of a quarter the size holds.
    ("conv_autoencoder", ["--epochs", 3], "validation_loss", 0.0535, 0.0003),
]


def main():
    binary = sys.argv[1]
    for model, options, metric, bar, apart in drawn(CASES):
        reached = []
        for ranks in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                start = time.monotonic()
                run(binary, ranks, "--model", model, "--name", "learns", "--micro-batches", 2,
                    "--threads", 1, "--quiet", *options, cwd=folder)
                seconds = time.monotonic() - start
                with h5py.File(Path(folder) / "runs" / "learns" / "results.h5") as results:
                    epoch = results["epochs"][-1]
            value = float(epoch[metric])
            reached.append(value)
            print(f"{model} on {ranks} ranks: {metric} {value:.4f} after {seconds:.1f} s", flush=True)
            assert value >= bar if metric.endswith("accuracy") else value <= bar, (model, ranks, value, bar)
            if model == "conv_autoencoder":
                assert epoch["train_accuracy"] != epoch["train_accuracy"], "an autoencoder has no accuracy"
        assert abs(reached[0] - reached[1]) < apart, (model, reached)


if __name__ == "__main__":
    main()
