"""Time series [n, T, F] and signals [n, 1, L] in arrays: mlp flattens them, an exported program takes them as they are, on one rank
and on two. What `predict` says of new ones is what PyTorch says with the exported weights. Models of images refuse them."""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

from dtrain_run import refused, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))
from export_model import export_model  # noqa: E402

BINARY = sys.argv.pop()
TOLERANCE = 1e-5  # far above the rounding of float32 in networks as small as these
TRAIN = ["--global-batch", 32, "--threads", 1, "--epochs", 2, "--quiet"]


class LastState(nn.Module):
    """[n, T, F] to two numbers, from the last state of an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def signals_net():
    return nn.Sequential(nn.Conv1d(1, 6, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(24, 3))


class SeriesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        rng = np.random.default_rng(4)
        kinds = rng.integers(0, 3, 300)
        wave = np.sin(np.arange(20)[None, :, None] * (1 + kinds)[:, None, None] * 0.3)
        self.series = (wave + rng.normal(0, 0.3, (300, 20, 3))).astype(np.float32)
        self.signals = np.ascontiguousarray(self.series[:, None, :, 0])
        self.kinds = kinds
        self.numbers = np.stack([kinds + rng.normal(0, 0.1, 300), self.series[:, -1].sum(1)], 1).astype(np.float32)

    def stage(self, name, inputs, targets):
        np.savez(self.folder / f"{name}.npz", x=inputs[:260], y=targets[:260])
        return run(BINARY, 1, "stage", name, "--from", f"{name}.npz", "--inputs", "x", "--targets", "y", cwd=self.folder).stdout

    def agrees(self, name, net, inputs, loss):
        """Trains the program on one rank and on two; what it says of new samples is what PyTorch says."""
        export_model(net, torch.from_numpy(inputs[:4]), self.folder / f"{name}.pt2", loss=loss)
        np.save(self.folder / "new.npy", inputs[260:])
        for ranks in (1, 2):
            run(BINARY, ranks, "--name", f"{name}{ranks}", "--dataset", name, "--model", f"{name}.pt2", *TRAIN, cwd=self.folder)
            best = f"runs/{name}{ranks}/checkpoints/best"
            run(BINARY, 1, "export", best, "weights.h5", cwd=self.folder)
            with h5py.File(self.folder / "weights.h5") as file:
                net.load_state_dict({key: torch.from_numpy(np.asarray(value)) for key, value in file["model"].items()})
            run(BINARY, ranks, "predict", best, "--from", "new.npy", "--output", "said.h5", cwd=self.folder)
            with h5py.File(self.folder / "said.h5") as file, torch.no_grad():
                np.testing.assert_allclose(file["outputs"][:], net.eval()(torch.from_numpy(inputs[260:])).numpy(), rtol=0, atol=TOLERANCE)

    def test_signals_and_a_convolution(self):
        self.assertIn("samples of [1, 20]", self.stage("signals", self.signals, self.kinds))
        self.agrees("signals", signals_net(), self.signals, "cross_entropy")

    def test_series_and_two_targets_of_an_lstm(self):
        self.assertIn("samples of [20, 3]", self.stage("series", self.series, self.numbers))
        self.agrees("series", LastState(), self.series, "mse")
        np.save(self.folder / "new.npy", self.series[:5, :19])
        refused(BINARY, 1, 3, ["new.npy", "[n, 19, 3]", "[n, 20, 3]"], "predict", "runs/series1/checkpoints/best", "--from", "new.npy",
                "--output", "o.csv", cwd=self.folder)
        one = LastState()
        one.head = nn.Linear(8, 1)
        export_model(one, torch.from_numpy(self.series[:4]), self.folder / "one.pt2", loss="mse")
        refused(BINARY, 1, 2, ["one.pt2", "[2, 2]: a number for each target"], "--dataset", "series", "--model", "one.pt2", *TRAIN,
                cwd=self.folder)

    def test_models_of_dtrain(self):
        self.stage("series", self.series, self.kinds)
        run(BINARY, 2, "--dataset", "series", "--model", "mlp", *TRAIN, cwd=self.folder)
        refused(BINARY, 1, 2, ["--model cnn", "images [C, H, W]", "[20, 3]", "--model mlp"], "--dataset", "series", "--model", "cnn", *TRAIN,
                cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
