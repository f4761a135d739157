"""Networks drawn by chance (random_networks.py) train in dtrain as in PyTorch, and on two ranks as on one.

    random_programs.py BINARY [--count K] [--seed N|dated] [--also SEED...] [--limit-s S] [--parts NAME...]     seeds N, N + 1, ...

All in fp64. Beside PyTorch, on one rank with one micro-batch and without dropout: loss, gradient norm, every gradient and the
buffers after a step, and the validation loss. Against one rank, with dropout: losses, weights and buffers of two steps on
data=2, on pipe=2 and, where there is something to cut, on tensor=2, with options drawn by chance, and the bits where
--reproducible is one of them. `--seed dated`: other seeds each day, so that a short test tries many in time. A network that
fails prints its seed and its parts.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import torch

import random_networks
from agreement import gap, split
from dtrain_run import checkpoint_tensors, run, step_losses
from export_model import NotExportable, export_model, mean_loss

BESIDE_PYTORCH = 1e-6  # both in fp64; sums in other orders differ by far less
ACROSS_MESHES = 1e-8  # after two steps, which multiply what is left of the first
SMALLEST = 1e-6  # of the largest gradient: a bias before BatchNorm has one of rounding only
SAMPLES = 60
BATCH, MICRO_BATCHES, STEPS = 23, 4, 2  # which divide nothing
FIRST_DATED, DATED_DAYS = 1000, 200  # which seeds the days have
# Ways of running that must not change a result.
WAYS = ((), ("--recompute", "full"), ("--reproducible",), ("--kernels", "libtorch"), ("--reproducible", "--recompute", "full"), ("--pipeline", "gpipe"))


# How a network is refused that the ranks of a tensor axis cannot share.
NOT_CUT = ("there are no two linear layers", "fewer than the ranks of the tensor axis", "cannot be cut into more parts")


class Differs(AssertionError):
    """A network of which dtrain computes something else; the text says what."""


def stage(binary, folder):
    generator = np.random.default_rng(1)
    classes = np.arange(SAMPLES) % random_networks.CLASSES
    np.savez(folder / "image.npz", x=generator.integers(0, 256, (SAMPLES, *random_networks.IMAGE), np.uint8), y=classes)
    np.savez(folder / "series.npz", x=generator.standard_normal((SAMPLES, random_networks.LENGTH, random_networks.FEATURES), np.float32), y=classes)
    for name in ("image", "series"):
        run(binary, 1, "stage", name, "--from", f"{name}.npz", "--inputs", "x", "--targets", "y", cwd=folder)
    run(binary, 1, "stage", "text", "--format", "synthetic", "--task", "text_classification", "--samples", SAMPLES, "--vocab-size",
        random_networks.WORDS, "--max-length", random_networks.LENGTH, cwd=folder)


class Case:
    """A network, the file that it is exported to, and where it trains."""

    def __init__(self, binary, folder, seed, parts):
        self.binary, self.folder, self.seed, self.parts = binary, folder, seed, parts
        self.drawn = self.draw(dropout=True)
        self.cut = 0  # 1: over a tensor axis, too

    def draw(self, dropout):
        return random_networks.network(self.seed, dropout, self.parts)

    def export(self, name, dropout):
        drawn = self.draw(dropout)
        export_model(drawn.module, drawn.example(), self.folder / name, loss="cross_entropy")
        return drawn.module

    def train(self, name, file, ranks, batch, micro_batches, steps, rate, *options):
        run(self.binary, ranks, "--model", file, "--dataset", self.drawn.data, "--precision", "fp64", "--name", name, "--global-batch",
            batch, "--micro-batches", micro_batches, "--limit-steps", steps, "--epochs", steps, "--optimizer", "sgd", "--momentum", 0, "--weight-decay", 0,
            "--schedule", "constant", "--learning-rate", rate, "--grad-clip", 0, "--warmup-steps", 0, "--augment", "off", "--threads", 1,
            "--quiet", "--overwrite", *options, cwd=self.folder, limit_s=120)
        with h5py.File(self.folder / "runs" / name / "results.h5") as results:
            return (step_losses(results), results["ranks/00000/steps"]["gradient_norm"], results["epochs"][-1]["validation_loss"],
                    checkpoint_tensors(self.folder / "runs" / name / "checkpoints" / f"step-{steps:08}"))

    def evaluates_by_batch(self):
        """BatchNorm without running statistics uses those of the samples at hand in evaluation, too."""
        return any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and not part.track_running_stats for part in self.drawn.module.modules())

    def beside_pytorch(self):
        """One step of plain sgd at rate 1: the difference of the weights is the gradient. The largest difference."""
        module = self.export("plain.pt2", dropout=False)
        before = {key: value.detach().clone().double() for key, value in module.state_dict().items()}
        data = {part: split(self.folder, _Kind(self.drawn.data), part, random_networks.LENGTH) for part in ("train", "validation")}
        inputs, targets = data["train"]
        loss, norm, validation, tensors = self.train("plain", "plain.pt2", 1, len(targets), 1, 1, 1.0)
        module = module.double().train()
        expected = mean_loss("cross_entropy", module(inputs), targets)
        expected.backward()
        gradients = {key: value.grad if value.grad is not None else torch.zeros_like(value) for key, value in module.named_parameters()}
        worst = {"loss": gap(loss, [expected.item()]),
                 "gradient norm": gap(norm, [torch.nn.utils.get_total_norm(list(gradients.values())).item()])}
        largest = max(value.abs().max().item() for value in gradients.values())
        for key, gradient in gradients.items():
            worst[f"gradient of {key}"] = gap(before[key] - torch.from_numpy(tensors[key]).double(), gradient, SMALLEST * largest)
        for key, value in module.named_buffers():
            if key in tensors:
                worst[f"buffer {key}"] = gap(tensors[key], value, 1e-3)
        module.load_state_dict({key: torch.from_numpy(np.asarray(value)) for key, value in tensors.items()}, strict=True)
        with torch.no_grad():
            if not self.evaluates_by_batch():
                worst["validation loss"] = gap([validation], [mean_loss("cross_entropy", module.eval()(data["validation"][0]), data["validation"][1]).item()])
        return self.judge(worst, BESIDE_PYTORCH, "beside PyTorch")

    def across_meshes(self):
        """The largest difference of two ranks from one."""
        self.export("net.pt2", dropout=True)
        way = random.Random(self.seed).choice(WAYS)
        first = self.train("one", "net.pt2", 1, BATCH, MICRO_BATCHES, STEPS, 0.05, *(word for word in way if word == "--reproducible"))
        largest = 0.0
        for mesh in ("data=2", "pipe=2", "tensor=2"):
            try:
                losses, norms, validation, tensors = self.train(mesh, "net.pt2", 2, BATCH, MICRO_BATCHES, STEPS, 0.05, "--mesh", mesh, *way)
            except AssertionError as error:
                if mesh == "tensor=2" and any(words in str(error) for words in NOT_CUT):
                    continue
                raise
            self.cut += mesh == "tensor=2"
            worst = {"losses": gap(losses, first[0]), "gradient norms": gap(norms, first[1])}
            if not self.evaluates_by_batch():
                worst["validation loss"] = gap([validation], [first[2]])
            for key, value in first[3].items():
                worst[key] = gap(tensors[key], value, 1e-2)
            where = " ".join((mesh, *way))
            largest = max(largest, self.judge(worst, ACROSS_MESHES, where))
            if "--reproducible" in way and mesh != "tensor=2":  # where sums are in another order
                other = [key for key, value in first[3].items() if value.tobytes() != tensors[key].tobytes()]
                if other:
                    raise Differs(f"{where}: other bits of {', '.join(other[:3])}")
        return largest

    def judge(self, worst, limit, where):
        key = max(worst, key=lambda name: np.inf if np.isnan(worst[name]) else worst[name])
        if not worst[key] <= limit:
            others = sum(not value <= limit for value in worst.values())
            raise Differs(f"{where}: {key} differs by {worst[key]:.2g}, and {others - 1} others of {len(worst)}")
        return worst[key]


class _Kind:
    """What agreement.split() asks of a program."""

    loss = "cross_entropy"

    def __init__(self, data):
        self.data = data


def tried(binary, folder, seed, parts, counts):
    """Whether a network is as it should be; one that PyTorch itself cannot export counts as none."""
    begun = time.monotonic()
    case = Case(binary, folder, seed, parts)
    names = ", ".join(case.drawn.parts)
    try:
        plain = case.beside_pytorch()
        meshes = case.across_meshes()
    except NotExportable as error:
        print(f"seed {seed}: not exported: {error}", flush=True)
        counts["not exported"] += 1
        return True
    except AssertionError as error:  # of run() as well
        print(f"seed {seed}, {case.drawn.data}: {error}\n  parts: {names}", flush=True)
        return False
    counts.update(set(case.drawn.parts))
    counts["cut over the tensor axis"] += case.cut
    print(f"seed {seed}, {case.drawn.data}: PyTorch {plain:.0e}, two ranks {meshes:.0e}, {time.monotonic() - begun:.1f} s: {names}", flush=True)
    return True


def first_seed(text, count):
    return FIRST_DATED + int(time.time() // 86400) % DATED_DAYS * count if text == "dated" else int(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--seed", default="dated", help="a number, or dated")
    parser.add_argument("--also", type=int, nargs="*", default=[], help="more seeds: those that have found a fault")
    parser.add_argument("--limit-s", type=float, default=np.inf, help="begin no network after so long")
    parser.add_argument("--parts", nargs="*", help="draw only these")
    given = parser.parse_args()
    torch.set_num_threads(1)
    first = first_seed(given.seed, given.count)
    seeds = [*given.also, *range(first, first + given.count)]
    print(f"seeds {' '.join(map(str, given.also))} {first} to {first + given.count - 1}", flush=True)
    begun, counts, failed, done = time.monotonic(), Counter(), [], 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        stage(given.binary, folder)
        for seed in seeds:
            if time.monotonic() - begun > given.limit_s:
                break
            done += 1
            if not tried(given.binary, folder, seed, given.parts, counts):
                failed.append(seed)
    print(f"{done} networks in {time.monotonic() - begun:.0f} s; failed: {failed or 'none'}; " + json.dumps(counts.most_common()))
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
