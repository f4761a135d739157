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
    # Of other shapes: the run keeps its model, and no tensor may be left out.
    module = make_programs.Images()
    module.depthwise = torch.nn.Conv2d(8, 8, 5, padding=2, groups=8)
    make_programs.write(folder / "other", "images", module, (torch.randn(4, 3, 8, 8),))
    refused(binary, 1, 4, ["depthwise.weight", "[8, 1, 3, 3]", "[8, 1, 5, 5]", "keeps its model", "--init-from"], "--model", "other/images.pt2",
            "--dataset", "pictures", "--name", "cut", *COMMON, *options, "--resume", "auto", cwd=folder)


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
            self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(features, classes) for name in ("my head", "t\tb", "a/b", "l" * 900)})

        def forward(self, x):
            return sum(head(x) for head in self.heads.values())

    make_programs.write(folder, "my net", Heads(), (torch.randn(4, features),))
    command = ["--model", "my net.pt2", "--dataset", "rows", "--name", "named", *COMMON]
    stopped = run(binary, 2, *command, "--exit-after", "0.001s", cwd=folder, check=False)
    assert stopped.returncode == 75, stopped.stderr
    run(binary, 1, *command, cwd=folder)
    said = run(binary, 1, "evaluate", "runs/named", cwd=folder).stdout
    assert "loss" in said, said
    for name in ("named.h5", "named.safetensors"):
        run(binary, 1, "export", "runs/named", name, cwd=folder)
        again = [*command[:-len(COMMON) - 1], name.replace(".", "-"), *COMMON]
        run(binary, 1, *again, "--init-from", name, cwd=folder)
    with h5py.File(folder / "endless.h5", "w") as file:
        group = file.create_group("model")
        for name in "abcdefgh":
            group[name] = group
    refused(binary, 1, 4, ["endless.h5", "groups in groups without end", "dtrain export"], *command[:-len(COMMON) - 1], "endless", *COMMON,
            "--init-from", "endless.h5", cwd=folder)


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


def a_golden_batch_is_not_limited(binary, folder):
    """A limit is of training. The golden batch, which needs more here, comes before."""
    facts = json.loads((folder / "data/staged/rows/dataset.json").read_text())
    features, classes = facts["shape"][0], len(facts["classes"])
    net = torch.nn.Sequential(torch.nn.Linear(features, 12), torch.nn.ReLU(), torch.nn.Linear(12, classes))
    rows = 4096
    make_programs.write(folder, "much_golden", net, (torch.randn(rows, features),), "cross_entropy", torch.arange(rows) % classes)
    run(binary, 1, "--model", "much_golden.pt2", "--dataset", "rows", "--memory-limit", "600KiB", "--name", "limited", *COMMON, cwd=folder)


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
        for check in drawn((refuses, a_golden_batch_is_not_limited, dry_run_shows_layers, meshes_agree, bits_agree, learns_in_half_precision, own_loss_trains, names_of_any_kind,
                            goes_on, evaluates_and_exports, words_by_rows_agree)):
            if not given.only or check.__name__ in given.only:
                check(given.binary.resolve(), folder)
                print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
