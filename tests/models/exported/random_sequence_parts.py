"""Parts of random networks that take sequences (T, D): random_parts.py says how."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from random_parts import EVERYWHERE, Do, divisor, fitted


def recurrent(chance, shape):
    """LSTM, GRU and RNN in all their ways, and their last states."""
    length, size = shape
    kind, layers, both, first = chance.choice(("lstm", "lstm", "gru", "rnn")), chance.randint(1, 3), chance.yes(0.4), chance.yes(0.7)
    hidden, biases = chance.randint(2, 7), chance.yes(0.8)
    options = {"batch_first": first, "bidirectional": both, "bias": biases}
    if kind == "lstm":
        if layers > 1:
            options["dropout"] = chance.p()
        if chance.yes(0.2):
            options["proj_size"] = chance.randint(1, hidden - 1)
        made = nn.LSTM(size, hidden, layers, **options)
    elif kind == "gru":
        made = nn.GRU(size, hidden, layers, **options)
    else:
        made = nn.RNN(size, hidden, layers, nonlinearity=chance.choice(("tanh", "relu")), **options)
    out = options.get("proj_size", hidden) * (2 if both else 1)
    last = chance.yes(0.3)
    states_of = layers * (2 if both else 1)

    def forward(m, x):
        y, states = m.inner[0](x if first else x.transpose(0, 1))
        y = y if first else y.transpose(0, 1)
        if last:
            state = states[0] if isinstance(states, tuple) else states
            y = y * state.reshape(states_of, x.shape[0], -1).mean((0, 2)).view(-1, 1, 1)  # as docs/own-models.md says
        return y

    return Do(forward, made), (length, out)


def cells(chance, shape):
    """A loop over the steps, written out."""
    length, size = shape
    hidden = chance.randint(2, 5)
    lstm = chance.yes()
    cell = nn.LSTMCell(size, hidden) if lstm else chance.choice((nn.GRUCell, nn.RNNCell))(size, hidden)

    def forward(m, x):
        state = x.new_zeros(x.shape[0], hidden)
        carry = state
        made = []
        for step in x.unbind(1):
            if lstm:
                state, carry = m.inner[0](step, (state, carry))
            else:
                state = m.inner[0](step, state)
            made.append(state)
        return torch.stack(made, 1)

    return Do(forward, cell), (length, hidden)


def attention(chance, shape):
    """nn.MultiheadAttention, or written out, over the sequence itself."""
    length, size = shape
    heads = divisor(chance, size)
    causal = chance.yes(0.4)
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    if chance.yes(0.5):
        first, weights = chance.yes(0.7), chance.yes(0.3)
        made = nn.MultiheadAttention(size, heads, dropout=chance.p(), bias=chance.yes(0.8), batch_first=first, add_zero_attn=chance.yes(0.1), add_bias_kv=chance.yes(0.1))
        nn.init.normal_(made.out_proj.weight, std=0.5)

        def forward(m, x):
            x = x if first else x.transpose(0, 1)
            y, by = m.inner[0](x, x, x, need_weights=weights, attn_mask=m.mask_ if causal else None)
            y = y + by.mean() if weights else y
            return y if first else y.transpose(0, 1)

        return Do(forward, made, mask_=mask), shape
    qkv, out, p = nn.Linear(size, 3 * size, bias=chance.yes()), nn.Linear(size, size), chance.p()
    operator, way = chance.yes(0.6), chance.randrange(3)

    def written(m, x):
        n, t, _ = x.shape
        if way == 0:
            q, k, v = (part.view(n, t, heads, -1).transpose(1, 2) for part in m.inner[0](x).chunk(3, -1))
        elif way == 1:
            q, k, v = m.inner[0](x).reshape(n, t, 3, heads, size // heads).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (part.unflatten(-1, (heads, -1)).permute(0, 2, 1, 3) for part in m.inner[0](x).split(size, dim=2))
        if operator:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=p if m.training else 0.0)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            if causal:
                scores = scores.masked_fill(m.mask_, float("-inf"))
            y = m.inner[2](F.softmax(scores, dim=-1)) @ v
        return m.inner[1](y.transpose(1, 2).contiguous().view(n, t, size))

    return Do(written, qkv, out, nn.Dropout(p), mask_=mask), shape


def transformer(chance, shape):
    size = shape[1]
    return nn.TransformerEncoderLayer(size, divisor(chance, size), chance.randint(3, 9), dropout=chance.p(), activation=chance.choice(("relu", "gelu")), batch_first=True,
                                      norm_first=chance.yes()), shape


def sequence_norm(chance, shape):
    length, size = shape
    return chance.choice((
        lambda: nn.LayerNorm(size), lambda: nn.LayerNorm(size, elementwise_affine=False), lambda: nn.RMSNorm(size), lambda: nn.BatchNorm1d(length),
        lambda: Do(lambda m, x: m.inner[0](x.transpose(1, 2)).transpose(1, 2), nn.BatchNorm1d(size, track_running_stats=chance.yes(0.9))),
        lambda: Do(lambda m, x: F.relu(m.inner[0](x.transpose(1, 2))).transpose(1, 2), nn.BatchNorm1d(size, affine=chance.yes())),
        lambda: nn.InstanceNorm1d(length), lambda: Do(lambda m, x: m.inner[0](x.flatten(0, 1)).view(x.shape), nn.BatchNorm1d(size))))(), shape


def sequence_conv(chance, shape):
    length, size = shape
    out, kernel = chance.randint(1, 8), chance.choice((1, 2, 3))
    made = chance.choice((nn.Conv1d(size, out, kernel, stride=chance.choice((1, 2)), padding=chance.choice((0, 1))), nn.ConvTranspose1d(size, out, kernel, 1),
                          nn.Sequential(nn.Conv1d(size, out, kernel, padding=kernel - 1), nn.ReLU(), nn.MaxPool1d(2))))
    return fitted(Do(lambda m, x: m.inner[0](x.transpose(1, 2)).transpose(1, 2), made), shape)


def sequence_views(chance, shape):
    length, size = shape
    made = chance.choice((
        lambda: Do(lambda _, x: x[:, ::2]), lambda: Do(lambda _, x: x.transpose(1, 2).reshape(x.shape)), lambda: Do(lambda _, x: x[:, :, :-1] - x[:, :, 1:]),
        lambda: Do(lambda _, x: torch.stack([x, x.flip(1)], 2).flatten(1, 2)[:, :length]), lambda: Do(lambda _, x: x[:, torch.arange(x.shape[1] - 1, -1, -1)]),
        lambda: Do(lambda _, x: x.gather(1, x.argsort(1))), lambda: Do(lambda _, x: torch.cat([x, x.mean(1, keepdim=True)], 1)), lambda: Do(lambda _, x: x.repeat_interleave(2, 1)),
        lambda: Do(lambda _, x: x.repeat(1, 1, 2)), lambda: Do(lambda _, x: torch.tril(x)), lambda: Do(lambda _, x: x.topk(min(3, length), dim=1).values), lambda: nn.GLU() if size % 2 == 0 else nn.Identity(),
        lambda: Do(lambda _, x: torch.bmm(x, x.transpose(1, 2)).softmax(-1) @ x), lambda: Do(lambda _, x: x.index_select(2, torch.arange(x.shape[2]).flip(0))),
        lambda: Do(lambda _, x: torch.cat([part.squeeze(1) for part in x.split(1, dim=1)], -1).view(x.size(0), length, size)), lambda: Do(lambda _, x: torch.baddbmm(x, x @ x.mT, x, alpha=0.2)),
        lambda: Do(lambda _, x: torch.einsum("ntd->ndt", x).transpose(1, 2)), lambda: Do(lambda _, x: F.pad(x, (0, 0, 1, 0))[:, :-1]), lambda: Do(lambda _, x: x.unfold(1, 2, 1).mean(-1)),
        lambda: Do(lambda _, x: torch.cdist(x, x) @ x * 0.1), lambda: Do(lambda _, x: x.tensor_split(2, dim=-1)[0]), lambda: Do(lambda _, x: x.narrow(1, 1, length - 1)),
        lambda: Do(lambda _, x: torch.index_select(x, 1, (x[0, 0] > 9).long()[:1])), lambda: Do(lambda _, x: torch.tile(x, (1, 2, 1))[:, 1 : length + 1])))()
    return fitted(made, shape)


def mixed(chance, shape):
    """A linear layer over the steps."""
    out = chance.randint(2, 8)
    return Do(lambda m, x: m.inner[0](x.transpose(1, 2)).transpose(1, 2), nn.Linear(shape[0], out)), (out, shape[1])


def sequence_linear(chance, shape):
    out = chance.randint(2, 12)
    return nn.Linear(shape[1], out, bias=chance.yes(0.8)), (shape[0], out)


SEQUENCE_PARTS = EVERYWHERE | {"recurrent": recurrent, "cells": cells, "attention": attention, "transformer": transformer, "sequence norm": sequence_norm, "sequence conv": sequence_conv,
                               "sequence views": sequence_views, "mixed": mixed, "sequence linear": sequence_linear, "recurrent 2": recurrent, "attention 2": attention}
