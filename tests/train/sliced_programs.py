"""Programs that torch.export.save wrote train on a tensor axis as on one rank: attentions by heads, and linear layers by the features
between them.

    sliced_programs.py BINARY [--only CHECK] [--networks N] [--seed S]
"""

import argparse
import json
import random
import re
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import h5py
import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "models/exported"), str(Path(__file__).resolve().parents[2] / "jobs")]
import make_programs  # noqa: E402
from drawn import drawn  # noqa: E402
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses  # noqa: E402
from export_model import export_model  # noqa: E402
from exported import COMMON, STEPS, stage  # noqa: E402
from random_attentions import RandomTransformer  # noqa: E402


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


def make_wide(folder):
    facts = json.loads((folder / "data/staged/rows/dataset.json").read_text())
    torch.manual_seed(3)
    make_programs.write(folder, "wide", Wide(facts["shape"][0], len(facts["classes"])), (torch.randn(4, facts["shape"][0]),))


def cut_agrees(binary, folder, program, dataset, meshes, words, *more):
    """On meshes with a tensor axis a program is cut as `words` say, and trains as on one rank; what is saved is whole."""
    found = {}
    for mesh in ("data=1", *meshes):
        name = f"{program}-{mesh.replace(',', '-')}"
        said = run(binary, ranks_of(mesh), "--model", f"{program}.pt2", "--dataset", dataset, "--name", name, "--precision", "fp64", *COMMON[:-1],
                   "--mesh", mesh, *more, "--overwrite", cwd=folder)
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
    make_wide(folder)
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
               "c_fc and c_out; 1 attention stays whole, since more than linear layers and functions of each head alone lie around "
               "scaled_dot_product_attention: crossed; the rest is on each rank")


def random_transformers_are_cut(binary, folder, networks, seed):
    """All of their attentions and pairs, on two ranks and on three, where parts are uneven, also by layers that run again."""
    for number in range(seed, seed + networks):
        chance = random.Random(number)
        torch.manual_seed(number)
        network = RandomTransformer(chance, 11, 6)
        meshes = ["tensor=2", chance.choice(("data=2,tensor=2", "pipe=2,tensor=2"))]
        if min(attention.groups for attention in network.attentions) > 2:
            meshes.append("tensor=3")
        more = chance.choice(((), ("--recompute", "full"), ("--strategy", "zero2"), ("--kernels", "libtorch")))
        begun = time.monotonic()
        try:
            export_model(network, torch.randint(11, (4, 6)), folder / "drawn.pt2")
            cut_agrees(binary, folder, "drawn", "blocks", meshes, "2 attentions are cut by heads over the tensor axis: attentions.0, ... attentions.1; "
                       "2 pairs of linear layers are cut", *more)
        except Exception:
            print(f"network {number}: --networks 1 --seed {number}\n{network}\n{more}", flush=True)
            raise
        print(f"network {number}: {', '.join(meshes)} {' '.join(more)} {time.monotonic() - begun:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", action="append", help="a check by the name that it prints")
    parser.add_argument("--networks", type=int, default=4, help="drawn by chance")
    parser.add_argument("--seed", type=int, default=date.today().toordinal() * 100, help="of the first of them; by default of the day")
    given = parser.parse_args()
    binary = given.binary.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        stage(binary, folder)
        for check in drawn((tensor_axis_agrees, attentions_are_cut_by_heads, slices_repeat_the_same_layers, fused_projections_are_cut)):
            if not given.only or check.__name__ in given.only:
                check(binary, folder)
                print(check.__name__, flush=True)
        if not given.only or random_transformers_are_cut.__name__ in given.only:
            random_transformers_are_cut(binary, folder, given.networks, given.seed)


if __name__ == "__main__":
    main()
