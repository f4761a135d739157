"""A network that gives a class to each pixel trains on staged arrays of images and masks, on every mesh, as PyTorch does; what does
not fit is refused in one sentence.

    places.py BINARY
"""

import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))
from array_files import write_arrays  # noqa: E402
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses  # noqa: E402
from export_model import export_model  # noqa: E402

SAMPLES, CLASSES, EXTENT, STEPS = 60, 4, 8, 3


class UNet(nn.Module):
    """One step down and one up, with the early features beside."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(8, 6, 4, 2, 1), nn.Conv2d(12, CLASSES, 1)

    def forward(self, x):  # [N, 3, H, W] -> [N, classes, H, W]
        early = F.relu(self.first(x))
        late = F.relu(self.up(F.relu(self.down(early))))
        return self.last(torch.cat([early, late], 1))


class OneClass(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3 * EXTENT * EXTENT, CLASSES)

    def forward(self, x):
        return self.fc(x.flatten(1))


def made(kind):
    torch.manual_seed(6)
    return kind()


def write(folder):
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (SAMPLES, 3, EXTENT, EXTENT), np.uint8)
    masks = (images.astype(int).sum(1) // 192).astype(np.uint8)  # 0 to 3
    values = {"x": images, "masks": masks, "small": masks[:, ::2, ::2].copy(), "real": masks + np.float32(0.5), "one": masks[:, 0, 0],
              "stacked": masks[:, None], "negative": np.where(np.arange(SAMPLES)[:, None, None] == 7, -1, masks.astype(int)),
              "wide": masks[:, :, :4].copy()}
    write_arrays(folder, values)
    return values


def split(folder, part):
    facts = json.loads((folder / "data/staged/masks/dataset.json").read_text())
    assert facts["target_shape"] == [EXTENT, EXTENT] and len(facts["classes"]) == CLASSES, facts
    (shard,) = facts["splits"][part]["shards"]
    with h5py.File(folder / "data/staged/masks" / shard["file"]) as file:
        mean, deviation = (torch.tensor(facts[key]).double().view(-1, 1, 1) for key in ("mean", "std"))
        return (torch.from_numpy(file["inputs"][:]).double() / 255 - mean) / deviation, torch.from_numpy(file["targets"][:])


def stages_all_kinds(binary, folder):
    for name, source, inputs, targets in (("masks", "set.h5", "/x", "/masks"), ("zipped", "set.npz", "x", "masks"),
                                          ("files", "npy", "x.npy", "masks.npy")):
        run(binary, 1, "stage", name, "--from", source, "--inputs", inputs, "--targets", targets, cwd=folder)
    facts = [json.loads((folder / "data/staged" / name / "dataset.json").read_text()) for name in ("masks", "zipped", "files")]
    for other in facts[1:]:
        assert all(other[key] == facts[0][key] for key in ("task", "shape", "target_shape", "classes", "mean", "std")), other


def in_pytorch(folder):
    """Losses of the steps, the module after them, and its accuracy of all pixels of the validation."""
    images, masks = split(folder, "train")
    module = made(UNet).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(images), masks)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    images, masks = split(folder, "validation")
    with torch.no_grad():
        return losses, module, (module(images).argmax(1) == masks).double().mean().item(), len(split(folder, "train")[0])


def trains(binary, folder):
    export_model(made(UNet), torch.randn(4, 3, EXTENT, EXTENT), folder / "unet.pt2")
    losses, module, accuracy, batch = in_pytorch(folder)
    common = ("--model", "unet.pt2", "--dataset", "masks", "--global-batch", batch, "--micro-batches", 4, "--limit-steps", STEPS,
              "--epochs", STEPS, "--precision", "fp64", "--threads", 1, "--quiet", "--optimizer", "sgd", "--learning-rate", 0.3,
              "--augment", "off")
    bits = {}
    for name, mesh, *options in (("one", "data=1"), ("data", "data=2"), ("pipe", "pipe=2"), ("both", "data=2,pipe=2"),
                                 ("bits", "data=1", "--reproducible"), ("bits-both", "data=2,pipe=2", "--reproducible")):
        run(binary, ranks_of(mesh), "--mesh", mesh, "--name", name, *common, *options, cwd=folder)
        with h5py.File(folder / "runs" / name / "results.h5") as results:
            assert np.allclose(step_losses(results), losses, rtol=1e-12), (name, step_losses(results), losses)
            assert abs(results["epochs"][-1]["validation_accuracy"] - accuracy) < 1e-12, (name, accuracy)
        bits[name] = checkpoint_tensors(folder / f"runs/{name}/checkpoints/step-{STEPS:08}")
        for key, value in module.state_dict().items():
            assert np.allclose(bits[name][key], value.numpy(), rtol=1e-10, atol=1e-12), (name, key)
    assert all(np.array_equal(bits["bits-both"][key], value) for key, value in bits["bits"].items())
    return module


def says_a_class_for_each_pixel(binary, folder, module):
    run(binary, 2, "evaluate", "runs/one/checkpoints/last", "--split", "validation", "--predictions", "said.h5", "--mesh", "pipe=2", cwd=folder)
    images, masks = split(folder, "validation")
    with h5py.File(folder / "said.h5") as file, torch.no_grad():
        assert np.array_equal(file["predicted"][:], module(images).argmax(1).numpy()) and np.array_equal(file["targets"][:], masks)
        assert file["confusion"][:].sum() == masks.numel() and np.allclose(file["probabilities"][:].sum(1), 1)
    run(binary, 2, "predict", "runs/one/checkpoints/last", "--from", "npy/x.npy", "--output", "new.h5", cwd=folder)
    with h5py.File(folder / "new.h5") as file:
        assert file["predicted"].shape == (SAMPLES, EXTENT, EXTENT)
    refused(binary, 1, 2, ["class for each place", "OUT.h5"], "predict", "runs/one/checkpoints/last", "--from", "npy/x.npy", "--output",
            "new.csv", cwd=folder)


def refuses(binary, folder):
    def stage(name, targets):
        run(binary, 1, "stage", name, "--from", "set.h5", "--inputs", "/x", "--targets", targets, cwd=folder)

    for targets, words in (("/real", ["/real", f"[n, {EXTENT}, {EXTENT}] that are no whole numbers"]),
                           ("/stacked", [f"[n, 1, {EXTENT}, {EXTENT}]", "[n, H, W]"]), ("/negative", ["class -1", "sample 7"])):
        refused(binary, 1, 3, words, "stage", "wrong", "--from", "set.h5", "--inputs", "/x", "--targets", targets, cwd=folder)
    export_model(made(OneClass), torch.randn(4, 3, EXTENT, EXTENT), folder / "one_class.pt2")
    whole, two = f"[2, {CLASSES}, {EXTENT}, {EXTENT}]", f"[2, {EXTENT}, {EXTENT}]"
    for name, targets in (("small", "/small"), ("wide", "/wide"), ("one_each", "/one")):
        stage(name, targets)
    for model, dataset, words in (("unet.pt2", "small", [whole, "[2, 4, 4]", f"[2, {CLASSES}, 4, 4]"]),
                                  ("unet.pt2", "wide", [whole, f"[2, {EXTENT}, 4]"]), ("unet.pt2", "one_each", [whole, "targets [2]"]),
                                  ("one_class.pt2", "masks", [f"[2, {CLASSES}]", two]), ("mlp", "masks", [f"[2, {CLASSES}]", two, ".pt2"])):
        refused(binary, 2, 2, ["--model", *words], "--model", model, "--dataset", dataset, "--name", "refused", cwd=folder)
        assert not (folder / "runs/refused").exists(), "a refused run left a folder"
    for options, words in ((("--augment", "flip"), ["--augment flip", "leave the targets"]),
                           (("--class-weights", "balanced"), ["--class-weights balanced"])):
        refused(binary, 1, 2, words, "--model", "unet.pt2", "--dataset", "masks", *options, cwd=folder)
    facts = folder / "data/staged/wide/dataset.json"
    sound = json.loads(facts.read_text())
    for shape in ([EXTENT], [EXTENT, 0], [2 ** 40, 2 ** 40], [EXTENT, 4, 1], [4, EXTENT], "all"):
        facts.write_text(json.dumps({**sound, "target_shape": shape}))
        refused(binary, 1, 3 if shape != [4, EXTENT] else 2, ["target" if shape != [4, EXTENT] else "outputs"], "--model", "unet.pt2",
                "--dataset", "wide", cwd=folder)


def main():
    binary = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        stages_all_kinds(binary, folder)
        module = trains(binary, folder)
        says_a_class_for_each_pixel(binary, folder, module)
        refuses(binary, folder)


if __name__ == "__main__":
    main()
