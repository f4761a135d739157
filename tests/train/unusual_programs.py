"""Programs that use their parameters in unusual ways train as a loop in PyTorch does: shared by several modules over the stages of a
pipeline, as numbers between layers that a tensor axis would cut, detached; and those whose samples or targets have unusual shapes.

    unusual_programs.py BINARY [--only CHECK]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))
from drawn import drawn  # noqa: E402
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses  # noqa: E402
from export_model import export_model, mean_loss  # noqa: E402

SAMPLES, CLASSES, STEPS = 30, 3, 3
RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.1
RNG = np.random.default_rng(0)
NORMAL = {"rows": (6,), "sequences": (5, 8), "images": (2, 6, 6)}  # shape of a sample


def stage(binary, folder):
    """Each kind of sample with classes; rows also with several labels, and images with a class for each pixel."""
    classes = np.arange(SAMPLES) % CLASSES
    for name, shape in NORMAL.items():
        stage_arrays(binary, folder, name, RNG.standard_normal((SAMPLES, *shape)).astype(np.float32), classes)
    rows = RNG.standard_normal((SAMPLES, 6)).astype(np.float32)
    stage_arrays(binary, folder, "labels", rows, RNG.integers(0, 2, (SAMPLES, 4)).astype(np.float32))
    pictures = RNG.integers(0, 256, (SAMPLES, 1, 6, 6), np.uint8)
    stage_arrays(binary, folder, "masks", pictures, RNG.integers(0, CLASSES, (SAMPLES, 6, 6)))


def stage_arrays(binary, folder, name, inputs, targets):
    np.savez(folder / f"{name}.npz", x=inputs, y=targets)
    run(binary, 1, "stage", name, "--from", f"{name}.npz", "--inputs", "x=x", "--targets", "y", cwd=folder)


def samples(folder, dataset):
    """The training split in float64, and its targets."""
    (shard,) = json.loads((folder / "data/staged" / dataset / "dataset.json").read_text())["splits"]["train"]["shards"]
    with h5py.File(folder / "data/staged" / dataset / shard["file"]) as file:
        inputs, targets = torch.from_numpy(file["inputs"][:]).double(), torch.from_numpy(file["targets"][:])
    return inputs.view(-1, *NORMAL.get(dataset, inputs.shape[1:])), targets.double() if targets.is_floating_point() else targets.long()


def in_pytorch(module, folder, dataset, loss):
    """Losses of the steps on the whole split, and the state after them."""
    inputs, targets = samples(folder, dataset)
    module = module.double().train()
    rule = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    for _ in range(STEPS):
        rule.zero_grad()
        given = (inputs.clone(), targets) if loss == "model" else (inputs.clone(),)
        value = mean_loss(loss, module(*given), targets)
        value.backward()
        rule.step()
        losses.append(value.item())
    return losses, {name: value.detach().numpy() for name, value in module.state_dict().items()}


def options_of(name, dataset, loss, samples_of_step):
    return ["--model", f"{name}.pt2", "--dataset", dataset, "--loss", loss, "--precision", "fp64", "--global-batch", samples_of_step,
            "--epochs", STEPS, "--limit-steps", STEPS, "--optimizer", "sgd", "--momentum", MOMENTUM, "--weight-decay", DECAY, "--schedule",
            "constant", "--learning-rate", RATE, "--grad-clip", 0, "--warmup-steps", 0, "--threads", 1]


def trained(binary, folder, run_name, mesh, *options):
    """Losses and weights of a run, and what it said."""
    said = run(binary, ranks_of(mesh), "--mesh", mesh, "--name", run_name, *options, cwd=folder, limit_s=60)
    with h5py.File(folder / "runs" / run_name / "results.h5") as results:
        losses = step_losses(results)
    return losses, checkpoint_tensors(folder / f"runs/{run_name}/checkpoints/step-{STEPS:08}"), said.stdout + said.stderr


def agrees(binary, folder, name, module, dataset, *ways, loss="cross_entropy"):
    """A module trains in each way, (mesh, options...), as in PyTorch. Weights of the ways, and what they said."""
    inputs, targets = samples(folder, dataset)
    examples = (inputs[:4].float().clone(), *((targets[:4].float() if targets.is_floating_point() else targets[:4],) if loss == "model" else ()))
    export_model(module, examples, folder / f"{name}.pt2", loss=loss)
    losses, state = in_pytorch(module, folder, dataset, loss)
    found = []
    for number, (mesh, *more) in enumerate(ways):
        theirs, tensors, said = trained(binary, folder, f"{name}-{number}", mesh, *options_of(name, dataset, loss, len(inputs)), *more)
        assert np.allclose(theirs, losses, rtol=1e-10), (name, mesh, more, theirs, losses)
        assert tensors.keys() == state.keys(), (name, tensors.keys() ^ state.keys())
        for key, value in state.items():
            assert np.allclose(tensors[key], value, rtol=1e-6, atol=1e-9), (name, mesh, more, key, np.max(np.abs(tensors[key] - value)))
        found.append((tensors, said))
    return found


class UsedDetached(nn.Module):
    """The norm of zeros, whose gradient is infinite, is used by a later module, detached."""

    class Norm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, width)

        def forward(self, x):
            x = F.relu(self.fc(x))
            return x, (0 * x.pow(2).sum(1, keepdim=True)).sqrt()

    class Scaled(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, width)

        def forward(self, x, norm):
            return self.fc(x / (norm.detach() + 1))

    def __init__(self, width=6):
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.between, self.scaled = self.Norm(width), nn.Linear(width, width), self.Scaled(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x, norm = self.norm(x)
        return self.head(self.scaled(torch.tanh(self.between(x)), norm))


class WithoutDerivative(nn.Module):
    """A later module divides what comes from the input alone, by an operation that has no derivative."""

    class Rounded(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, width)

        def forward(self, x, steps):
            return self.fc(x) * (1 + steps.floor_divide(2.0))

    def __init__(self, width=6):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.between, self.rounded = nn.Linear(width, width), nn.Linear(width, width), self.Rounded(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        steps = 1.5 * x
        return self.head(self.rounded(torch.tanh(self.between(torch.tanh(self.first(x)))), steps))


def gradients_pass_where_they_reach_a_parameter(binary, folder):
    """Also where the layers are cut apart: on a pipeline, and where they run again."""
    for name, module in (("detached_later", UsedDetached()), ("no_derivative", WithoutDerivative())):
        agrees(binary, folder, name, module, "rows", ("data=1",), ("pipe=2",), ("pipe=3",), ("data=1", "--recompute", "full"))


class Anchored(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.fc, self.head = nn.Linear(width, width), nn.Linear(width, CLASSES)
        self.register_buffer("anchor", self.fc.weight.detach())

    def forward(self, x):
        return self.head(self.fc(x) + F.linear(x, self.anchor))


def a_buffer_that_is_a_parameters_memory_is_refused(binary, folder):
    """It would change with the parameter in PyTorch, and here not."""
    program = torch.export.export(Anchored(), (torch.randn(4, 6),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    torch.export.save(program, folder / "anchored.pt2")  # export_model refuses it
    refused(binary, 1, 2, ["anchored.pt2", "a buffer, anchor, that is the memory of the parameter fc.weight", "clone()"],
            *options_of("anchored", "rows", "cross_entropy", SAMPLES), cwd=folder)


class Tempered(nn.Module):
    """A trained number or mask between the layers of each attention and pair; that of the last pair is detached."""

    def __init__(self, width=8, heads=4):
        super().__init__()
        torch.manual_seed(1)
        self.heads = heads
        self.parts = nn.ModuleList(nn.ModuleList(nn.Linear(width, width) for _ in range(4)) for _ in range(4))
        self.temperature, self.scale = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(0.7))
        self.bias, self.shift = nn.Parameter(torch.randn(1, 1, 5, 5)), nn.Parameter(torch.tensor(0.2))
        self.ups, self.downs = (nn.ModuleList(nn.Linear(width, width) for _ in range(4)) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    def attention(self, number, x):
        q, k, v, out = self.parts[number]
        q, k, v = (layer(x).view(x.shape[0], 5, self.heads, -1).transpose(1, 2) for layer in (q, k, v))
        if number == 0:
            q = q * self.temperature
        if number < 2:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias if number else None)
        else:
            scores = torch.matmul(q, k.transpose(2, 3))
            scores = scores * self.temperature if number == 2 else scores + self.written()
            y = torch.matmul(torch.softmax(scores, -1), v)
        return out(y.transpose(1, 2).reshape(x.shape[0], 5, -1))

    def written(self):
        """Trained, although nothing but memory shows it."""
        mask = torch.zeros(5, 5, dtype=self.bias.dtype)
        mask[1:, 2].copy_(self.bias[0, 0, 1:, 2])
        return mask

    def forward(self, x):
        for number in range(4):
            x = x + self.attention(number, x)
        numbers = (lambda h: h * self.scale, lambda h: h * torch.sigmoid(self.scale), lambda h: F.softplus(h) - self.shift,
                   lambda h: h * self.scale.detach())
        for number, up, down in zip(numbers, self.ups, self.downs):
            x = x + down(number(torch.tanh(up(x))))
        return self.head(x.mean(1))


def trained_numbers_enter_slices(binary, folder):
    """Each rank finds a part of their gradients. What has a number for each feature is not cut."""
    ((_, said),) = agrees(binary, folder, "tempered", Tempered(), "sequences", ("tensor=2",))
    assert "4 attentions are cut by heads" in said and "4 pairs of linear layers are cut over the tensor axis: ups.0 and downs.0" in said, said
    export_model(Scaled(), torch.randn(4, 6), folder / "scaled.pt2")
    refused(binary, 2, 2, ["no two linear layers", "tensor axis", "data=2,pipe=2"], "--mesh", "tensor=2",
            *options_of("scaled", "rows", "cross_entropy", 24), cwd=folder)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.scale, self.down = nn.Linear(6, 8), nn.Parameter(torch.rand(8)), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)) * self.scale)


class Thrice(nn.Module):
    """A module called three times: twice on one rank of a pipeline, in different layers there."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.shared, self.layers, self.out = nn.Linear(6, 6), nn.ModuleList(nn.Linear(6, 6) for _ in range(4)), nn.Linear(6, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.shared(x))
        for layer in self.layers[:3]:
            x = torch.tanh(layer(x))
        x = torch.tanh(self.layers[3](torch.tanh(self.shared(x))))
        return self.out(torch.tanh(self.shared(x)))


def a_module_called_three_times(binary, folder):
    pieces, bits = ("--micro-batches", 4), ("--micro-batches", 4, "--reproducible")
    found = agrees(binary, folder, "thrice", Thrice(), "rows", ("pipe=2", *pieces), ("pipe=2", *pieces, "--recompute", "full"),
                   ("data=2,pipe=2", *pieces, "--strategy", "zero2"), ("pipe=2", *pieces, "--pipeline", "interleaved", "--strategy", "zero3"),
                   ("data=1", *bits), ("pipe=2", *bits), ("pipe=3", *bits))
    one = found[4][0]
    for tensors, _ in found[5:]:
        assert all(np.array_equal(value, one[key]) for key, value in tensors.items())


class SharedConvolution(nn.Module):
    """Behind BatchNorm weights of convolutions lie with the channels innermost, and their gradients may not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.shared, self.conv, self.out = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1), nn.Linear(2, CLASSES)
        self.norms = nn.ModuleList(nn.BatchNorm2d(2) for _ in range(3))

    def forward(self, x):
        first = self.shared(x)
        x = self.norms[0](self.conv(x)) + first
        x = self.norms[2](torch.sigmoid(self.norms[1](x)))
        return self.out(torch.relu(self.shared(x)).flatten(2).sum(2))


def a_convolution_shared_over_stages(binary, folder):
    whole = ("--micro-batches", 1, "--pipeline", "layerwise")
    agrees(binary, folder, "shared_convolution", SharedConvolution(), "images", ("pipe=2", *whole), ("pipe=2", *whole, "--reproducible"))


class Detached(nn.Module):
    """A parameter without gradient, which weight decay leaves as it is, and one that is used both ways."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down, self.other = nn.Linear(6, 8), nn.Linear(8, CLASSES), nn.Linear(6, 8)
        self.alone, self.both = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        hidden = torch.tanh(self.up(x)) * self.alone.detach() + F.linear(x, self.other.weight.detach())
        return self.down(hidden * self.both.detach() + self.both)


def detached_parameters_stay(binary, folder):
    agrees(binary, folder, "detached", Detached(), "rows", ("data=1",), ("data=2", "--micro-batches", 4, "--strategy", "zero3"),
           ("pipe=2", "--micro-batches", 4))


class DetachedResults(nn.Module):
    """Layers whose results are detached, or only compared, have no gradient; one is written into what is used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down, self.teacher, self.gate, self.late = nn.Linear(6, 8), nn.Linear(8, CLASSES), nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 4)

    def forward(self, x):
        hidden = torch.tanh(self.up(x)) + F.relu(self.teacher(x), inplace=True).detach()
        hidden = hidden * (self.gate(x) > 0)
        hidden[:, 4:].mul_(self.late(x))
        return self.down(hidden)


def detached_results_leave_their_layers(binary, folder):
    agrees(binary, folder, "detached_results", DetachedResults(), "rows", ("data=1",), ("data=2", "--micro-batches", 4), ("pipe=2", "--micro-batches", 4))


class KeptInEvaluation(nn.Module):
    """The usual way to train a head alone: the rest drops nothing and keeps its statistics."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.back = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
        with torch.no_grad():
            self.back[1].running_mean.fill_(0.3)

    def train(self, mode=True):
        super().train(mode)
        self.back.eval()
        return self

    def forward(self, x):
        return self.head(self.back(x))


class KeptAlone(KeptInEvaluation):
    """Nothing else has a mode."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, CLASSES)


def a_part_kept_in_evaluation_stays_so(binary, folder):
    for name, module in (("kept", KeptInEvaluation()), ("kept_alone", KeptAlone())):
        agrees(binary, folder, name, module, "rows", ("data=1",))
    # A run's own copy of the program says so as well.
    (folder / "kept_alone.pt2").unlink()
    run(binary, 1, "evaluate", f"runs/kept_alone-0/checkpoints/step-{STEPS:08}", cwd=folder)


class KeptRecurrence(KeptInEvaluation):
    """A recurrent layer with dropout of its own, which drops nothing either."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.back, self.head = nn.LSTM(8, 6, 2, dropout=0.5, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.back(x)[0][:, -1])


def a_recurrent_part_kept_in_evaluation_drops_nothing(binary, folder):
    private = ("--dp-clip", 1e9, "--dp-noise", 0, "--noise-source", "seeded", "--dp-sampler", "once", "--dp-delta", 1e-3)
    agrees(binary, folder, "kept_lstm", KeptRecurrence(), "sequences", ("data=1",), ("data=1", *private))


class Query(nn.Module):
    """Views of parameters that are made beside one layer, and used behind it, where the layer's parameters may have left memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed, self.attention, self.head = nn.Linear(8, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, CLASSES)
        self.query, self.scale = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(16))

    def forward(self, x):
        query, scale = self.query.expand(x.shape[0], -1, -1), self.scale.view(1, -1)
        x = self.embed(x)
        return self.head(self.attention(query, x, x)[0].squeeze(1) * scale)


def views_of_parameters_outlive_their_layer(binary, folder):
    (folder / "apart.toml").write_text("[[node]]\nranks = [0]\n[[node]]\nranks = [1]\n")
    apart = ("--micro-batches", 4, "--emulate", "apart.toml")
    agrees(binary, folder, "query", Query(), "sequences", ("data=2", *apart, "--strategy", "zero3"), ("data=2", *apart, "--strategy", "zero2"),
           ("pipe=2", "--micro-batches", 4))
    run(binary, 2, "evaluate", f"runs/query-0/checkpoints/step-{STEPS:08}", "--mesh", "pipe=2", cwd=folder)


class WholeNumbers(nn.Module):
    """A table whose rows are found by a product with a large number; and a function of a count."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("salt", torch.tensor([2**61 - 3, torch.iinfo(torch.int64).max]))
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        rows = ((x[:, :2] * 10).round().long() * self.salt).remainder(7)
        count = (x > 0).sum(1, keepdim=True) + 1
        return self.head(torch.tanh(x + self.table(rows).sum(1)) * torch.sigmoid(count))


def large_whole_numbers_stay(binary, folder):
    agrees(binary, folder, "whole_numbers", WholeNumbers(), "rows", ("data=1",), ("data=2", "--micro-batches", 4))


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.out = nn.Conv2d(2, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.out(F.adaptive_avg_pool2d(torch.relu(self.conv(x)), 1).squeeze())


def a_micro_batch_of_one_sample_is_squeezed_like_others(binary, folder):
    agrees(binary, folder, "squeezed", Squeezed(), "images", ("data=1",), ("data=1", "--micro-batches", 24), ("pipe=2", "--micro-batches", 24))
    last = "runs/squeezed-0/checkpoints/last"
    losses = [run(binary, ranks, "evaluate", last, "--mesh", f"data={ranks}", cwd=folder).stdout.split("loss ")[1].split()[0] for ranks in (1, 2)]
    assert losses[0] == losses[1], losses


class WritesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        x.mul_(0.5)
        return self.down(torch.tanh(self.up(x)))


def an_input_is_written_in_place(binary, folder):
    """The golden batch, which is on, has what the module was given."""
    agrees(binary, folder, "writes_its_input", WritesItsInput(), "rows", ("data=1",))


class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, labels):
        return F.binary_cross_entropy_with_logits(self.down(torch.relu(self.up(x))), labels)


class Weighed(nn.Module):
    def __init__(self, weight):
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.weight = nn.Linear(6, CLASSES), weight

    def forward(self, x):
        return self.layer(x) * torch.tensor([1.0, self.weight, 3.0])


def a_run_goes_on_with_its_constants(binary, folder):
    options = options_of("weighed", "rows", "cross_entropy", SAMPLES)
    export_model(Weighed(2.0), (torch.rand(4, 6),), folder / "weighed.pt2", loss="cross_entropy")
    run(binary, 1, *options, "--name", "weighed", cwd=folder)
    longer = [*options, "--name", "weighed", "--resume", "auto"]
    longer[longer.index("--epochs") + 1] = longer[longer.index("--limit-steps") + 1] = STEPS + 1
    export_model(Weighed(5.0), (torch.rand(4, 6),), folder / "weighed.pt2", loss="cross_entropy")
    refused(binary, 1, 4, ["other constant tensors", "--init-from"], *longer, cwd=folder)
    export_model(Weighed(2.0), (torch.rand(4, 6),), folder / "weighed.pt2", loss="cross_entropy")
    run(binary, 1, *longer, cwd=folder)
    run(binary, 1, "evaluate", "runs/weighed/checkpoints/last", cwd=folder)


class Strided(nn.Module):
    """Of whose pointwise convolution oneDNN's backward writes outside its memory: in bf16 without AMX, in fp32 where it takes AVX2."""

    def __init__(self, channels, classes, norm, **how):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Conv2d(channels, 8, 3, padding=1)
        self.norm = norm
        self.conv = nn.Conv2d(8, 16, 1, bias=False, **how)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.conv(torch.relu(self.norm(self.first(x)))).mean((2, 3)))


def strides_of_pointwise_convolutions(binary, folder):
    for name, how in {"uneven": {"stride": (2, 1)}, "valid": {"stride": 2, "padding": "valid"}, "groups": {"stride": (1, 2), "groups": 2}}.items():
        agrees(binary, folder, name, Strided(2, CLASSES, nn.GroupNorm(2, 8), **how), "images", ("data=1",))
        export_model(Strided(1, 10, nn.BatchNorm2d(8), **how), (torch.rand(4, 1, 28, 28),), folder / f"{name}-28.pt2", loss="cross_entropy")
        for precision, instructions in ("bf16", "AVX512_CORE"), ("fp32", "AVX2"):
            command = [str(binary), "--model", f"{name}-28.pt2", "--dataset", "synthetic", "--precision", precision, "--threads", "2",
                       "--micro-batches", "1", "--global-batch", "3", "--limit-steps", "100", "--quiet", "--name", f"{name}-28-{precision}"]
            subprocess.run(command, cwd=folder, env=os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}, check=True, timeout=100, stdin=subprocess.DEVNULL)


class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(1, CLASSES, 3, padding=1)

    def forward(self, x, masks):
        return F.cross_entropy(self.conv(x), masks)


def own_loss_of_several_targets(binary, folder):
    agrees(binary, folder, "labels", Labels(), "labels", ("data=1",), ("data=2", "--micro-batches", 3), ("pipe=2", "--micro-batches", 3),
           ("tensor=2",), loss="model")
    refused(binary, 2, 2, ["takes targets [2, 4] for two samples, and those of the dataset are [2]"], "--mesh", "data=2",
            *options_of("labels", "rows", "model", 24), cwd=folder)
    export_model(Masks(), (torch.rand(4, 1, 6, 6), torch.randint(CLASSES, (4, 6, 6))), folder / "masks.pt2", loss="model")
    run(binary, 2, "--mesh", "data=2", "--name", "masks", *options_of("masks", "masks", "model", 24), cwd=folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", action="append", help="a check by the name that it prints")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        stage(given.binary.resolve(), folder)
        for check in drawn((trained_numbers_enter_slices, a_module_called_three_times, a_convolution_shared_over_stages,
                            detached_parameters_stay, detached_results_leave_their_layers, a_part_kept_in_evaluation_stays_so,
                            a_recurrent_part_kept_in_evaluation_drops_nothing, views_of_parameters_outlive_their_layer,
                            large_whole_numbers_stay, a_micro_batch_of_one_sample_is_squeezed_like_others, an_input_is_written_in_place,
                            a_run_goes_on_with_its_constants, strides_of_pointwise_convolutions, own_loss_of_several_targets,
                            gradients_pass_where_they_reach_a_parameter, a_buffer_that_is_a_parameters_memory_is_refused)):
            if not given.only or check.__name__ in given.only:
                check(given.binary.resolve(), folder)
                print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
