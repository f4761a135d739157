"""A plug-in, built against the installed package: its operator, model and loss train; what is no plug-in of this program is
refused before its code runs.

    plugin.py BINARY LIBRARY SCRATCH
"""

import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).parents[2] / "jobs"))
from dtrain_run import ranks_of, refused, run, step_losses  # noqa: E402
from export_model import NotExportable, export_model  # noqa: E402

COMMON = ("--dataset", "rows", "--limit-steps", 3, "--epochs", 1, "--global-batch", 16, "--micro-batches", 4, "--threads", 1,
          "--optimizer", "sgd", "--learning-rate", 0.1, "--precision", "fp64", "--quiet")


# PyTorch's side of the operator: what it computes while a module is exported.
@torch.library.custom_op("mine::swish", mutates_args=())
def swish(x: torch.Tensor, beta: float) -> torch.Tensor:
    return x * torch.sigmoid(x * beta)


@swish.register_fake
def _(x, beta):
    return torch.empty_like(x)


def swish_backward(context, gradient):
    sigmoid = torch.sigmoid(context.x * context.beta)
    return gradient * sigmoid * (1 + context.x * context.beta * (1 - sigmoid)), None


def keep(ctx, inputs, output):
    ctx.x, ctx.beta = inputs


swish.register_autograd(swish_backward, setup_context=keep)


class Net(nn.Module):
    def __init__(self, features, classes, own):
        super().__init__()
        torch.manual_seed(2)
        self.own, self.fc1, self.fc2 = own, nn.Linear(features, 12), nn.Linear(12, classes)

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(torch.ops.mine.swish(x, 0.75) if self.own else x * torch.sigmoid(x * 0.75))


def losses_of(binary, folder, name, mesh, *options):
    run(binary, ranks_of(mesh), *options, "--name", name, "--mesh", mesh, *COMMON, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as results:
        return step_losses(results), results["epochs"][:]


def operators_train(binary, folder, plugin, features, classes):
    for name, own in (("mine", True), ("plain", False)):
        export_model(Net(features, classes, own), torch.randn(4, features), folder / f"{name}.pt2", operators=("mine",))
    try:
        export_model(Net(features, classes, True), torch.randn(4, features), folder / "unsaid.pt2")
        raise AssertionError("an operator that nothing had announced was exported")
    except NotExportable as error:
        assert "mine.swish" in str(error) and "--plugin" in str(error), error
    losses, _ = losses_of(binary, folder, "plain", "data=1", "--model", "plain.pt2")
    for mesh in ("data=1", "data=2", "pipe=2"):  # the golden batch is compared too
        theirs, _ = losses_of(binary, folder, f"mine-{mesh}", mesh, "--model", "mine.pt2", "--plugin", plugin)
        assert len(losses) == 3 and np.allclose(theirs, losses, rtol=1e-12), (mesh, theirs, losses)
    refused(binary, 2, 2, ["mine.swish", "--plugin"], "--model", "mine.pt2", *COMMON, cwd=folder)


def models_and_losses_train(binary, folder, plugin):
    asked = ("--plugin", plugin, "--model", "mine_mlp", "--loss", "focal")
    losses, epochs = losses_of(binary, folder, "own", "data=1", *asked)
    for mesh in ("data=2", "pipe=2"):
        theirs, _ = losses_of(binary, folder, f"own-{mesh}", mesh, *asked)
        assert np.allclose(theirs, losses, rtol=1e-12), (mesh, theirs, losses)
    plain, _ = losses_of(binary, folder, "own-plain", "data=1", *asked[:-2])
    assert np.all(losses < plain), (losses, plain)  # (1 - p)^2 < 1
    assert 0 <= epochs["validation_accuracy"][0] <= 1, epochs
    # For a model of dtrain, and for a program.
    assert not np.array_equal(losses_of(binary, folder, "mlp-focal", "data=1", "--plugin", plugin, "--loss", "focal")[0], losses)
    focal, _ = losses_of(binary, folder, "mine-focal", "data=1", "--plugin", plugin, "--model", "mine.pt2", "--loss", "focal")
    assert np.all(np.isfinite(focal))


def checkpoints_name_no_code(binary, folder, plugin):
    checkpoint = "runs/own/checkpoints/last"
    refused(binary, 1, 4, ["mine_mlp", "give --plugin again"], "evaluate", checkpoint, cwd=folder)
    assert "accuracy" in run(binary, 1, "evaluate", checkpoint, "--plugin", plugin, cwd=folder).stdout
    asked = ("--name", "own", "--mesh", "data=1", *COMMON, "--limit-steps", 5)
    refused(binary, 1, 2, ["no model mine_mlp", "--plugin"], "--model", "mine_mlp", "--loss", "focal", *asked, cwd=folder)
    run(binary, 1, "--plugin", plugin, "--model", "mine_mlp", "--loss", "focal", *asked, cwd=folder)
    with h5py.File(folder / "runs/own/results.h5") as results:
        assert len(step_losses(results)) == 5
    (folder / "names.toml").write_text(f'plugin = "{plugin}"\n')
    refused(binary, 1, 2, ["names.toml", "no file may bring code", "command line"], "--config", "names.toml", cwd=folder)


def others_are_refused(binary, folder, plugin):
    bytes_of = plugin.read_bytes()
    begin = bytes_of.index(b"dtrain-plugin-stamp{")
    stamp = bytes_of[begin:bytes_of.index(b"}", begin)].decode()
    version = stamp.split("LibTorch ")[1].split(",")[0]
    files = {"older.so": bytes_of.replace(f"LibTorch {version}".encode(), b"LibTorch " + b"1" * len(version)),
             "headers.so": bytes_of.replace(b"{plug-in 1, headers 0", b"{plug-in 1, headers 9"),
             "plain.so": bytes_of.replace(b"dtrain-plugin-stamp", b"dtrain-another-thing"),
             "cut.so": bytes_of[:begin + len(stamp) + 1], "text.so": b"{}", "empty.so": b""}
    ours = "LibTorch " + version
    for name, words in (("older.so", ["LibTorch " + "1" * len(version), ours, "was built for"]), ("headers.so", ["headers 9", ours]),
                        ("plain.so", ["no stamp", "DTRAIN_PLUGIN"]), ("cut.so", ["cannot be opened"]), ("text.so", ["no stamp"]),
                        ("empty.so", ["no stamp"]), ("missing.so", ["cannot be opened", "No such file"]), (".", ["is a folder"])):
        if name in files:
            (folder / name).write_bytes(files[name])
        refused(binary, 2, 2, [name, *words], "--plugin", name, *COMMON, cwd=folder)
    refused(binary, 1, 2, ["mine_mlp", "each plug-in once"], "--plugin", plugin, "--plugin", plugin, *COMMON, cwd=folder)
    refused(binary, 1, 2, ["--loss", "focal"], "--loss", "focal", *COMMON, cwd=folder)


def main():
    warnings.filterwarnings("ignore")
    binary, plugin, folder = map(Path, sys.argv[1:4])
    folder.mkdir(exist_ok=True)
    features, classes = 6, 3
    rng = np.random.default_rng(1)
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"], file["y"] = rng.standard_normal((120, features), np.float32), rng.integers(0, classes, 120)
    run(binary, 1, "stage", "rows", "--from", "rows.h5", "--inputs", "/x", "--targets", "/y", cwd=folder)
    operators_train(binary, folder, plugin, features, classes)
    models_and_losses_train(binary, folder, plugin)
    checkpoints_name_no_code(binary, folder, plugin)
    others_are_refused(binary, folder, plugin)


if __name__ == "__main__":
    main()
