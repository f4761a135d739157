"""Networks whose parts look like attentions and pairs of linear layers that a tensor axis could share, and mix heads or features."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LENGTH = 12, 4, 4  # as many heads as places: sizes alone do not tell them apart


class Attention(nn.Module):
    """Softmax of products of heads; `change` does something to queries, keys and values, [n, heads, T, width], or to weights."""

    def __init__(self, change=lambda m, q, k, v: (q, k, v), weigh=lambda m, scores: scores.softmax(-1), parts=HEADS):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, size) for size in (WIDTH, *2 * (WIDTH // HEADS * parts,), WIDTH))
        self.change, self.weigh = change, weigh
        self.of_each = nn.Parameter(torch.rand(HEADS, 1, 1))
        self.norm = nn.LayerNorm((HEADS, WIDTH // HEADS))

    def forward(self, x):
        n = x.shape[0]
        q, k, v = (layer(x).view(n, LENGTH, -1, WIDTH // HEADS).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k, v = self.change(self, q, k, v)
        y = self.weigh(self, q @ k.transpose(-2, -1)) @ v
        return self.out(y.transpose(1, 2).reshape(n, LENGTH, WIDTH))


class Beside(Attention):
    """Its values are used behind it as well."""

    def forward(self, x):
        v = self.v(x)
        q, k, w = (part.view(x.shape[0], LENGTH, HEADS, -1).transpose(1, 2) for part in (self.q(x), self.k(x), v))
        y = (q @ k.transpose(-2, -1)).softmax(-1) @ w
        return self.out(y.transpose(1, 2).reshape(x.shape[0], LENGTH, WIDTH)) + v


class Gated(Attention):
    """The projection of queries, keys and values gives a gate as well, which is used whole."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, 4 * WIDTH)

    def forward(self, x):
        q, k, v, gate = self.q(x).chunk(4, -1)
        q, k, v = (part.view(x.shape[0], LENGTH, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        y = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape[0], LENGTH, WIDTH)) * gate.mean(-1, keepdim=True)


class Picked(Attention):
    """Queries and keys are picked as nn.MultiheadAttention picks them, and a third part is used elsewhere."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        n = x.shape[0]
        parts = self.q(x.transpose(0, 1)).unflatten(-1, (3, WIDTH)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        q, k = (part.view(LENGTH, n * HEADS, WIDTH // HEADS).transpose(0, 1).view(n, HEADS, LENGTH, WIDTH // HEADS) for part in (parts[0], parts[1]))
        v = self.v(x).view(n, LENGTH, HEADS, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, LENGTH, WIDTH)) + parts[2].transpose(0, 1).mean(-1, keepdim=True)


class Squeezed(Attention):
    """Heads attend to each other at each place, and squeeze() has nothing to take out."""

    def forward(self, x):
        q, k, v = (layer(x).view(x.shape[0], LENGTH, HEADS, -1).squeeze(0) for layer in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v).reshape(x.shape[0], LENGTH, WIDTH))


class Chained(nn.Module):
    """The output of one attention is the queries of the next."""

    def __init__(self):
        super().__init__()
        self.one, self.k, self.v, self.out = Attention(), *(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        q, k, v = (part.view(x.shape[0], LENGTH, HEADS, -1).transpose(1, 2) for part in (self.one(x), self.k(x), self.v(x)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape[0], LENGTH, WIDTH))


ATTENTIONS = {
    "plain": Attention(),
    "grouped": Attention(lambda m, q, k, v: (q, *(part.repeat_interleave(2, 1) for part in (k, v))), parts=2),
    "tiled": Attention(lambda m, q, k, v: (q, *(part.repeat(1, 2, 1, 1) for part in (k, v))), parts=2),
    "tiled_by_cat": Attention(lambda m, q, k, v: (q, *(torch.cat((part, part), 1) for part in (k, v))), parts=2),
    "tiled_by_expand": Attention(lambda m, q, k, v: (q, *(p[:, None].expand(-1, 2, -1, -1, -1).reshape(-1, HEADS, LENGTH, WIDTH // HEADS) for p in (k, v))), parts=2),
    "over_heads": Attention(weigh=lambda m, scores: scores.softmax(1)),
    "rolled": Attention(lambda m, q, k, v: (q.roll(1, 1), k, v)),
    "flipped": Attention(lambda m, q, k, v: (q.flip(1), k, v)),
    "summed": Attention(lambda m, q, k, v: (q.cumsum(1), k, v)),
    "centred": Attention(lambda m, q, k, v: (q - q.mean(1, keepdim=True), k, v)),
    "places_for_heads": Attention(lambda m, q, k, v: (q.transpose(1, 2), k.transpose(1, 2), v)),
    "reshaped": Attention(lambda m, q, k, v: (q.reshape(q.shape[0], LENGTH, HEADS, -1).transpose(1, 2), k, v)),
    "norm_of_all": Attention(lambda m, q, k, v: (m.norm(q.transpose(1, 2)).transpose(1, 2), k, v)),
    "number_of_each": Attention(lambda m, q, k, v: (q * m.of_each, k, v)),
    "weights_of_each": Attention(weigh=lambda m, scores: (scores * m.of_each).softmax(-1)),
    "seen_by_each": Attention(weigh=lambda m, scores: scores.masked_fill(m.of_each > 0.5 * torch.ones(LENGTH, LENGTH), -9.0).softmax(-1)),
    "some_heads": Attention(lambda m, q, k, v: (torch.cat((q[:, :2], q[:, 2:] * 2), 1), k, v)),
    "sized": Attention(lambda m, q, k, v: (q, *(part.repeat_interleave(2, 1, output_size=HEADS) for part in (k, v))), parts=2),
    "beside": Beside(),
    "gated": Gated(),
    "picked": Picked(),
    "squeezed": Squeezed(),
    "chained": Chained(),
}


class Pair(nn.Module):
    def __init__(self, between, size=8):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(WIDTH, size), nn.Linear(WIDTH, size), nn.Linear(8, WIDTH)
        self.between, self.of_each = between, nn.Parameter(torch.rand(8))

    def forward(self, x):
        return self.down(self.between(self, x))


class Inside(Pair):
    """One of the first layers gets what lies between."""

    def __init__(self):
        super().__init__(None)
        self.gate = nn.Linear(8, 8)

    def forward(self, x):
        y = F.silu(self.up(x))
        return self.down(y * torch.sigmoid(self.gate(y)))


class SeenLater(Pair):
    """What lies between is used behind it as well."""

    def forward(self, x):
        y = F.silu(self.gate(x))
        return self.down(y * self.up(x)) + y.mean(-1, keepdim=True)


PAIRS = {
    "gated": Pair(lambda m, x: F.silu(m.gate(x)) * m.up(x)),
    "halves": Pair(lambda m, x: torch.mul(*m.up(x).chunk(2, -1)), 16),
    "weighted": Pair(lambda m, x: m.up(x).softmax(-1)),
    "normed": Pair(lambda m, x: F.layer_norm(m.up(x), (8,))),
    "scaled": Pair(lambda m, x: m.up(x) * m.of_each),
    "by_mean": Pair(lambda m, x: m.up(x) / m.up(x).abs().mean(-1, keepdim=True)),
    "with_input": Pair(lambda m, x: m.up(x) + x[..., :8]),
    "one_half": Pair(lambda m, x: m.up(x).chunk(2, -1)[0], 16),
    "flipped": Pair(lambda m, x: m.gate(x) * m.up(x).flip(-1)),
    "seen_later": SeenLater(None),
    "inside": Inside(),
}


class Mixed(nn.Module):
    """Parts behind one another, each added to what came before."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleDict({f"{name}_": part for name, part in parts.items()})
        self.head = nn.Conv1d(WIDTH, 3, LENGTH)  # no linear layer, which could be the second one of a pair

    def forward(self, x):
        for part in self.parts.values():
            x = x + part(torch.sin(x))
        return self.head(x.transpose(1, 2)).flatten(1)
