"""The clipped gradients of samples beside those of Opacus, an independent program, for each kind of layer: a step without noise of all
records changes the weights by their sum. Skipped where jobs/setup.sh --for-tests has not installed Opacus.

    gradients.py BINARY [--full]
"""

import sys
import tempfile
import unittest
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
try:
    from opacus import GradSampleModule
    from opacus.layers import DPLSTM
except ImportError as missing:
    print(f"skipped: {missing}; jobs/setup.sh --for-tests installs it")
    sys.exit(77)

import h5py
import numpy as np
import torch
from torch.nn import functional as F

from dtrain_run import checkpoint_tensors, run

sys.path.insert(0, str(Path(__file__).parents[2] / "jobs"))
from export_model import export_model  # noqa: E402

FULL = sys.argv[-1] == "--full" and bool(sys.argv.pop())
BINARY = sys.argv.pop()
STEP = ["--threads", 2, "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0, "--schedule", "constant", "--grad-clip", 0, "--quiet",
        "--limit-steps", 1, "--dp-noise", 0, "--noise-source", "seeded"]
RECORDS = 23
TOLERANCE = 1e-5


class Images(torch.nn.Module):
    """Rows of 2 x 7 x 6 numbers."""

    def __init__(self):
        super().__init__()
        self.plain = torch.nn.Conv2d(2, 6, (3, 2), stride=(1, 2), padding=(1, 0))
        self.norm = torch.nn.GroupNorm(3, 6)
        self.grouped = torch.nn.Conv2d(6, 4, 3, groups=2, bias=False)
        self.layer_norm = torch.nn.LayerNorm(5)
        self.last = torch.nn.Linear(20, 3)

    def forward(self, rows):
        images = rows.view(rows.shape[0], 2, 7, 6)
        inner = torch.tanh(self.norm(self.plain(images)))
        inner = F.relu(self.grouped(inner).flatten(2))
        return self.last(self.layer_norm(inner).flatten(1))


class Texts(torch.nn.Module):
    """Rows of 9 words below 11: an embedding, attention by linear layers, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)
        self.joint = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 8, bias=False)
        self.norm = torch.nn.LayerNorm(8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, rows):
        inner = self.words(rows.long())
        for _ in range(2):
            query, key, value = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.joint(self.norm(inner)).chunk(3, dim=2))
            mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            inner = inner + self.out(mixed)
        return self.last(inner.mean(dim=1))


class Odd(torch.nn.Module):
    """Rows of 9 words: what Opacus has no rules for, too."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 8, padding_idx=0)
        self.positions = torch.nn.Embedding(12, 8)
        self.first = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.scale = torch.nn.Parameter(torch.randn(8))
        self.shift = torch.nn.Parameter(torch.randn(1, 10, 8))
        self.turned = torch.nn.Parameter(torch.randn(8, 8) / 4)
        self.bias = torch.nn.Parameter(torch.randn(8))
        self.conv = torch.nn.Conv1d(8, 6, 3, dilation=2)
        self.back = torch.nn.ConvTranspose1d(6, 4, 2, stride=2)
        self.last = torch.nn.Linear(23, 3)

    def forward(self, rows):
        inner = self.words(rows.long()) + self.positions(torch.arange(9))
        inner = torch.cat([self.first.expand(rows.shape[0], -1, -1), inner], 1) * self.scale + self.shift
        mixed = torch.addmm(self.bias, inner.view(-1, 8), self.turned).view(-1, 10, 8)
        inner = inner + torch.tanh(mixed)
        tied = F.linear(inner, self.words.weight).mean(1) + inner[:, 0].sum(1, keepdim=True)
        signal = self.back(torch.tanh(self.conv(inner.transpose(1, 2)))).mean(1)
        return self.last(torch.cat([tied, signal], 1))


class FirstStates(torch.nn.Module):
    """Rows of 9 words: a GRU and an LSTM whose first states are parameters."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 6)
        self.gru = torch.nn.GRU(6, 4, 2, batch_first=True)
        self.lstm = torch.nn.LSTM(4, 3, batch_first=True)
        self.first = torch.nn.Parameter(torch.randn(2, 4))
        self.hidden, self.cell = (torch.nn.Parameter(torch.randn(3)) for _ in range(2))
        self.last = torch.nn.Linear(3, 3)

    def forward(self, rows):
        n = rows.shape[0]
        inner, _ = self.gru(self.words(rows.long()), self.first.expand(n, 2, 4).transpose(0, 1))
        inner, _ = self.lstm(inner, (self.hidden.expand(n, 3).unsqueeze(0), (torch.zeros(n, 3) + self.cell).unsqueeze(0)))
        return self.last(inner.mean(1))


class Recurrent(torch.nn.Module):
    """Rows of 9 words: LSTM, GRU and RNN in both orders of dims, of several layers and directions, and one that starts where another ends."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 6)
        self.lstm = torch.nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)
        self.after = torch.nn.LSTM(6, 4, 4, bias=False)
        self.gru = torch.nn.GRU(8, 5)
        self.both = torch.nn.GRU(6, 3, bias=False, bidirectional=True, batch_first=True)
        self.plain = torch.nn.RNN(6, 4, nonlinearity="relu", batch_first=True)
        self.last = torch.nn.Linear(4 + 4 + 5 + 6 + 4, 3)

    def forward(self, rows):
        words = self.words(rows.long())
        outputs, state = self.lstm(words)
        after, _ = self.after(words.transpose(0, 1), state)
        _, hidden = self.gru(torch.tanh(outputs.permute(1, 0, 2)))
        both, _ = self.both(words)
        _, plain = self.plain(words)
        return self.last(torch.cat([state[0][-1], after[-1], hidden.squeeze(0), both.mean(1), plain[0]], 1))


class Encoder(torch.nn.Module):
    """Rows of 9 words: PyTorch's transformer, which puts time before samples, for samples first and for time first."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)
        self.first = torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0, batch_first=True)
        self.second = torch.nn.TransformerEncoderLayer(8, 4, 12, dropout=0, activation="gelu", norm_first=True)
        self.third = torch.nn.MultiheadAttention(8, 2, bias=False)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, rows):
        inner = self.second(self.first(self.words(rows.long())).transpose(0, 1))
        return self.last(self.third(inner, inner, inner)[0].mean(0))


class OfWords(torch.nn.Module):
    """Opacus's twin of an LSTM beside PyTorch's, whose parameters have the same names."""

    def __init__(self, recurrent):
        super().__init__()
        self.words = torch.nn.Embedding(11, 6)
        self.recurrent = recurrent(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.last = torch.nn.Linear(10, 3)

    def forward(self, rows):
        return self.last(self.recurrent(self.words(rows.long()))[0].mean(1))


class SequenceOfSamples(torch.nn.Module):
    """A recurrent network that takes the rows of a batch for the steps of one sequence."""

    def __init__(self, batch_first):
        super().__init__()
        self.recurrent = torch.nn.GRU(4, 3, batch_first=batch_first)

    def forward(self, rows):
        return self.recurrent(rows)[0]


class Of(torch.nn.Module):
    """A linear layer, and before it a function of the rows, or of the rows and a parameter."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.last = torch.nn.Linear(4, 3)
        self.own = torch.nn.Parameter(torch.ones(4, 4))

    def forward(self, rows):
        return self.last(self.function(rows, self.own) + (rows @ self.own))


class OfLine(torch.nn.Module):
    """A linear layer, and before it a function of the rows and a parameter of this shape."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function = function
        self.last = torch.nn.Linear(4, 3)
        self.line = torch.nn.Parameter(torch.ones(shape))
        self.register_buffer("fixed", torch.ones(4, 4))

    def forward(self, rows):
        return self.last(self.function(rows, self.line, self.fixed))


# Samples that meet, and a parameter that is used in a way without a rule: each sample must pass by itself.
WITHOUT_RULES = {"the mean of the batch": lambda rows, own: rows - rows.mean(dim=0),
                 "the number of samples": lambda rows, own: rows / rows.shape[0],
                 "a product with a transform of a parameter": lambda rows, own: rows @ torch.softmax(own, 1),
                 "filled with the number of samples": lambda rows, own: rows / torch.full((rows.shape[0], 1), rows.shape[0]),
                 "words of a transposed table": lambda rows, own: F.embedding((rows[:, 0] > 0).long(), own.t()),
                 "softmax over samples behind another dim": lambda rows, own: torch.softmax(rows.t(), 1).t()}
MORE_WITHOUT_RULES = {"another order behind another dim": lambda rows, own: rows.t().flip(1).t(),
                      "a sum over samples behind another dim": lambda rows, own: rows.view(-1, 2, 2).transpose(0, 1).cumsum(1).transpose(0, 1).flatten(1),
                      "another order": lambda rows, own: rows.flip(0),
                      "a sum over samples": lambda rows, own: rows.cumsum(0),
                      "softmax over samples": lambda rows, own: torch.softmax(rows, 0),
                      "products of samples": lambda rows, own: torch.softmax(rows @ rows.T, 1) @ rows,
                      "normalisation over samples": lambda rows, own: F.batch_norm(rows, None, None, training=True),
                      "a norm": lambda rows, own: rows / own.norm()}


class Translator(torch.nn.Module):
    """dtrain's seq2seq, for sentences of one length."""

    def __init__(self, words, width=6, hidden=5):
        super().__init__()
        self.embeddings = torch.nn.ModuleList(torch.nn.Embedding(count, width) for count in words)
        self.encoder = DPLSTM(width, hidden, batch_first=True)
        self.decoder = DPLSTM(width, hidden, batch_first=True)
        self.out = torch.nn.Linear(hidden, words[1])

    def forward(self, source, target):
        _, state = self.encoder(self.embeddings[0](source))
        return self.out(self.decoder(self.embeddings[1](target[:, :-1]), state)[0])

    def names(self):
        """Of each parameter what dtrain calls it."""
        found = {f"embeddings.{i}.weight": f"{side}.embedding.weight" for i, side in enumerate(("encoder", "decoder"))}
        for side in ("encoder", "decoder"):
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                found[f"{side}.{part}_l0"] = f"{side}.rnn.{part}_l0"
        return found | {f"out.{kind}": f"decoder.fc_out.{kind}" for kind in ("weight", "bias")}


def by_opacus(net, loss_of):
    """The gradient of each sample by parameter: [n, ...]. `loss_of`: the sum over samples."""
    loss_of(GradSampleModule(net, loss_reduction="sum")).backward()
    return {name: value.grad_sample.detach().double() for name, value in net.named_parameters()}


def by_opacus_of_rows(net, inputs, targets):
    return by_opacus(net, lambda wrapped: F.cross_entropy(wrapped(inputs), targets, reduction="sum"))


def one_by_one(net, inputs, targets):
    found = []
    for row, target in zip(inputs, targets):
        gradients = torch.autograd.grad(F.cross_entropy(net(row[None]), target[None]), list(net.parameters()))
        found.append(gradients)
    return {name: torch.stack(of).double() for (name, _), of in zip(net.named_parameters(), zip(*found))}


def clipped_sum(gradients):
    """The sum over samples, each clipped to the norm of the middle one; and that norm."""
    norms = torch.sqrt(sum(value.flatten(1).square().sum(1) for value in gradients.values()))
    clip = float(f"{norms.median():.6g}")
    factors = torch.clamp(clip / norms, max=1)
    return {name: torch.einsum("n,n...->...", factors, value).numpy() for name, value in gradients.items()}, clip


class GradientsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)

    def step(self, *options):
        """The model's tensors after a step, and the event that says how gradients were clipped."""
        run(BINARY, 1, "--name", "step", *STEP, *options, cwd=self.folder)
        folder = self.folder / "runs/step"
        with h5py.File(folder / "results.h5") as file:
            said = [row["detail"].decode() for row in file["ranks/00000/events"][:] if row["kind"].decode() == "privacy"]
        return checkpoint_tensors(sorted((folder / "checkpoints").glob("step-*"))[-1]), said[0]

    def compare(self, before, after, expected, said):
        self.assertNotIn("one by one", said)
        for name, value in expected.items():
            np.testing.assert_allclose((before[name].astype(np.float64) - after[name]), value, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)

    def compare_program(self, net, rows, gradients_of):
        kinds = np.arange(RECORDS + 3) % 3
        np.savez(self.folder / "rows.npz", x=rows, y=kinds)
        run(BINARY, 1, "stage", "rows", "--from", "rows.npz", "--inputs", "x", "--targets", "y", cwd=self.folder)
        with h5py.File(next((self.folder / "data/staged/rows").glob("train-*.h5"))) as file:
            inputs, targets = torch.from_numpy(file["inputs"][:]).float(), torch.from_numpy(file["targets"][:]).long()
        export_model(net, inputs[:3], str(self.folder / "net.pt2"), golden=False)
        before = {name: value.detach().numpy().copy() for name, value in net.named_parameters()}
        expected, clip = clipped_sum(gradients_of(net, inputs, targets))
        after, said = self.step("--model", "net.pt2", "--dataset", "rows", "--global-batch", len(inputs), "--learning-rate", len(inputs), "--dp-clip", clip)
        self.compare(before, after, expected, said)

    def test_convolutions_norms_and_linear_layers(self):
        rows = np.random.default_rng(1).normal(0, 1, (RECORDS + 3, 84)).astype(np.float32)
        self.compare_program(Images(), rows, by_opacus_of_rows)

    def test_embeddings_and_attention(self):
        self.compare_program(Texts(), self.words(2), by_opacus_of_rows)

    def test_what_opacus_has_no_rule_for(self):
        self.compare_program(Odd(), self.words(2), one_by_one)

    def words(self, seed):
        return np.random.default_rng(seed).integers(0, 11, (RECORDS + 3, 9)).astype(np.float32)

    def test_recurrent_networks(self):
        self.compare_program(Recurrent(), self.words(6), one_by_one)

    def test_parameters_as_first_states(self):
        self.compare_program(FirstStates(), self.words(9), one_by_one)

    def test_transformer_layers(self):
        self.compare_program(Encoder(), self.words(7), one_by_one)

    def test_an_exported_lstm(self):
        def of_twin(net, inputs, targets):
            twin = OfWords(DPLSTM)
            with torch.no_grad():
                for name, value in twin.named_parameters():
                    value.copy_(net.get_parameter(name))
            return by_opacus_of_rows(twin, inputs, targets)

        self.compare_program(OfWords(torch.nn.LSTM), self.words(8), of_twin)

    def test_what_has_no_rule_passes_by_itself(self):
        rows = np.random.default_rng(4).normal(0, 1, (RECORDS + 3, 4)).astype(np.float32)
        np.savez(self.folder / "rows.npz", x=rows, y=np.arange(RECORDS + 3) % 3)
        run(BINARY, 1, "stage", "rows", "--from", "rows.npz", "--inputs", "x", "--targets", "y", cwd=self.folder)
        nets = {name: Of(function) for name, function in (WITHOUT_RULES | MORE_WITHOUT_RULES if FULL else WITHOUT_RULES).items()}
        nets |= {"a parameter of more dims than the rows": OfLine(lambda rows, line, fixed: (rows + line).squeeze(0), 1, 1, 4),
                 "beside a product with a buffer": OfLine(lambda rows, line, fixed: torch.addmm(line, rows, fixed), 4)}
        nets |= {"a sequence of samples": SequenceOfSamples(False)} | ({"another one": SequenceOfSamples(True)} if FULL else {})
        for name, net in nets.items():
            with self.subTest(name):
                export_model(net, torch.from_numpy(rows[:3]), str(self.folder / "net.pt2"), golden=False)
                _, said = self.step("--overwrite", "--model", "net.pt2", "--dataset", "rows", "--global-batch", 5, "--dp-clip", 1)
                self.assertIn("one by one", said)

    def test_an_lstm(self):
        rng = np.random.default_rng(3)
        for split, count in (("train", RECORDS), ("val", 2), ("test", 2)):
            for language, length in (("de", 6), ("en", 4)):  # Opacus: sentences of one length
                lines = [" ".join("abcdefgh"[i] for i in rng.integers(0, 8, length)) for _ in range(count)]
                (self.folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")
        run(BINARY, 1, "stage", "pairs", "--from", ".", "--format", "parallel", "--min-frequency", 1, cwd=self.folder)
        with h5py.File(next((self.folder / "data/staged/pairs").glob("train-*.h5"))) as file:
            source, target = (torch.from_numpy(file[f"{side}_tokens"][:]).long().view(RECORDS, -1) for side in ("source", "target"))
        net = Translator([int(words.max()) + 1 for words in (source, target)])
        names = net.names()
        start = {names[name]: value.detach().numpy().copy() for name, value in net.named_parameters()}
        with h5py.File(self.folder / "start.h5", "w") as file:
            for name, value in start.items():
                file[f"model/{name}"] = value
        expected, clip = clipped_sum(by_opacus(
            net, lambda wrapped: F.cross_entropy(wrapped(source, target).flatten(0, 1), target[:, 1:].flatten(), reduction="sum")))
        options = [f"--model-option={option}" for option in ("embedding=6", "hidden=5", "layers=1", "dropout=0", "teacher-forcing=1")]
        after, said = self.step("--model", "seq2seq", *options, "--dataset", "pairs", "--init-from", "start.h5", "--global-batch", len(source),
                                "--learning-rate", len(source), "--dp-clip", clip)
        self.compare(start, after, {names[name]: value for name, value in expected.items()}, said)


if __name__ == "__main__":
    unittest.main()
