"""Parts of random networks that take rows (F,) or texts (T, words), and those that make one shape of another."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from random_parts import EVERYWHERE, Do, divisor, fitted, parameter


def row_linear(chance, shape):
    out = chance.randint(2, 14)
    made = chance.choice((lambda: nn.Linear(shape[0], out), lambda: nn.Linear(shape[0], out, bias=False),
                          lambda: Do(lambda m, x: torch.addmm(m.bias, x, m.weight.t()), weight=parameter(out, shape[0]), bias=parameter(out)),
                          lambda: Do(lambda m, x: m.inner[0](x, x.tanh()), nn.Bilinear(shape[0], shape[0], out))))()
    return made, (out,)


def row_norm(chance, shape):
    size = shape[0]
    return chance.choice((lambda: nn.BatchNorm1d(size), lambda: nn.BatchNorm1d(size, affine=False), lambda: nn.LayerNorm(size), lambda: nn.RMSNorm(size, eps=1e-3),
                          lambda: nn.Sequential(nn.BatchNorm1d(size, track_running_stats=chance.yes()), nn.ReLU(chance.yes())),
                          lambda: nn.GroupNorm(divisor(chance, size), size)))(), shape


def row_views(chance, shape):
    size = shape[0]
    made = chance.choice((
        lambda: Do(lambda _, x: torch.cat([x, x.square()], 1)), lambda: Do(lambda _, x: (x[:, :, None] * x[:, None, :]).flatten(1)[:, :size]), lambda: Do(lambda _, x: x[:, 1:] * x[:, :-1]),
        lambda: Do(lambda _, x: x.unsqueeze(1).expand(-1, 2, -1).reshape(x.shape[0], -1)), lambda: Do(lambda m, x: torch.cdist(x, m.points, compute_mode="donot_use_mm_for_euclid_dist"), points=parameter(5, size)),
        lambda: Do(lambda m, x: F.cosine_similarity(x[:, None], m.points[None], dim=-1), points=parameter(4, size)), lambda: Do(lambda _, x: x.view(-1, size, 1).mean(2)),
        lambda: Do(lambda _, x: torch.hstack(torch.split(x, [1, size - 1], 1)[::-1])), lambda: Do(lambda _, x: sum(x.split(1, 1))), lambda: Do(lambda _, x: x.topk(min(4, size)).values),
        lambda: Do(lambda m, x: F.embedding((x[:, :2] > 0.0371).long(), m.table).flatten(1), table=parameter(2, 3)), lambda: Do(lambda _, x: F.one_hot((x > 0.0371).long(), 2).flatten(1) * x.repeat(1, 2)),
        lambda: Do(lambda _, x: F.pad(x, (1, 2), value=0.3))))()
    return fitted(made, shape) if size > 1 else None


ROW_PARTS = EVERYWHERE | {"row linear": row_linear, "row norm": row_norm, "row views": row_views, "row linear 2": row_linear}


def embedding(chance, shape):
    length, words = shape
    size = chance.randint(3, 9)
    return nn.Embedding(words, size, padding_idx=chance.choice((None, 0, 0, 3)), sparse=chance.yes(0.1)), (length, size)


def embedded_places(chance, shape):
    length, words = shape
    size = chance.randint(3, 9)
    return Do(lambda m, ids: m.inner[0](ids) * math.sqrt(size) + m.inner[1](torch.arange(ids.shape[1])), nn.Embedding(words, size, padding_idx=0), nn.Embedding(length + 3, size)), (length, size)


def bag(chance, shape):
    size = chance.randint(3, 9)
    return nn.EmbeddingBag(shape[1], size, mode=chance.choice(("mean", "sum", "max")), padding_idx=chance.choice((None, 0))), (size,)


def mean_of_words(chance, shape):
    """The mean over real words, in several ways of writing it."""
    size = chance.randint(3, 9)
    padding, way = chance.choice((None, 0, 0, 4)), chance.randrange(4)

    def forward(m, ids):
        real = (ids != 0).unsqueeze(-1)
        if way == 0:
            return (m.inner[0](ids) * real).sum(1) / real.sum(1).clamp(min=1)
        if way == 1:
            return (m.inner[0](ids) * real).sum(dim=1) / ids.ne(0).sum(1, keepdim=True).clamp(min=1)
        if way == 2:
            return (real * m.inner[0](ids)).sum(1) / real.sum(1).clamp_min(1)
        return m.inner[0](ids).masked_fill(~real, 0.0).sum(1) / (1 + real.sum(1))

    return Do(forward, nn.Embedding(shape[1], size, padding_idx=padding)), (size,)


def one_hot(chance, shape):
    size = chance.randint(3, 9)
    return Do(lambda m, ids: F.one_hot(ids, shape[1]).to(m.matrix.dtype) @ m.matrix, matrix=parameter(shape[1], size)), (shape[0], size)


def tied_words(chance, shape):
    """Words looked up, and compared with the same table."""
    size = chance.randint(3, 6)
    return Do(lambda m, ids: F.linear(torch.tanh(m.inner[0](ids)), m.inner[0].weight)[..., :8], nn.Embedding(shape[1], size)), (shape[0], 8)


TEXT_PARTS = {"embedding": embedding, "places": embedded_places, "bag": bag, "mean of words": mean_of_words, "one hot": one_hot, "tied words": tied_words}


def to_row(chance, shape):
    if len(shape) == 3:
        made = chance.choice((nn.Flatten(), Do(lambda _, x: x.mean((2, 3))), Do(lambda _, x: x.amax(dim=(-2, -1))), Do(lambda _, x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)),
                              Do(lambda _, x: x.view(x.size(0), -1)), Do(lambda _, x: x.reshape(x.shape[0], -1)), Do(lambda _, x: x.sum((2, 3)) * 0.1)))
    else:
        made = chance.choice((nn.Flatten(), Do(lambda _, x: x.mean(1)), Do(lambda _, x: x[:, -1]), Do(lambda _, x: x.max(1).values), Do(lambda _, x: x.max(dim=1)[0]),
                              Do(lambda _, x: torch.logsumexp(x, 1)), Do(lambda _, x: torch.cat([x.mean(1), x.amax(1)], 1))))
    return fitted(made, shape)


def to_sequence(chance, shape):
    return fitted(chance.choice((Do(lambda _, x: x.flatten(2).transpose(1, 2)), Do(lambda _, x: x.flatten(1, 2)), Do(lambda _, x: x.mean(2)), Do(lambda _, x: x.flatten(2).mT))), shape)
