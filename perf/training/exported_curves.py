"""Training curves of exported programs beside PyTorch's own loop, which gets the same weights and the same batches in the same order:
torchvision's resnet18 on CIFAR-10, and a DistilBERT of two layers on IMDB. Dropout is off: its masks differ between the two.

    python perf/training/exported_curves.py [image|text] [--steps 150] [--data-root data/staged]

The datasets are those of `data/fetch.sh cifar10` and `data/fetch.sh imdb`. Adds a CSV with the losses of each step to perf/results/exported.
With --precision fp32 the order of sums makes a difference that training multiplies from step to step; fp64 shows that it is rounding.
"""

import argparse
import csv
import json
import pathlib
import sys
import tempfile

import h5py
import numpy
import runs
import sampler
import torch
from torch import nn

sys.path[:0] = [str(runs.TOP / "jobs"), str(runs.TOP / "tests" / "support")]
from dtrain_run import step_losses  # noqa: E402
from export_model import export_model  # noqa: E402

BATCH = 64
RATE, MOMENTUM = 0.02, 0.9
LONGEST = 64  # words of a text


def resnet18(facts):
    from torchvision.models import resnet18 as make
    return make(num_classes=len(facts["classes"])), torch.randn(4, *facts["shape"])


def distilbert(facts):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    class Classifier(DistilBertForSequenceClassification):
        def forward(self, ids):
            return super().forward(input_ids=ids, attention_mask=(ids != 0).long()).logits

    words = len(facts["tokenizer"]["vocabulary"])
    config = DistilBertConfig(vocab_size=words, max_position_embeddings=LONGEST, n_layers=2, n_heads=4, dim=128, hidden_dim=512,
                              num_labels=len(facts["classes"]), dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
    return Classifier(config), torch.randint(4, words, (4, 16))


class Images:
    lengths = None

    def __init__(self, facts, shards):
        self.images = numpy.concatenate([shard["inputs"][:] for shard in shards])
        self.targets = torch.from_numpy(numpy.concatenate([shard["targets"][:] for shard in shards]))
        self.mean, self.deviation = (torch.tensor(facts[key]).view(-1, 1, 1) for key in ("mean", "std"))

    def batch(self, ids, dtype):
        images = torch.from_numpy(self.images[ids]).to(dtype) / 255
        return (images - self.mean.to(dtype)) / self.deviation.to(dtype), self.targets[ids]


class Texts:
    def __init__(self, facts, shards):
        self.texts = []
        for shard in shards:
            tokens, offsets = shard["tokens"][:], shard["offsets"][:]
            self.texts += [tokens[begin:min(end, begin + LONGEST)] for begin, end in zip(offsets, offsets[1:])]
        self.lengths = [len(text) for text in self.texts]
        self.targets = torch.from_numpy(numpy.concatenate([shard["targets"][:] for shard in shards]))

    def batch(self, ids, _):
        padded = torch.zeros(len(ids), max(1, *(self.lengths[sample] for sample in ids)), dtype=torch.int64)
        for row, sample in enumerate(ids):
            padded[row, :self.lengths[sample]] = torch.from_numpy(self.texts[sample])
        return padded, self.targets[ids]


CASES = {"image": ("torchvision_resnet18", "cifar10", resnet18, Images), "text": ("hugging_face_distilbert", "imdb", distilbert, Texts)}


def link_dataset(source, folder):
    """The training split of the dataset, with texts cut to LONGEST: shards as they are."""
    facts = json.loads((source / "dataset.json").read_text())
    facts["splits"] = {"train": facts["splits"]["train"]}
    if facts["tokenizer"]:
        facts["shape"] = [min(facts["shape"][0], LONGEST)]
    folder.mkdir()
    for split in facts["splits"].values():
        for shard in split["shards"]:
            (folder / shard["file"]).symlink_to((source / shard["file"]).resolve())
    (folder / "dataset.json").write_text(json.dumps(facts))
    return facts


def in_pytorch(module, data, order, steps, dtype):
    module = module.to(dtype).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for step in range(steps):
        inputs, targets = data.batch(order[step * BATCH:(step + 1) * BATCH], dtype)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def in_dtrain(folder, dataset, given):
    command = ["mpirun", "-np", str(given.ranks), runs.program(), "--model", "net.pt2", "--dataset", dataset, "--precision", given.precision,
               "--global-batch", BATCH, "--micro-batches", 1 if given.ranks == 1 else given.ranks, "--limit-steps", given.steps, "--epochs", 1,
               "--optimizer", "sgd", "--learning-rate", RATE, "--momentum", MOMENTUM, "--weight-decay", 0, "--schedule", "constant",
               "--grad-clip", 0, "--augment", "off", "--checkpoint-every", "end", "--threads", 1, "--seed", 1, "--name", "run", "--quiet"]
    runs.run(list(map(str, command)), cwd=folder)
    with h5py.File(folder / "runs/run/results.h5") as results:
        return step_losses(results).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("case", choices=CASES, nargs="?", default="image")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--ranks", type=int, default=1, help="of dtrain; BatchNorm's statistics are of one rank's samples")
    parser.add_argument("--precision", choices=("fp32", "fp64"), default="fp64")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "exported")
    given = parser.parse_args()
    torch.set_num_threads(1)
    name, dataset, make, kind = CASES[given.case]
    source = given.data_root.resolve() / dataset
    if not (source / "dataset.json").exists():
        sys.exit(f"perf: {source} is not staged; run data/fetch.sh {dataset}, or name another --data-root")
    with tempfile.TemporaryDirectory(prefix="dtrain-curves-") as scratch:
        folder = pathlib.Path(scratch)
        facts = link_dataset(source, folder / dataset)
        shards = [h5py.File(folder / dataset / shard["file"]) for shard in facts["splits"]["train"]["shards"]]
        data = kind(facts, shards)
        torch.manual_seed(1)
        module, example = make(facts)
        export_model(module, example, folder / "net.pt2", sequence_dim=1 if given.case == "text" else None, golden=False)
        order = sampler.training_order(len(data.targets), BATCH, 1, 1, data.lengths)
        ours = in_dtrain(folder, dataset, given)
        theirs = in_pytorch(module, data, order, given.steps, torch.float64 if given.precision == "fp64" else torch.float32)
    gaps = [abs(one - other) / abs(other) for one, other in zip(ours, theirs, strict=True)]
    given.out.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(f"{runs.free_stem(given.out, f'curve-{name}-{given.precision}')}.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.write(f"# machine: {runs.machine()}\n# command: perf/training/exported_curves.py {' '.join(sys.argv[1:])}\n"
                   f"# {name} on {dataset}: loss of each batch of {BATCH}, sgd, rate {RATE}, momentum {MOMENTUM}, {given.precision}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "dtrain", "pytorch"])
        writer.writerows((step, f"{one:.9g}", f"{other:.9g}") for step, (one, other) in enumerate(zip(ours, theirs), 1))
    tenth = max(1, len(ours) // 10)
    print(f"{name}, {given.precision}: {len(ours)} steps; mean loss of the first tenth {sum(ours[:tenth]) / tenth:.4f}, of the last "
          f"{sum(ours[-tenth:]) / tenth:.4f} (PyTorch {sum(theirs[-tenth:]) / tenth:.4f}); relative difference of the first step "
          f"{gaps[0]:.1e}, largest {max(gaps):.1e}\nwritten: {path}")


if __name__ == "__main__":
    main()
