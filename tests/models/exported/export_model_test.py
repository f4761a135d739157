"""jobs/export_model.py: the golden batch of every program is what the file computes, read by another reader; and what cannot
be exported is refused in one sentence that says where and what to write instead."""

import contextlib
import copy
import inspect
import io
import math
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import programs
from export_model import NotExportable, check_program, export_model, fingerprint, main, mean_loss
from interpreter import Program, tensor_of

FULL = "--full" in sys.argv  # all programs, and not the three of every build
TOLERANCE = 1e-9  # both sides are in float64, and add in other orders


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):  # [N, 8] -> [N, 8]
        return self.linear(x)


class MaskAlone(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))[:, 0]


class Branch(Linear):
    def forward(self, x):
        x = self.linear(x)
        if x.sum() > 0:  # here
            x = 2 * x
        return x


class Item(Linear):
    def forward(self, x):
        return self.linear(x) * x.max().item()  # here


class FixedBatch(Linear):
    def forward(self, x):
        return self.linear(x).view(4, 2, 4).flatten(1)


class AddsOfFixedBatch(Linear):
    def forward(self, x):
        return self.linear(x) + torch.zeros(4, 8)


class Noise(Linear):
    def forward(self, x):
        return self.linear(x) + torch.randn_like(x)  # here


class Modes(Linear):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def forward(self, x):
        y = self.linear(x)
        return y * 2 if self.training else self.other(y)  # here


class Merging(Linear):
    """Low-rank additions that evaluation mode adds to the weights."""

    def __init__(self):
        super().__init__()
        self.down, self.up, self.merged = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False), False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            with torch.no_grad():
                self.linear.weight.add_(self.up.weight @ self.down.weight, alpha=-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, x):
        return self.linear(x) if self.merged else self.linear(x) + self.up(self.down(x))


class Channels(Linear):
    def forward(self, x):
        return F.dropout2d(self.linear(x).view(-1, 2, 2, 2)).flatten(1)  # here


class DroppingGru(Linear):
    def __init__(self, dropout=0.5):
        super().__init__()
        self.gru = nn.GRU(4, 4, 2, batch_first=True, dropout=dropout)

    def forward(self, x):
        return self.gru(self.linear(x).unflatten(1, (2, 4)))[0].flatten(1)


class Buffer(Linear):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean.mul_(0.9)  # here
        return self.linear(x) - self.mean


class AssignedBuffer(Buffer):
    def forward(self, x):
        self.mean = 0.9 * self.mean + x.mean(0)
        return self.linear(x) - self.mean


class PartOfBuffer(Buffer):
    def forward(self, x):
        self.mean[:4].copy_(x.mean(0)[:4])  # here
        return self.linear(x) - self.mean


class RunningInstances(Linear):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(1, track_running_stats=True)

    def forward(self, x):
        return self.norm(self.linear(x).unsqueeze(1)).squeeze(1)


class NoGradient(Linear):
    def forward(self, x):
        with torch.no_grad():
            y = self.linear(x)
            y = y * 2 + x
        return self.linear(x) + y


class WritesWithoutGradient(Linear):
    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            y.mul_(2)
        return y


class Rotary(Linear):
    """Tables of cosines as transformers' rotary positions make them, and scores that a key's bias shifts alike."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(2, 4), nn.Linear(2, 4)
        self.register_buffer("frequencies", torch.tensor([1.0, 0.1]), persistent=False)

    @torch.no_grad()
    def table(self, x):
        places = torch.arange(4).expand(x.shape[0], 4)
        with torch.autocast("cpu", enabled=False):
            angles = (self.frequencies[None, :, None].float() @ places[:, None, :].float()).transpose(1, 2)
        return torch.cat((angles, angles), -1).cos().to(x.dtype)

    def forward(self, x):  # [N, 8] -> [N, 8]
        y = self.linear(x).view(-1, 4, 2)
        cosines = self.table(x)
        scores = ((self.query(y) * cosines) @ (self.key(y)).transpose(1, 2)).float().softmax(-1).to(x.dtype)
        return (scores @ y).flatten(1)


class ProductInFull(Linear):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.linear(x)


class Autocast(Linear):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)


class Condition(Linear):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: 2 * x, lambda x: 3 * x, (self.linear(x),))


class Selected(Linear):
    def forward(self, x):
        return self.linear(x)[x[:, 0] > 0]  # here


class NoBatchOut(Linear):
    def forward(self, x):
        return self.linear(x).sum(0)


class Nothing(Linear):
    def forward(self, x):
        self.linear(x)


class Single(Linear):
    def forward(self, x):
        return F.linear(x.type_as(torch.zeros(1)), self.linear.weight.type_as(torch.zeros(1)))


class NotFinite(Linear):
    def forward(self, x):
        return self.linear(x) / 0 * 0


class Table(Linear):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(64, 8))

    def forward(self, x):
        return self.linear(x) + self.table[:x.shape[0]]


class OwnLoss(Linear):
    def forward(self, x, targets):
        return F.cross_entropy(self.linear(x), targets, label_smoothing=0.1)


@torch.library.custom_op("dtrain_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class OwnOperator(Linear):
    def forward(self, x):
        return twice(self.linear(x))  # here


class NoParameters(nn.Module):
    def forward(self, x):
        return 2 * x


class Complex(Linear):
    def __init__(self):
        super().__init__()
        self.register_buffer("phase", torch.ones(8, dtype=torch.complex64))

    def forward(self, x):
        return self.linear(x) * self.phase.real


class Recurrent(nn.Module):
    """Two networks of `kind` over sequences [N, T, 4] of any length; the second starts from the first one's last state."""

    def __init__(self, kind, both_ways):
        super().__init__()
        self.encoder, self.decoder = (kind(4, 5, 2, batch_first=True, bidirectional=both_ways) for _ in range(2))

    def forward(self, x):
        return self.decoder(x[:, 1:], self.encoder(x)[1])[0].mean(1)


class Text(nn.Module):
    """Ids [N, T] -> [N, 10]; what is done to the words' vectors [N, T, 4] is `function` of the module, ids and vectors."""

    def __init__(self, function=lambda self, ids, x: x):
        super().__init__()
        self.embedding, self.last, self.function = nn.Embedding(40, 4), nn.Linear(4, 10), function
        self.table = nn.Parameter(torch.zeros(16, 4))

    def forward(self, ids):
        return self.last(self.function(self, ids, self.embedding(ids)).mean(1))


class LastWords(Text):
    """The last layer begins with zeros, as many do."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.last.weight)

    def forward(self, ids):
        if ids.shape[1] > 5:  # here
            ids = ids[:, -5:]
        return super().forward(ids)


class AtMost(Text):
    def forward(self, ids):
        assert ids.shape[1] <= 12, "too long"  # here
        return super().forward(ids)


class RootOfLength(Text):
    def forward(self, ids):
        return super().forward(ids) / math.sqrt(ids.shape[1])  # here


class Rounded(Text):
    def forward(self, ids):
        return super().forward(ids[:, :math.ceil(ids.shape[1] / 2)])  # here


class LargeBatch(Linear):
    def forward(self, x):
        return self.linear(x) * (2 if x.shape[0] > 8 else 1)


class TwoTexts(Text):
    def forward(self, ids, others):
        if others.shape[1] > 9:  # here
            others = others[:, :9]
        return super().forward(ids) + super().forward(others)


class TextAndRow(Text):
    def __init__(self):
        super().__init__()
        self.row = nn.Linear(5, 10)

    def forward(self, ids, row):
        return super().forward(ids) + self.row(row)


class Applied(Linear):
    """Does `function` to the module and what its layer gives."""

    def __init__(self, function):
        super().__init__()
        self.function, self.norm, self.weight = function, nn.BatchNorm1d(8), nn.Parameter(torch.ones(2, 4, 8))

    def forward(self, x):
        return self.function(self, self.linear(x))


class Locked(Linear):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Attention(nn.Module):
    """Dropout inside of attention and of an LSTM, a shared weight, constants, a buffer that is not saved."""

    def __init__(self, weights=False):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.lstm = nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("scale", torch.full((8,), 0.5), persistent=False)
        self.offset = torch.arange(8) / 8
        self.weights = weights

    def forward(self, x):  # [N, 8] -> [N, 8]
        x = F.dropout(self.first(x), 0.3, self.training).unsqueeze(1).repeat(1, 3, 1) + torch.tensor([[0.0], [1.0], [2.0]])
        x = self.attention(x, x, x, need_weights=self.weights)[0]
        return self.last(self.lstm(x)[0].mean(1) * self.scale + self.offset)


def line_of(module_class):
    """Where the class has a comment `here`."""
    lines, start = inspect.getsourcelines(module_class)
    return start + next(number for number, line in enumerate(lines) if "# here" in line)


class ExportModelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "net.pt2"
        torch.manual_seed(1)
        self.x = torch.randn(4, 8)

    def refused(self, words, module, *inputs, **options):
        with self.assertRaises(NotExportable) as caught:
            export_model(module, inputs or self.x, options.pop("path", self.path), **options)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(list(self.folder.iterdir()), [])

    def agree(self, path):
        """The file's own golden batch against another reader of the file."""
        program = Program(path)
        golden = program.golden
        output = program.run(*map(tensor_of, golden["inputs"]))
        loss = mean_loss(golden["loss"], output, golden["target"] and tensor_of(golden["target"]))
        self.assertTrue(math.isclose(loss.item(), golden["value"], rel_tol=TOLERANCE))
        loss.backward()
        total = math.hypot(*(entry["norm"] for entry in golden["gradients"].values()))
        self.assertGreater(total, 0)
        for name, entry in golden["gradients"].items():
            found = fingerprint(program.tensors[name].grad)
            for key in entry:
                self.assertLessEqual(abs(found[key] - entry[key]), TOLERANCE * max(entry["norm"], 1e-6 * total), (name, key))
        return program

    def test_golden_batches_of_all_programs(self):
        for name, program in programs.PROGRAMS.items():
            with self.subTest(program=name):
                if not (FULL or program.ci):
                    continue
                if not programs.installed(program):
                    self.skipTest(f"{program.needs} is not installed (jobs/setup.sh --for-tests)")
                path = self.folder / f"{name}.pt2"
                programs.export(program, path)
                self.agree(path)

    def test_dropout_inside_attention_and_lstm_is_off(self):
        for weights in (False, True):
            export_model(Attention(weights), self.x, self.path)
            program = self.agree(self.path)
            self.assertIn("first.weight", program.golden["gradients"])
            self.assertNotIn("last.weight", program.golden["gradients"])

    def test_dropout_in_place_and_bags_of_any_length(self):
        export_model(nn.Sequential(Linear(), nn.Dropout(0.5, inplace=True)), self.x, self.path)
        self.agree(self.path)
        bag = nn.EmbeddingBag(9, 4, padding_idx=0)  # whose batch is written as (n * T + T - 1) // T
        export_model(bag, torch.randint(9, (4, 5)), self.path, sequence_dim=1)
        self.assertEqual(self.agree(self.path).run(torch.ones(3, 7, dtype=torch.int64)).shape, (3, 4))

    def test_recurrent_networks_take_any_length(self):
        x = torch.randn(3, 7, 4, dtype=torch.float64)
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            for both_ways in (False, True):
                with self.subTest(kind=kind.__name__, both_ways=both_ways):
                    module = Recurrent(kind, both_ways)
                    export_model(module, torch.randn(4, 5, 4), self.path, sequence_dim=1)
                    torch.testing.assert_close(self.agree(self.path).run(x), module.double()(x))

    def test_every_loss_and_given_targets(self):
        for loss in ("cross_entropy", "mse", "mae"):
            export_model(Linear(), self.x, self.path, loss=loss)
            self.assertEqual(self.agree(self.path).golden["loss"], loss)
        export_model(OwnLoss(), (self.x, torch.tensor([7, 7, 0, 1])), self.path, loss="model")
        golden = self.agree(self.path).golden
        self.assertEqual((golden["target"], golden["inputs"][1]["values"]), (None, [7, 7, 0, 1]))
        export_model(Linear(), self.x, self.path, target=torch.tensor([7, 7, 0, 1]))
        self.assertEqual(self.agree(self.path).golden["target"]["values"], [7, 7, 0, 1])
        export_model(nn.Conv2d(3, 5, 3, padding=1), torch.randn(4, 3, 6, 6), self.path)  # a class for each pixel
        self.assertEqual(self.agree(self.path).golden["target"]["shape"], [4, 6, 6])

    def test_the_module_is_left_as_it_was_and_pytorch_loads_the_file(self):
        module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
        module[1].train()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        export_model(module, self.x, self.path)
        self.assertEqual([part.training for part in module.modules()], [False, False, True, False])
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        loaded = torch.export.load(self.path)
        self.assertEqual(loaded.module()(torch.randn(9, 8)).shape, (9, 8))
        self.assertTrue(any(node.args[5:6] == (True,) for node in loaded.graph.nodes if "batch_norm" in str(node.target)))

    def test_another_branch_in_evaluation_is_warned_of(self):
        for module in (Modes(lambda y: y * 100), Modes(lambda y: y + 1)):
            with self.assertWarnsRegex(UserWarning, rf"evaluation mode .*line {line_of(Modes)}\)?: dtrain evaluates"):
                export_model(module, self.x, self.path)
        usual = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Unflatten(1, (2, 4)),
                              nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            export_model(usual, self.x, self.path)
        merging = Merging()
        export_model(merging, self.x, self.path)
        self.assertFalse(merging.merged, "the module and its weights are left as they were")
        self.agree(self.path)

    def test_what_reads_values_is_refused(self):
        self.refused(["Branch", "torch.where", f"export_model_test.py, line {line_of(Branch)}"], Branch())
        self.refused(["aten.item", ".item()", f"line {line_of(Item)}"], Item())
        self.refused(["Sequential", "in 1", "BatchNorm1d", "momentum"], nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None)), torch.randn(4, 3))
        self.refused(["Sequential", "in 0", "call the module once"], nn.Sequential(nn.LazyLinear(4)), torch.randn(4, 3))
        self.refused(["MaskAlone", "is_causal=True", "beside the mask"], MaskAlone(), torch.randn(4, 5, 8))
        self.refused(["cond", "torch.where"], Condition())
        self.refused(["index", "masks", f"line {line_of(Selected)}"], Selected())

    def test_a_fixed_batch_is_refused(self):
        for module in (FixedBatch(), AddsOfFixedBatch()):
            self.refused([type(module).__name__, "batch of 4", "x.shape[0]"], module)
        self.refused(["Table", "64", "number of samples"], Table())
        program = torch.export.export(Linear(), (self.x,))
        with self.assertRaisesRegex(NotExportable, "input x is fixed at 4"):
            check_program(program, "cross_entropy")

    def test_random_operators_are_refused(self):
        self.refused(["randn_like", "nn.Dropout", f"line {line_of(Noise)}"], Noise())
        self.refused(["feature_dropout", "nn.Dropout", f"line {line_of(Channels)}"], Channels())
        self.refused(["gru", "nn.Dropout", "in gru"], DroppingGru())
        export_model(DroppingGru(dropout=0), self.x, self.path)
        self.agree(self.path)

    def test_buffers_that_change_are_refused(self):
        self.refused(["buffer mean", f"line {line_of(Buffer)}"], Buffer())
        self.refused(["buffer mean", "make it a parameter"], AssignedBuffer())
        self.refused(["buffer mean", f"line {line_of(PartOfBuffer)}"], PartOfBuffer())
        self.refused(["instance_norm", "in norm", "track_running_stats=False"], RunningInstances())

    def test_memory_that_a_parameter_has_in_common_is_refused(self):
        net = Applied(lambda self, x: self.linear(x) + self.twin[0])
        net.register_buffer("twin", net.linear.weight.detach())
        self.refused(["the buffer twin is the memory of the parameter linear.weight", "clone()"], net)
        net.register_buffer("twin", net.linear.bias.detach().view(1, 8), persistent=False)
        self.refused(["the buffer twin is the memory of the parameter linear.bias", "clone()"], net)
        net.twin = net.linear.bias.detach().clone().view(1, 8)
        export_model(net, self.x, self.path)
        self.path.unlink()
        net.other = nn.Parameter(net.linear.weight.detach().T)
        net.forward = lambda x: net.linear(x) @ net.other
        self.refused(["linear.weight", "other", "different views of one tensor"], net)

    def test_dropout_in_place_through_a_view_is_refused(self):
        def half(module, x):
            y = module.norm(x)
            F.dropout(y[:, :4], 0.5, module.training, inplace=True)
            return y

        def base(module, x):
            y = module.norm(x)
            left = y[:, :4]
            F.dropout(y, 0.5, module.training, inplace=True)
            return torch.cat([left, left], 1)

        def largest(module, x):
            values, places = module.norm(x).max(1, keepdim=True)
            return F.dropout(values, 0.5, module.training, inplace=True) + places

        for function in (half, base):
            with self.subTest(function=function.__name__):
                self.refused(["dropout in place", "without inplace=True", "export_model_test.py, line"], Applied(function))
        for function in (largest, lambda module, x: F.dropout(module.norm(x).view(-1, 2, 4), 0.5, module.training, True).flatten(1),
                         lambda module, x: F.dropout(module.norm(x), 0.5, module.training, True)[:, :4].repeat(1, 2),
                         lambda module, x: F.dropout(F.relu_(module.norm(x)), 0.5, module.training, True) * 2):
            export_model(Applied(function), self.x, self.path)

    def test_parts_without_gradient_or_autocast_become_plain(self):
        for module in (NoGradient(), Rotary()):
            with self.subTest(module=type(module).__name__):
                program = export_model(module, self.x, self.path)
                names = [str(node.target) for node in program.graph.nodes]
                self.assertIn("aten.detach.default", names)
                self.assertFalse([name for name in names if "wrap" in name or "submod" in name], names)
                self.agree(self.path)
                again = torch.export.load(self.path).module()(self.x)
                self.assertTrue(torch.allclose(again, module(self.x), rtol=0, atol=1e-6))

    def test_wrapped_parts_are_refused(self):
        self.refused(["set_grad_enabled", "x.detach()"], WritesWithoutGradient())
        self.refused(["parametrizations.weight.0", "remove_parametrizations"], nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 2))))
        self.refused(["autocast", "--precision bf16"], Autocast())
        self.refused(["autocast", "--precision bf16"], ProductInFull())
        self.refused(["dtrain_test.twice", "not PyTorch's own", f"line {line_of(OwnOperator)}"], OwnOperator())

    def test_what_does_not_fit_is_refused(self):
        self.refused(["first output", "[8]"], NoBatchOut())
        self.refused(["returns no tensor"], Nothing())
        self.refused(["scalar", "[s"], Linear(), loss="model")
        self.refused(["no parameter"], NoParameters())
        self.refused(["phase", "complex64"], Complex())
        self.refused(["cross_entropy", "[4]"], nn.Sequential(Linear(), nn.Linear(8, 1), nn.Flatten(0)))
        self.refused(["x.dtype", "golden=False"], Single())
        self.refused(["nan", "golden=False"], NotFinite())
        self.refused(["cannot be copied", "golden=False"], Locked())
        self.refused(["float64", "mse"], Linear(), loss="mse", target=torch.zeros(4, 3))

    def test_a_branch_on_a_size_is_refused(self):
        ids = torch.randint(40, (4, 4))
        self.refused(["LastWords", "length <= 5", f"export_model_test.py, line {line_of(LastWords)}", "length 6", "mask", "--varying-length"],
                     LastWords(), ids, sequence_dim=1)
        for words, function in ((["int(0.6*length) == 2"], lambda self, ids, x: x[:, :int(ids.shape[1] * 0.6)]),
                                (["(length % 2) == 0"], lambda self, ids, x: x * (2 if ids.shape[1] % 2 else 3)),
                                (["<= 100", "batch 2, length 51"], lambda self, ids, x: x * (2 if ids.shape[0] * ids.shape[1] > 100 else 3)),
                                (["(1 + length) // 2) == 2"], lambda self, ids, x: sum(part.sum(1, keepdim=True) for part in x.split(2, 1))),
                                (["length < 6"], lambda self, ids, x: x[:, :6] * (2 if ids.shape[1] > 7 else 3))):
            with self.subTest(words=words):
                self.refused(["Text computes something else", *words], Text(function), ids, sequence_dim=1)
        self.refused(["length of others <= 9", f"line {line_of(TwoTexts)}"], TwoTexts(), ids, torch.randint(40, (4, 6)), sequence_dim=1)
        self.refused(["length <= 5"], LastWords(), torch.zeros(4, 4, dtype=torch.int64), sequence_dim=1)
        self.refused(["LargeBatch", "batch <= 8", "no branch"], LargeBatch(), self.x)

    def test_lengths_that_differ_harmlessly_are_taken(self):
        for function in (lambda self, ids, x: x[:, :6],
                         lambda self, ids, x: x + self.table[:ids.shape[1]],  # which ends a run with longer texts
                         lambda self, ids, x: x[:, :ids.shape[1] // 2 + 1],
                         lambda self, ids, x: x * (torch.arange(ids.shape[1]) / (ids.shape[1] - 1)).unsqueeze(1),
                         lambda self, ids, x: torch.cat([part.mean(1, keepdim=True) for part in x.chunk(2, 1)], 1),
                         lambda self, ids, x: x.unfold(1, 3, 2).mean(3),
                         lambda self, ids, x: F.avg_pool1d(x.mT, 2, 2, ceil_mode=True).mT,
                         lambda self, ids, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, is_causal=True)):
            with self.subTest(function=inspect.getsource(function)), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                module = Text(function)
                export_model(module, torch.randint(40, (4, 4)), self.path, sequence_dim=1)
                for length in (4, 7, 16):
                    ids = torch.randint(40, (3, length))
                    if "dropout" not in inspect.getsource(function):
                        torch.testing.assert_close(self.agree(self.path).run(ids), copy.deepcopy(module).double()(ids))
        with self.assertWarnsRegex(UserWarning, rf"length <= 12 .*line {line_of(AtMost)}\), and not batch 3, length 13: AssertionError: too long"):
            export_model(AtMost(), torch.randint(40, (4, 4)), self.path, sequence_dim=1)

    def test_a_fixed_length_is_refused(self):
        ids = torch.randint(40, (4, 4))
        self.refused(["the length 4 of the input ids alone", f"line {line_of(RootOfLength)}", "T ** 0.5", "--varying-length"],
                     RootOfLength(), ids, sequence_dim=1)
        for function in (lambda self, ids, x: x * math.log(ids.shape[1]),
                         lambda self, ids, x: x * torch.linspace(0, 1, ids.shape[1]).unsqueeze(1)):
            self.refused(["the length 4 of the input ids alone"], Text(function), ids, sequence_dim=1)
        export_model(RootOfLength(), ids, self.path)
        with self.assertWarnsRegex(UserWarning, "the length 5 of the input row alone: the lengths of the other inputs vary"):
            export_model(TextAndRow(), (ids, torch.randn(4, 5)), self.path, sequence_dim=1)

    def test_what_pytorch_cannot_write_is_refused(self):
        self.refused(["cannot write ceil", f"line {line_of(Rounded)}", "(T + 1) // 2"], Rounded(), torch.randint(40, (4, 8)), sequence_dim=1)
        self.refused(["cannot write round"], Text(lambda self, ids, x: x[:, :round(ids.shape[1] * 0.5)]), torch.randint(40, (4, 8)), sequence_dim=1)
        self.refused(["torch.vmap", "whole batch"], Applied(lambda self, x: torch.vmap(lambda row: 2 * row)(x)))

        def fails(*_, **__):
            raise RuntimeError("no such thing\nand more")

        with unittest.mock.patch("torch.export.save", fails):
            self.refused(["cannot write the program of Linear", "no such thing"], Linear())

    def test_what_training_refuses_is_refused(self):
        for words, function in ((["as_strided", "view"], lambda self, x: x.as_strided((x.shape[0], 4), (8, 2))),
                                (["unsqueeze_", "without the underscore"], lambda self, x: (x * 1).unsqueeze_(1).flatten(1)),
                                (["norm.running_mean", "call each BatchNorm module once"], lambda self, x: self.norm(self.norm(x).relu())),
                                (["parameter weight", "compute a new tensor"],
                                 lambda self, x: x * self.weight.transpose(0, 1).reshape(8, 8).mul_(0.5).mean(0)),
                                (["comparison of sizes"], lambda self, x: x + (x.shape[0] > 5))):
            with self.subTest(words=words):
                self.refused(words, Applied(function))
        bounded = Text()
        bounded.embedding = nn.Embedding(40, 4, max_norm=1.0)
        self.refused(["parameter embedding.weight", "leave max_norm out"], bounded, torch.randint(40, (4, 4)))
        export_model(Applied(lambda self, x: self.norm(x) * (self.weight * 1).mul_(0.5).mean((0, 1))), self.x, self.path)

    def test_wrong_arguments_are_refused(self):
        self.refused(["at least 2", "1"], Linear(), torch.randn(1, 8))
        self.refused(["at least 2", "4, 3"], Linear(), torch.randn(4, 8), torch.randn(3, 8))
        self.refused(["tensors"], Linear(), self.x, 3)
        self.refused([".pt2", "net.onnx"], Linear(), path=self.folder / "net.onnx")
        self.refused(["'hinge'", "cross_entropy"], Linear(), loss="hinge")
        self.refused(["sequence_dim is 2"], Linear(), sequence_dim=2)
        self.refused(["PyTorch cannot export Linear"], Linear(), torch.randn(4, 9))

    def command(self, *arguments):
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main([*map(str, arguments)])
        return code, output.getvalue() + errors.getvalue()

    def test_the_command(self):
        nets = self.folder / "nets.py"
        nets.write_text("from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))\n\n"
                        "def text():\n    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))\n\ndef number():\n    return 3\n")
        code, said = self.command(f"{nets}:net", self.path, "--shape", "3,2,2")
        self.assertEqual((code, "39 parameters" in said), (0, True), said)
        self.agree(self.path)
        code, said = self.command(f"{nets}:text", self.path, "--shape", "5", "--dtype", "int64", "--below", 9, "--varying-length")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.agree(self.path).run(torch.zeros(3, 7, dtype=torch.int64)).shape, (3, 7, 9))
        described = self.folder / "described.py"
        described.write_text("from __future__ import annotations\nfrom dataclasses import dataclass\nfrom torch import nn\n\n@dataclass\nclass Sizes:\n"
                             "    out: int = 3\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, Sizes().out))\n")
        code, said = self.command(f"{described}:net", self.path, "--shape", "3,2,2")
        self.assertEqual((code, "39 parameters" in said), (0, True), said)
        code, said = self.command(f"{nets}:net", self.path, "--shape", "3,2,2", "--no-golden")
        self.assertEqual((code, Program(self.path).golden), (0, None), said)
        for words, arguments in ((["nowhere.py"], ["nowhere.py:net", self.path, "--shape", "3"]),
                                 (["missing"], [f"{nets}:missing", self.path, "--shape", "3"]),
                                 (["file.py:function"], ["nets.py", self.path, "--shape", "3"]),
                                 (["int", "torch.nn.Module"], [f"{nets}:number", self.path, "--shape", "3"]),
                                 (["3x2"], [f"{nets}:net", self.path, "--shape", "3x2"]),
                                 (["2 --dtype"], [f"{nets}:net", self.path, "--shape", "3", "--dtype", "int64", "--dtype", "int64"]),
                                 (["no/such"], [f"{nets}:net", self.folder / "no/such/net.pt2", "--shape", "3,2,2"])):
            code, said = self.command(*arguments)
            self.assertEqual(code, 2, said)
            for word in ["export_model: ", *words]:
                self.assertIn(word, said)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=[word for word in sys.argv if word != "--full"])
