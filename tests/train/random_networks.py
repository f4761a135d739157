"""Networks of PyTorch drawn by chance, and exported, so that dtrain trains what no test has written down."""

import json
import random
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "jobs"))
from export_model import export_model  # noqa: E402
from random_cases import DATASETS, MESHES, Case, draw_batch, draw_how, draw_mesh, update_rule  # noqa: E402

ACTIVATIONS = (nn.ReLU, nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Hardtanh)


class Added(nn.Module):
    """A way around some layers."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Gated(nn.Module):
    """Two ways, of which one opens the other."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x):
        return torch.sigmoid(self.one(x)) * self.other(x)


class Joined(nn.Module):
    """Two ways side by side along dim 1."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x):
        return torch.cat([self.one(x), self.other(x)], 1)


class Halves(nn.Module):
    """A gated linear unit, by chunks of the last dim."""

    def forward(self, x):
        one, other = x.chunk(2, -1)
        return one * torch.sigmoid(other)


class First(nn.Module):
    """The sequence that a recurrent layer returns beside its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class MeanOfWords(nn.Module):
    """Scores of a text, from the mean over its words, padding left out: how far others of its batch are padded changes nothing."""

    def __init__(self, embedding, layers, head):
        super().__init__()
        self.embedding, self.layers, self.head = embedding, layers, head

    def forward(self, ids):
        seen = (ids != 0).to(self.embedding.weight.dtype).unsqueeze(2)
        return self.head((self.layers(self.embedding(ids)) * seen).sum(1) / seen.sum(1))


class Slopes(nn.Module):
    """Sums of rows [N, width] by several layers, so that the gradient of an error with the same slope everywhere does not depend
    on the parameters: updates may then come late and in any order, and lead to the same place."""

    def __init__(self, width, extents):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, extent) for extent in extents)

    def forward(self, x):
        return sum((layer(x) if number % 2 else layer(torch.tanh(x))).sum(1, keepdim=True) for number, layer in enumerate(self.layers))


class Draw:
    """Makes a network; `pairs`: whether it has two linear layers that tensor ranks share."""

    def __init__(self, chance):
        self.chance, self.pairs, self.layers, self.batch_norm = chance, False, 0, False

    def pick(self, *choices):
        return self.chance.choice(choices)

    def sometimes(self, share):
        return self.chance.random() < share

    def activation(self):
        return self.chance.choice(ACTIVATIONS)()

    def count(self, layer):
        self.layers += 1
        return layer

    def pair(self, width):
        self.pairs, self.layers = True, self.layers + 2
        hidden = 2 * self.chance.randint(2, 20)
        return nn.Sequential(nn.Linear(width, hidden), self.activation(), nn.Linear(hidden, width))

    def row_norm(self, width):
        if self.sometimes(0.25):
            self.batch_norm = True
            return nn.BatchNorm1d(width)
        return nn.LayerNorm(width)

    def rows(self, width, outputs):
        """Of [N, width]."""
        layers = []
        for _ in range(self.chance.randint(1, 4)):
            kind = self.pick("linear", "linear", "added", "pair", "gated", "joined", "halves", "dropout", "norm")
            if kind == "linear":
                wide = self.chance.randint(3, 60)
                layers += [self.count(nn.Linear(width, wide, bias=self.sometimes(0.8))), self.activation()]
                width = wide
            elif kind == "added":
                layers += [Added(self.row_norm(width), self.count(nn.Linear(width, width)), self.activation())]
            elif kind == "pair":
                layers += [self.pair(width) if self.sometimes(0.5) else Added(self.pair(width))]
            elif kind == "gated":
                layers += [Gated(self.count(nn.Linear(width, 24)), self.count(nn.Linear(width, 24)))]
                width = 24
            elif kind == "joined":
                layers += [Joined(self.count(nn.Linear(width, 9)), nn.Sequential(self.count(nn.Linear(width, 7)), self.activation()))]
                width = 16
            elif kind == "halves":
                layers += [self.count(nn.Linear(width, 2 * 13)), Halves()]
                width = 13
            elif kind == "dropout":
                layers += [nn.Dropout(self.pick(0.1, 0.5))]
            else:
                layers += [self.row_norm(width)]
        return nn.Sequential(*layers, self.count(nn.Linear(width, outputs)))

    def image_norm(self, channels):
        if self.sometimes(0.4):
            self.batch_norm = True
            return nn.BatchNorm2d(channels)
        return nn.GroupNorm(self.pick(1, channels), channels)

    def convolution(self, channels, wide, stride=1):
        kernel = self.pick(1, 3, 3, 5)
        return self.count(nn.Conv2d(channels, wide, kernel, stride=stride, padding=kernel // 2, bias=self.sometimes(0.6)))

    def images(self, shape, outputs):
        """Of [N, C, H, W]."""
        channels, side, layers = shape[0], min(shape[1:]), []
        for _ in range(self.chance.randint(1, 4)):
            kind = self.pick("conv", "conv", "strided", "added", "depthwise", "joined", "pool", "norm", "gated")
            if kind in ("conv", "strided"):
                wide, stride = self.chance.randint(3, 20), 2 if kind == "strided" and side > 4 else 1
                layers += [self.convolution(channels, wide, stride)]
                layers += [self.image_norm(wide)] if self.sometimes(0.4) else []
                layers += [self.activation()]
                channels, side = wide, side // stride
            elif kind == "added":
                layers += [Added(self.convolution(channels, channels), self.image_norm(channels), self.activation(),
                                 self.convolution(channels, channels)), self.activation()]
            elif kind == "depthwise":
                layers += [self.count(nn.Conv2d(channels, channels, 3, padding=1, groups=channels)), self.activation()]
            elif kind == "joined":
                layers += [Joined(self.convolution(channels, 5), self.convolution(channels, 6))]
                channels = 11
            elif kind == "pool" and side > 4:
                layers += [self.pick(nn.MaxPool2d, nn.AvgPool2d)(2)]
                side //= 2
            elif kind == "gated":
                squeezed = nn.Sequential(nn.AdaptiveAvgPool2d(1), self.count(nn.Conv2d(channels, channels, 1)))
                layers += [Gated(squeezed, self.convolution(channels, channels))]
            else:
                layers += [self.image_norm(channels)]
        pooled = self.pick(1, 2)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(pooled), nn.Flatten(), self.rows(channels * pooled * pooled, outputs))

    def words(self, vocabulary, outputs):
        """Layers of [N, T, width] that see no later word, between an embedding and a layer to `outputs`."""
        width, layers = self.pick(8, 12, 16), []
        embedding = self.count(nn.Embedding(vocabulary, width, padding_idx=self.pick(0, None)))
        for _ in range(self.chance.randint(1, 3)):
            kind = self.pick("attention", "attention", "lstm", "gru", "pair", "norm", "dropout", "gated")
            if kind == "attention":
                heads = self.pick(1, 2, 4)
                layers += [Added(nn.LayerNorm(width), self.count(Attention(width, heads)))]
                self.pairs = self.pairs or heads > 1
            elif kind in ("lstm", "gru"):
                layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
                layers += [self.count(First(layer(width, width, self.pick(1, 2), batch_first=True)))]
            elif kind == "pair":
                layers += [Added(nn.LayerNorm(width), self.pair(width))]
            elif kind == "dropout":
                layers += [nn.Dropout(0.2)]
            elif kind == "gated":
                layers += [Gated(self.count(nn.Linear(width, width)), self.count(nn.Linear(width, width)))]
            else:
                layers += [nn.LayerNorm(width)]
        return embedding, nn.Sequential(*layers), self.count(nn.Linear(width, outputs, bias=self.sometimes(0.5)))

    def text(self, vocabulary, outputs):
        """Of ids [N, T], padded with 0."""
        return MeanOfWords(*self.words(vocabulary, outputs))

    def running_text(self, vocabulary):
        """Of ids [N, T], to the word after each."""
        embedding, layers, head = self.words(vocabulary, vocabulary)
        if self.sometimes(0.4):
            head.weight = embedding.weight
        return nn.Sequential(embedding, layers, head)


def build(seed, dataset, vocabulary):
    """The network of a seed, made for a dataset, and the Draw that made it. Its layers do not depend on the vocabulary."""
    data, drawn = DATASETS[dataset], Draw(random.Random(f"network {seed}"))
    torch.manual_seed(seed)
    outputs = data.classes or 1
    if data.kind == "far":
        return Slopes(data.elements, [drawn.pick(1, 3, 8, 13) for _ in range(drawn.pick(1, 2, 3))]), drawn
    if data.kind == "book":
        return drawn.running_text(vocabulary), drawn
    if data.kind == "documents":
        return drawn.text(vocabulary, outputs), drawn
    if data.kind == "images":
        return drawn.images(data.shape, outputs), drawn
    rows = drawn.rows(data.elements, outputs)
    return nn.Sequential(nn.Flatten(), rows) if len(data.shape) > 1 else rows, drawn


def export(case, folder):
    """Writes the program that a case trains into FOLDER, where its dataset is staged; once."""
    path = folder / case.what["model"]
    if path.exists():
        return
    data = DATASETS[case.what["dataset"]]
    info = json.loads((folder / "data/staged" / case.what["dataset"] / "dataset.json").read_text())
    vocabulary = len((info.get("tokenizer") or {}).get("vocabulary", []))
    network, _ = build(case.what["NETWORK"], case.what["dataset"], vocabulary)
    example = torch.randn(4, *data.shape) if data.shape else torch.randint(1, vocabulary, (4, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_model(network, example, path, loss={"values": "mse", "far": "mae"}.get(data.kind, "cross_entropy"),
                     sequence_dim=1 if data.kind == "documents" else None)


def draw_networks(seed, ulfm):
    """A drawn network in lock-step, at times with its state in shards."""
    chance = random.Random(f"networks {seed}")
    pick = chance.choice
    dataset = pick([name for name, data in DATASETS.items() if data.kind not in ("pairs", "far", "sites")])
    data = DATASETS[dataset]
    _, drawn = build(seed, dataset, 9)
    meshes = [mesh for mesh in MESHES if mesh[1] <= max(1, drawn.layers // 3) and mesh[2] <= (2 if drawn.pairs else 1)]
    mesh = draw_mesh(chance, meshes)
    batch, pieces = draw_batch(chance, data, mesh[0] * mesh[1], 4 if drawn.batch_norm else 1, 24)
    epochs = pick([1, 2])
    steps = min(epochs * -(-data.samples // batch), pick([1, 2, 3, 4]))
    if drawn.batch_norm:
        steps = min(steps, max(data.samples // batch, 1))
    what = {"model": f"network-{seed}.pt2", "NETWORK": seed, "dataset": dataset, "global-batch": batch, "micro-batches": pieces,
            "epochs": epochs, "limit-steps": steps, "seed": chance.randint(1, 10**6), **update_rule(chance)}
    if drawn.batch_norm:
        what |= {"HAS_BATCH_NORM": True, "learning-rate": min(what["learning-rate"], 0.003)}
    if data.kind == "values":
        what["loss"] = "mse"
    precision = chance.choices(["fp64", "fp32", "bf16"], [9, 6, 1])[0]
    how = draw_how(chance, lambda virtual=1: meshes, mesh, precision, pieces, steps, ulfm)
    if mesh[0] > 1 and chance.random() < 0.2:
        how["strategy"] = pick(["zero1", "zero2", "zero3"])
    return Case(what, how)
