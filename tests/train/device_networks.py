"""Networks of a user's own whose parts do not lie as dtrain's kernels expect them, for device_memory.py."""

import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "jobs"))
from export_model import export_model  # noqa: E402


class Columns(nn.Module):
    """BatchNorm whose weight and bias are columns of one table, and a mask of each type that a buffer may have."""

    def __init__(self):
        super().__init__()
        self.conv, self.output = nn.Conv2d(1, 8, 3, 2, 1), nn.Linear(8 * 14 * 14, 10)
        self.table = nn.Parameter(torch.stack([torch.full((8,), 2.0), torch.full((8,), -1.0)], 1))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))
        self.register_buffer("mask", torch.arange(10) % 3 > 0)
        self.register_buffer("steps", torch.arange(10, dtype=torch.int8))
        self.register_buffer("exact", torch.linspace(0, 1, 10, dtype=torch.float64))

    def forward(self, x):
        x = F.batch_norm(self.conv(x), self.mean, self.variance, self.table[:, 0], self.table[:, 1], self.training)
        y = self.output(F.relu(x).flatten(1)) + self.exact.to(x.dtype) + self.steps * 0.01
        return torch.where(self.mask, y, y * 1.5)


class Recurrence(nn.Module):
    """An LSTM, and an RNN that stays in evaluation mode, over the rows of an image."""

    def __init__(self):
        super().__init__()
        self.lstm, self.rnn, self.output = nn.LSTM(28, 16, batch_first=True), nn.RNN(16, 16, batch_first=True), nn.Linear(16, 10)

    def train(self, mode=True):
        super().train(mode)
        self.rnn.eval()
        return self

    def forward(self, x):
        states, _ = self.rnn(self.lstm(x.squeeze(1))[0])
        return self.output(states[:, -1])


NETWORKS = {"columns": Columns, "recurrence": Recurrence}


def export(name, file):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_model(NETWORKS[name](), torch.randn(4, 1, 28, 28), file)
