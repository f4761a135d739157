"""Programs that torch.export.save wrote train from the command line: on every mesh as on one rank, through stops, evaluated
and exported, and refused in one sentence.

    exported.py BINARY [--only CHECK]

The programs are those of tests/models/exported/make_programs.py.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "models/exported"))
import make_programs  # noqa: E402
from drawn import drawn  # noqa: E402
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses  # noqa: E402

MESHES = ("data=2", "pipe=2", "data=2,pipe=2")
STEPS = 4
COMMON = ["--epochs", 2, "--limit-steps", STEPS, "--global-batch", 16, "--micro-batches", 8, "--threads", 1, "--optimizer", "sgd", "--learning-rate", 0.05,
          "--quiet"]
DATASETS = {"images": "pictures", "words": "blocks", "turned": "blocks", "padded": "blocks", "biased": "blocks"}


def stage(binary, folder):
    rng = np.random.default_rng(1)
    images, classes = rng.integers(0, 256, (96, 3, 8, 8), np.uint8), rng.integers(0, 5, 96)
    np.savez(folder / "pictures.npz", x=images, y=classes)
    with h5py.File(folder / "pictures.h5", "w") as file:
        file["x"], file["y"] = images, classes
    run(binary, 1, "stage", "pictures", "--from", "pictures.h5", "--inputs", "/x", "--targets", "/y", cwd=folder)
    run(binary, 1, "stage", "blocks", "--format", "synthetic", "--task", "language_modelling", "--samples", 96, "--vocab-size", 11,
        "--max-length", 6, cwd=folder)
    run(binary, 1, "stage", "rows", "--format", "synthetic", "--task", "table_classification", "--samples", 96, cwd=folder)


def trained(binary, folder, name, program, mesh, *options):
    run(binary, ranks_of(mesh), "--model", f"{program}.pt2", "--dataset", DATASETS[program], "--mesh", mesh, "--name", name, *COMMON,
        *options, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as results:
        losses = step_losses(results)
    return losses, checkpoint_tensors(folder / f"runs/{name}/checkpoints/step-{STEPS:08}", group=None)


def meshes_agree(binary, folder):
    """fp64: what is left is the order of sums."""
    for program in ("images", "words"):
        losses, tensors = trained(binary, folder, f"{program}-one", program, "data=1", "--precision", "fp64")
        assert len(losses) == STEPS and np.all(np.isfinite(losses)), losses
        # Recomputation cuts the graph before each layer, and layerwise runs them one by one.
        ways = [(mesh, ()) for mesh in MESHES] + [("data=1", ("--recompute", "full")), ("pipe=2", ("--pipeline", "interleaved")),
                                                  ("data=1", ("--kernels", "libtorch")), ("pipe=3", ("--recompute", "full"))]
        for mesh, options in ways:
            name = "-".join([program, mesh, *options]).replace(",", "-").replace("--", "")
            other, theirs = trained(binary, folder, name, program, mesh, "--precision", "fp64", *options)
            assert np.allclose(other, losses, rtol=1e-10), (name, other, losses)
            assert theirs.keys() == tensors.keys(), theirs.keys() ^ tensors.keys()
            for key, value in tensors.items():
                assert np.allclose(theirs[key], value, rtol=1e-6, atol=1e-7), (name, key, np.max(np.abs(theirs[key] - value)))


class Turned(torch.nn.Module):
    """The gradient of a normalisation lies otherwise than its result: sums over it have other bits."""

    def __init__(self, words, length, width=16):
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(words, width), torch.nn.LayerNorm(width)
        self.mixed, self.head = torch.nn.Linear(length, length), torch.nn.Linear(width, words)

    def forward(self, ids):
        return self.head(torch.tanh(self.mixed(self.norm(self.embedding(ids)).transpose(1, 2))).transpose(1, 2))


class Padded(torch.nn.Module):
    """A mask of real numbers flows from layer to layer, and nothing is learnt through it."""

    def __init__(self, words, width=16):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0, batch_first=True, norm_first=True)
        self.embedding, self.head = torch.nn.Embedding(words, width), torch.nn.Linear(width, words)
        self.encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids), src_key_padding_mask=ids == 1))


class Biased(torch.nn.Module):
    """Attentions whose masks are learnt, also by layers that run again."""

    def __init__(self, words, length, width=16):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(words, width), torch.nn.Linear(width, words)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width) for _ in range(3))
        self.biases = torch.nn.ParameterList(torch.randn(1, 2, length, length) for _ in range(3))

    def forward(self, ids):
        x = self.embedding(ids)
        for part, bias in zip(self.parts, self.biases):
            q, k, v = (one.unflatten(2, (2, -1)).transpose(1, 2) for one in part(x).chunk(3, 2))
            x = x + torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        return self.head(x)


def bits_agree(binary, folder):
    torch.manual_seed(3)
    for program, module in (("turned", Turned(11, 6)), ("padded", Padded(11)), ("biased", Biased(11, 6))):
        make_programs.write(folder, program, module, (torch.randint(11, (4, 6)),))
    for program in DATASETS:
        losses, tensors = trained(binary, folder, f"{program}-bits", program, "data=1", "--reproducible")
        again = [("data=1", "--recompute", "full")] if program in ("padded", "biased") else []  # elsewhere shared weights add up in another order
        for mesh, *options in (*((mesh,) for mesh in MESHES), *again):
            other, theirs = trained(binary, folder, f"{program}-bits-{mesh}-{len(options)}", program, mesh, "--reproducible", *options)
            assert np.array_equal(other, losses), (program, mesh, options, other, losses)
            for key, value in tensors.items():
                assert np.array_equal(theirs[key], value), (program, mesh, options, key)


def learns_in_half_precision(binary, folder):
    losses, _ = trained(binary, folder, "images-full", "images", "data=1")
    half, _ = trained(binary, folder, "images-bf16", "images", "data=1", "--precision", "bf16")
    assert np.allclose(half, losses, rtol=0.05) and not np.array_equal(half, losses), (half, losses)


def goes_on(binary, folder):
    """A run that was cut has the bits of one that was not, also when the file has moved, and on another mesh nearly."""
    program = "images"
    options = ["--reproducible", "--checkpoint-every", "2steps"]
    _, whole = trained(binary, folder, "uncut", program, "data=1", *options)
    cut = folder / "runs/cut"
    shutil.copytree(folder / "runs/uncut", cut, symlinks=True)
    shutil.rmtree(cut / f"checkpoints/step-{STEPS:08}")
    (cut / "checkpoints/best").unlink(missing_ok=True)
    (cut / "state").write_text("failed\n")
    (folder / "elsewhere").mkdir()
    shutil.copy(folder / "images.pt2", folder / "elsewhere/images.pt2")
    run(binary, 2, "--model", "elsewhere/images.pt2", "--dataset", "pictures", "--name", "cut", *COMMON, *options, "--resume", "auto",
        "--mesh", "pipe=2", cwd=folder)
    on = checkpoint_tensors(cut / f"checkpoints/step-{STEPS:08}", group=None)
    assert all(np.array_equal(on[key], value) for key, value in whole.items())
    # The file is gone: the run has kept the program.
    shutil.rmtree(cut / f"checkpoints/step-{STEPS:08}")
    (cut / "state").write_text("failed\n")
    options_on = [*COMMON[:-1], *options, "--resume", "auto", "--mesh", "data=2"]
    said = run(binary, 2, "--model", "gone/images.pt2", "--dataset", "pictures", "--name", "cut", *options_on, cwd=folder)
    assert "gone/images.pt2 is not there" in said.stdout + said.stderr, (said.stdout, said.stderr)
    on = checkpoint_tensors(cut / f"checkpoints/step-{STEPS:08}", group=None)
    assert all(np.array_equal(on[key], value) for key, value in whole.items())
    refused(binary, 1, 2, ["gone/images.pt2", "no such file"], "--model", "gone/images.pt2", "--dataset", "pictures", "--name", "afresh",
            *COMMON, cwd=folder)
    # Another program has another hash.
    shutil.rmtree(cut / f"checkpoints/step-{STEPS:08}")
    (cut / "state").write_text("failed\n")
    (folder / "other").mkdir()
    shutil.copy(folder / "evaluated.pt2", folder / "other/images.pt2")
    refused(binary, 1, 4, ["another program", "--init-from"], "--model", "other/images.pt2", "--dataset", "pictures", "--name", "cut",
            *COMMON, *options, "--resume", "auto", cwd=folder)


def evaluates_and_exports(binary, folder):
    """After the file is gone; what is exported loads into the module."""
    trained(binary, folder, "moved", "words", "data=1", "--precision", "fp64")
    moved = folder / "moved"
    shutil.copytree(folder / "runs/moved", moved / "runs/moved", symlinks=True)
    shutil.copytree(folder / "data", moved / "data")
    said = run(binary, 2, "evaluate", "runs/moved/checkpoints/best", cwd=moved).stdout
    with h5py.File(folder / "runs/moved/results.h5") as results:
        expected = float(results["test"]["loss"][0])
    assert f"loss {expected:.4f}" in said, (said, expected)
    run(binary, 1, "export", "runs/moved/checkpoints/best", "words.h5", cwd=moved)
    with h5py.File(moved / "words.h5") as file:
        state = {name: torch.from_numpy(np.asarray(value[()])) for name, value in file["model"].items()}
    module = make_programs.Words().double()
    module.load_state_dict(state, strict=True)
    assert torch.equal(module.head.weight, module.embedding.weight)
    # And the other way: weights of PyTorch start a run.
    (folder / "start.h5").unlink(missing_ok=True)
    with h5py.File(folder / "start.h5", "w") as file:
        for name, value in module.state_dict().items():
            file[f"model/{name}"] = value.numpy()
    run(binary, 1, "--model", "words.pt2", "--dataset", "blocks", "--name", "started", "--init-from", "start.h5", "--precision", "fp64",
        *COMMON[:-3], "--learning-rate", 1e-300, cwd=folder)
    for name, value in checkpoint_tensors(folder / f"runs/started/checkpoints/step-{STEPS:08}").items():
        assert np.array_equal(value, state[name].numpy()), name


def own_loss_trains(binary, folder):
    losses = {}
    for program, loss in (("row_loss", "model"), ("row_logits", "cross_entropy")):
        run(binary, 2, "--model", f"{program}.pt2", "--loss", loss, "--dataset", "rows", "--name", program, "--precision", "fp64", *COMMON,
            "--mesh", "pipe=2" if program == "row_loss" else "data=2", cwd=folder)
        with h5py.File(folder / f"runs/{program}/results.h5") as results:
            losses[program] = step_losses(results)
    assert np.allclose(losses["row_loss"], losses["row_logits"], rtol=1e-12), losses
    run(binary, 1, "evaluate", "runs/row_loss", cwd=folder)
    refused(binary, 1, 2, ["--predictions", "its loss"], "evaluate", "runs/row_loss", "--predictions", "rows.h5", cwd=folder)


def names_of_any_kind(binary, folder):
    """A file and a part of a network with blanks in their names: what is written can be read."""
    facts = json.loads((folder / "data/staged/rows/dataset.json").read_text())
    features, classes = facts["shape"][0], len(facts["classes"])

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(features, classes) for name in ("my head", "t\tb", "l" * 900)})

        def forward(self, x):
            return sum(head(x) for head in self.heads.values())

    make_programs.write(folder, "my net", Heads(), (torch.randn(4, features),))
    command = ["--model", "my net.pt2", "--dataset", "rows", "--name", "named", *COMMON]
    stopped = run(binary, 2, *command, "--exit-after", "0.001s", cwd=folder, check=False)
    assert stopped.returncode == 75, stopped.stderr
    run(binary, 1, *command, cwd=folder)
    said = run(binary, 1, "evaluate", "runs/named", cwd=folder).stdout
    assert "loss" in said, said


def dry_run_shows_layers(binary, folder):
    said = run(binary, 2, "--model", "images.pt2", "--dataset", "pictures", "--dry-run", "--mesh", "pipe=2", cwd=folder).stdout
    for word in ("conv", "bn", "fc2", "[8, 5]"):
        assert word in said, (word, said)


def refuses(binary, folder):
    """What a model's test has by name and module, here through the program: exit code and one sentence, on all ranks."""
    for name, code, words, dataset, *options in (
            ("random", 2, ["aten.rand_like", "nn.Dropout"], "rows"), ("truncated", 4, ["truncated.pt2"], "rows"),
            ("schema_9", 2, ["schema 9.1", "schema 8"], "rows"), ("missing", 2, ["no such file"], "rows"),
            ("other_golden", 4, ["another loss", "--golden off"], "pictures"),
            ("images", 2, ["3, 8, 8", "[2, 6]"], "blocks"),
            ("images", 2, ["no two linear layers", "tensor axis", "data=2,pipe=2"], "pictures", "--mesh", "tensor=2"),
            ("images", 2, ["--model-option"], "pictures", "--model-option", "width=3"),
            ("images", 2, ["--golden"], "pictures", "--golden", "perhaps"),
            ("images", 2, ["its own inputs"], "pictures", "--loss", "mse")):
        refused(binary, 2, code, words, "--model", f"{name}.pt2", "--dataset", dataset, *COMMON, *options, cwd=folder)
        assert not list((folder / "runs").glob(f"{name}-{dataset}-*")), "a refused run left a folder"
    refused(binary, 3, 2, ["251 tensors flow between two layers", "pipe=N", "nn.LSTM"], "--model", "many.pt2", "--dataset", "rows", *COMMON,
            "--mesh", "pipe=3", cwd=folder)
    run(binary, 1, "--model", "other_golden.pt2", "--dataset", "pictures", "--golden", "off", "--name", "not-compared", *COMMON,
        cwd=folder)


class RowLoss(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(features, 12), torch.nn.Linear(12, 10)

    def logits(self, x):
        return self.fc2(torch.relu(self.fc1(x)))

    def forward(self, x, target):
        return torch.nn.functional.cross_entropy(self.logits(x), target)


class Many(RowLoss):
    """A value of which many are made early and used late."""

    def __init__(self, features):
        super().__init__(features)
        self.middle = torch.nn.Linear(12, 12)

    def forward(self, x):
        x = self.fc1(x)
        early = [torch.sin(x * k) for k in range(250)]
        return self.fc2(self.middle(x) + torch.stack(early).sum(0))


class RowLogits(RowLoss):
    def forward(self, x):
        return self.logits(x)


class Wide(torch.nn.Module):
    """Two pairs of linear layers, one with dropout between and an odd number of features, and one linear layer besides."""

    def __init__(self, features, classes):
        super().__init__()
        self.up, self.drop, self.down = torch.nn.Linear(features, 13), torch.nn.Dropout(0.25), torch.nn.Linear(13, 6, bias=False)
        self.norm, self.middle, self.act = torch.nn.LayerNorm(6), torch.nn.Linear(6, 8), torch.nn.ReLU(inplace=True)
        self.end, self.last = torch.nn.Linear(8, 4), torch.nn.Linear(4, classes)

    def forward(self, x):
        x = x.unsqueeze(1).repeat(1, 3, 1) * torch.linspace(1, 2, 3)[:, None]  # [N, 3, features]
        x = self.norm(self.down(self.drop(torch.nn.functional.gelu(self.up(x)))))
        return self.last(torch.tanh(self.end(self.act(self.middle(x))).mean(1)))


def cut_agrees(binary, folder, program, dataset, meshes, words):
    """On meshes with a tensor axis a program is cut as `words` say, and trains as on one rank; what is saved is whole."""
    found = {}
    for mesh in ("data=1", *meshes):
        name = f"{program}-{mesh.replace(',', '-')}"
        said = run(binary, ranks_of(mesh), "--model", f"{program}.pt2", "--dataset", dataset, "--name", name, "--precision", "fp64", *COMMON[:-1],
                   "--mesh", mesh, cwd=folder)
        if mesh in meshes:
            assert words in said.stdout + said.stderr, said
        with h5py.File(folder / f"runs/{name}/results.h5") as results:
            found[mesh] = step_losses(results), checkpoint_tensors(folder / f"runs/{name}/checkpoints/step-{STEPS:08}", group=None)
        losses, tensors = found["data=1"]
        assert np.allclose(found[mesh][0], losses, rtol=1e-10), (mesh, found[mesh][0], losses)
        for key, value in tensors.items():
            assert np.allclose(found[mesh][1][key], value, rtol=1e-7, atol=1e-9), (mesh, key)


def tensor_axis_agrees(binary, folder):
    """Pairs of linear layers are cut, with the whole's dropout masks; what is saved is whole, and is resumed on another mesh."""
    cut_agrees(binary, folder, "wide", "rows", ("tensor=2", "data=2,tensor=2", "pipe=3,tensor=2"),
               "2 pairs of linear layers are cut over the tensor axis: up and down, ... middle and end")
    first = run(binary, 1, "evaluate", "runs/wide-data=1/checkpoints/last", cwd=folder).stdout
    cut = run(binary, 2, "evaluate", "runs/wide-tensor=2/checkpoints/last", "--mesh", "tensor=2", cwd=folder).stdout
    assert "loss" in cut and cut.split("loss ")[1].split()[0] == first.split("loss ")[1].split()[0], (cut, first)
    plan = run(binary, 2, "--model", "wide.pt2", "--dataset", "rows", "--mesh", "tensor=2", "--dry-run", cwd=folder)
    assert "2 pairs of linear layers" in plan.stdout + plan.stderr, plan


class Joint(torch.nn.Module):
    """Queries, keys and values by one linear layer; scaled_dot_product_attention with dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width, bias=False)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(self.width, 2))
        p = 0.2 if self.training else 0.0
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(n, t, self.width))


class Apart(torch.nn.Module):
    """A linear layer for each, and a mask; `written`: the products written out, with dropout between."""

    def __init__(self, width, heads, written):
        super().__init__()
        self.heads, self.width, self.written = heads, width, written
        self.q, self.k, self.v = (torch.nn.Linear(width, width, bias=bias) for bias in (True, False, True))
        self.drop, self.out = torch.nn.Dropout(0.2), torch.nn.Linear(width, width)

    def forward(self, x, seen):
        n, t, _ = x.shape
        q, k, v = (part(x).view(n, t, self.heads, self.width // self.heads).permute(0, 2, 1, 3) for part in (self.q, self.k, self.v))
        if self.written:
            scores = torch.matmul(q, k.transpose(-2, -1)) / 2.0
            y = torch.matmul(self.drop(scores.masked_fill(~seen, -1e9).softmax(-1)), v)
        else:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(n, t, self.width))


class Attentive(torch.nn.Module):
    """Three attentions of three heads, written in three ways, and a pair of linear layers."""

    def __init__(self, words, length, width=12):
        super().__init__()
        self.embedding, self.places = torch.nn.Embedding(words, width), torch.nn.Parameter(torch.randn(length, width))
        self.joint, self.apart, self.written = Joint(width, 3), Apart(width, 3, False), Apart(width, 3, True)
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 20), torch.nn.Linear(20, width)
        self.head = torch.nn.Linear(width, words)

    def forward(self, ids):
        x = self.embedding(ids) + self.places
        seen = (ids != 0)[:, None, None, :] | torch.eye(ids.shape[1], dtype=torch.bool)
        x = x + self.joint(self.norm(x))
        x = x + self.apart(x, seen)
        x = x + self.written(x, seen)
        return self.head(x + self.down(torch.nn.functional.gelu(self.up(x))))


def attentions_are_cut_by_heads(binary, folder):
    """Uneven parts: two heads and one. Masks of dropout are the whole's; what is saved is whole, and so is what has too few heads."""
    torch.manual_seed(3)
    make_programs.write(folder, "attentive", Attentive(11, 6), (torch.randint(11, (4, 6)),))
    cut_agrees(binary, folder, "attentive", "blocks", ("tensor=2", "data=2,tensor=2", "pipe=2,tensor=2"),
               "3 attentions are cut by heads over the tensor axis: joint, ... written; 1 pair of linear layers is cut over the tensor axis: "
               "up and down; the rest is on each rank")
    alone = ["--model", "attentive.pt2", "--dataset", "blocks", "--dry-run"]
    plan = run(binary, 1, *alone, "--mesh", "tensor=4", "--cluster", "1x4", cwd=folder).stdout
    assert "1 pair of linear layers is cut" in plan and "joint, ... written stay whole, with fewer heads or features than there are ranks" in plan, plan
    refused(binary, 1, 2, ["up and down has 20 heads or features", "--mesh tensor=32", "tensor=20"], *alone, "--mesh", "tensor=32", "--cluster",
            "1x32", cwd=folder)
    refused(binary, 1, 2, ["attentive does not go on with a text", "PyTorch"], "generate", "runs/attentive-data=1", "--prompt", "w5", cwd=folder)


class Lopsided(torch.nn.Module):
    """Attentions of three heads alone, so that of two ranks of a tensor axis one needs far more memory."""

    def __init__(self, words, width=48):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(words, width), torch.nn.Linear(width, words)
        self.parts = torch.nn.ModuleList(Joint(width, 3) for _ in range(4))

    def forward(self, ids):
        x = self.embedding(ids)
        for part in self.parts:
            x = x + part(torch.tanh(x))
        return self.head(x)


def slices_repeat_the_same_layers(binary, folder):
    """Under a limit that one of two ranks passes and the other does not, both run the same layers again: these exchange sums."""
    torch.manual_seed(3)
    run(binary, 1, "stage", "long", "--format", "synthetic", "--task", "language_modelling", "--samples", 64, "--vocab-size", 11,
        "--max-length", 64, cwd=folder)
    make_programs.write(folder, "lopsided", Lopsided(11), (torch.randint(11, (4, 64)),))
    options = ["--model", "lopsided.pt2", "--dataset", "long", "--optimizer", "adam", "--epochs", 1, "--limit-steps", 2, "--global-batch", 16,
               "--micro-batches", 1, "--threads", 1, "--watchdog", 20, "--mesh", "tensor=2"]
    run(binary, 2, *options, "--name", "lopsided", cwd=folder)
    with h5py.File(folder / "runs/lopsided/results.h5") as results:
        losses = step_losses(results)
        told = [re.search(r"at most (\d+) bytes while it trained, estimated (\d+)", event["detail"].decode()) for rank in results["ranks"].values()
                for event in rank["events"][:] if event["kind"] == b"tensor_memory"]
    estimates = [int(found[2]) for found in told]
    assert max(estimates) > 1.1 * min(estimates), estimates
    assert all(int(found[1]) < 1.05 * int(found[2]) for found in told), told  # the weights of attention with dropout are half of it
    limit = f"{1.05 * max(estimates) / 1024 - 2:.0f}KiB"  # with the 5 % to spare a little less than the one needs, and enough for the other
    run(binary, 2, *options, "--recompute", "auto", "--memory-limit", limit, "--name", "lopsided-again", cwd=folder)
    with h5py.File(folder / "runs/lopsided-again/results.h5") as results:
        assert np.allclose(step_losses(results), losses, rtol=1e-4), losses
    refused(binary, 2, 2, ["--memory-limit 300KiB", "parameters, gradients and optimizer"], *options, "--recompute", "auto", "--strategy", "ddp",
            "--memory-limit", "300KiB", "--name", "lopsided-refused", cwd=folder)


class Conv1D(torch.nn.Module):
    """Hugging Face's linear layer of GPT-2, whose weight is [inputs, outputs]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.randn(inputs, outputs) / 4), torch.nn.Parameter(torch.randn(outputs) / 4)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.weight.shape[1])


class Fused(torch.nn.Module):
    """nn.MultiheadAttention, of which one has a mask and one gets keys from elsewhere, and GPT-2's block as Hugging Face has it."""

    def __init__(self, words, length, width=12):
        super().__init__()
        self.embedding, self.places = torch.nn.Embedding(words, width), torch.nn.Parameter(torch.randn(length, width))
        self.module = torch.nn.MultiheadAttention(width, 3, dropout=0.2, batch_first=True)
        self.causal = torch.nn.MultiheadAttention(width, 4, bias=False, batch_first=True)
        self.crossed = torch.nn.MultiheadAttention(width, 3, batch_first=True)
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.norm, self.c_fc, self.c_out = torch.nn.LayerNorm(width), Conv1D(width, 21), Conv1D(21, width)
        self.drop, self.head = torch.nn.Dropout(0.2), torch.nn.Linear(width, words)

    def forward(self, ids):
        x = self.embedding(ids) + self.places
        n, t, width = x.shape
        y = self.norm(x)
        x = x + self.module(y, y, y, need_weights=False)[0]
        x = x + self.causal(x, x, x, need_weights=False, attn_mask=torch.ones(t, t, dtype=torch.bool).triu(1))[0]
        x = x + self.crossed(x, y, y, need_weights=False)[0]
        q, k, v = (part.view(n, t, -1, 4).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.reshape(n, -1, t, 4)  # the same shape, as in what transformers exports
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, -1).contiguous())
        y = self.c_fc(x)
        y = 0.5 * y * (1.0 + torch.tanh(0.8 * (y + 0.044715 * torch.pow(y, 3.0))))  # NewGELUActivation
        return self.head(x + self.drop(self.c_out(self.drop(y))))


def fused_projections_are_cut(binary, folder):
    """in_proj of nn.MultiheadAttention and Conv1D of GPT-2, both by heads; what cannot be cut is named."""
    torch.manual_seed(3)
    make_programs.write(folder, "fused", Fused(11, 6), (torch.randint(11, (4, 6)),))
    cut_agrees(binary, folder, "fused", "blocks", ("tensor=2", "data=2,tensor=2", "pipe=2,tensor=2"),
               "3 attentions are cut by heads over the tensor axis: module, ... c_proj; 1 pair of linear layers is cut over the tensor axis: "
               "c_fc and c_out; 1 attention stays whole, since it is not linear layers, view and transpose(1, 2) alone that lie around "
               "scaled_dot_product_attention, or a number or mask there is trained: crossed; the rest is on each rank")


def words_by_rows_agree(binary, folder):
    """A table of words, of which a step uses few rows: exchanged by rows, as a whole, and on a pipeline."""
    run(binary, 1, "stage", "texts", "--format", "synthetic", "--task", "text_classification", "--samples", 96, "--vocab-size", 2000,
        "--max-length", 12, cwd=folder)
    facts = json.loads((folder / "data/staged/texts/dataset.json").read_text())
    words, classes = len(facts["tokenizer"]["vocabulary"]), len(facts["classes"])
    options = [*COMMON[:COMMON.index("--optimizer")], "--optimizer", "adam", "--learning-rate", 0.05, "--precision", "fp64"]
    for program, kind in (("mean", make_programs.Bag), ("mean_bag", make_programs.MeanBag)):
        torch.manual_seed(3)
        make_programs.write(folder, program, kind(words, 8, classes), (torch.randint(4, 60, (4, 9)),), length=True)
        found = {}
        for name, ranks, *more in (("dense", 1, "--kernels", "libtorch"), ("rows", 1), ("rows-2", 2, "--mesh", "data=2"),
                                   ("pipe", 2, "--mesh", "pipe=2"))[:4 if program == "mean" else 3]:
            run(binary, ranks, "--model", f"{program}.pt2", "--dataset", "texts", "--name", f"{program}-{name}", *options, *more, cwd=folder)
            run_folder = folder / f"runs/{program}-{name}"
            with h5py.File(run_folder / "results.h5") as results:
                found[name] = step_losses(results), checkpoint_tensors(run_folder / f"checkpoints/step-{STEPS:08}", group=None)
            assert np.allclose(found[name][0], found["dense"][0], rtol=1e-10), (program, name, found[name][0], found["dense"][0])
            for key, value in found["dense"][1].items():
                assert np.allclose(found[name][1][key], value, rtol=1e-6, atol=1e-7), (program, name, key)


def make_row_programs(folder):
    facts = json.loads((folder / "data/staged/rows/dataset.json").read_text())
    features, classes = facts["shape"][0], len(facts["classes"])
    for name, kind, targets in (("row_loss", RowLoss, (torch.zeros(4, dtype=torch.long),)), ("row_logits", RowLogits, ()), ("many", Many, ())):
        torch.manual_seed(3)
        module = kind(features)
        module.fc2 = torch.nn.Linear(12, classes)
        make_programs.write(folder, name, module, (torch.randn(4, features), *targets))
    torch.manual_seed(3)
    make_programs.write(folder, "wide", Wide(features, classes), (torch.randn(4, features),))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", action="append", help="a check by the name that it prints")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_programs.main(folder)
        stage(given.binary, folder)
        make_row_programs(folder)
        for check in drawn((refuses, dry_run_shows_layers, meshes_agree, bits_agree, learns_in_half_precision, own_loss_trains, names_of_any_kind,
                            goes_on, evaluates_and_exports, tensor_axis_agrees, attentions_are_cut_by_heads, slices_repeat_the_same_layers,
                            fused_projections_are_cut, words_by_rows_agree)):
            if not given.only or check.__name__ in given.only:
                check(given.binary.resolve(), folder)
                print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
