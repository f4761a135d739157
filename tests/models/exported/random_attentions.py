"""Transformers with their attentions and the layers between written in the ways that are in use, drawn by chance: all of them are to be
shared out by a tensor axis.
"""

import torch
from torch import nn
from torch.nn import functional as F


class RandomAttention(nn.Module):
    """Heads in groups of queries, rotary positions and norms of heads, joint projections, and products written out or not."""

    def __init__(self, chance, width, length):
        super().__init__()
        self.groups, self.queries, self.size = chance.choice((2, 3, 4)), chance.choice((1, 1, 2, 3)), chance.choice((2, 4, 6))
        self.heads = self.groups * self.queries
        whole, part = self.heads * self.size, self.groups * self.size
        layouts = ("apart", "pair", *(("split", "chunk", "unbind", "select", "interleaved") if self.queries == 1 else ()))
        self.layout = chance.choice(layouts)
        sizes = {"apart": (whole, part, part), "pair": (whole, 2 * part)}.get(self.layout, (3 * whole,))
        self.into = nn.ModuleList(nn.Linear(width, size, bias=chance.random() < 0.5) for size in sizes)
        self.out = nn.Linear(whole, width, bias=chance.random() < 0.5)
        self.norm = chance.choice(("none", "layer", "rms", "written", "scale"))
        self.of_heads = nn.LayerNorm(self.size) if self.norm == "layer" else nn.RMSNorm(self.size) if self.norm == "rms" else None
        if self.norm in ("written", "scale"):
            self.weight = nn.Parameter(torch.rand(self.size if self.norm == "written" else ()) + 0.5)
        self.rotary, self.rotates_first = chance.choice(("none", "halves", "pairs")), chance.random() < 0.5
        angles = torch.arange(length)[:, None] * torch.tensor([0.5**i for i in range(self.size // 2)])
        angles = torch.cat((angles, angles), -1) if self.rotary == "halves" else angles.repeat_interleave(2, -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.core = chance.choice(("operator", "written"))
        repeats = ("expand", "repeat_interleave", *(("grouped",) if self.core == "operator" else ()))
        self.repeat = chance.choice(repeats) if self.queries > 1 else "none"
        self.mask = chance.choice(("none", "causal", "seen", "trained", "by head", "padding"))
        if self.mask in ("trained", "by head"):
            shapes = ((), (1, 1)) if self.mask == "trained" else ((self.heads,), (1, self.heads))
            self.bias = nn.Parameter(torch.randn(*chance.choice(shapes), length, length) / 2, requires_grad=chance.random() < 0.7)
        self.p, self.drop = chance.choice((0.0, 0.3)), nn.Dropout(0.3)
        self.cap = self.core == "written" and chance.random() < 0.3

    def extra_repr(self):
        kinds = (self.layout, self.norm, self.rotary, self.rotates_first, self.core, self.repeat, self.mask, self.p, self.cap)
        return f"groups {self.groups}, queries {self.queries}, size {self.size}: " + ", ".join(map(str, kinds))

    def projected(self, x):
        """Queries, keys and values [n, T, heads, size]."""
        n, t, _ = x.shape
        made = [layer(x) for layer in self.into]
        if self.layout == "pair":
            made = [made[0], *made[1].chunk(2, -1)]
        elif self.layout == "split":
            made = made[0].split(self.heads * self.size, dim=2)
        elif self.layout == "chunk":
            made = made[0].chunk(3, dim=-1)
        elif self.layout == "interleaved":
            return made[0].view(n, t, self.heads, 3 * self.size).chunk(3, -1)
        elif self.layout == "unbind":
            return made[0].view(n, t, 3, self.heads, self.size).unbind(2)
        elif self.layout == "select":
            stacked = made[0].reshape(n, t, 3, self.heads, self.size).permute(2, 0, 1, 3, 4)
            return stacked[0], stacked[1], stacked[2]
        return [part.view(n, t, -1, self.size) for part in made]

    def normed(self, x):
        if self.of_heads is not None:
            return self.of_heads(x)
        if self.norm == "written":
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return x * self.weight if self.norm == "scale" else x

    def rotated(self, x, heads):
        """`heads`: the dim of x, [n, T, heads, size] or [n, heads, T, size]."""
        if self.rotary == "none":
            return x
        cos, sin = (angle.unsqueeze(0).unsqueeze(heads) for angle in (self.cos, self.sin))
        if self.rotary == "halves":
            one, other = x[..., : self.size // 2], x[..., self.size // 2 :]
            turned = torch.cat((-other, one), -1)
        else:
            turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos + turned * sin

    def padding(self, x):
        """[n, heads, 1, T], as nn.MultiheadAttention makes it of a key_padding_mask; the first word is always there."""
        n, t, _ = x.shape
        ends = torch.cat((torch.zeros(n, 1), x[:, 1:, 0].detach().gt(1) * -9.0), 1)
        return ends.view(n, 1, 1, t).expand(-1, self.heads, -1, -1).reshape(n * self.heads, 1, t).view(n, self.heads, -1, t)

    def repeated(self, x):
        n, groups, t, size = x.shape
        if self.repeat == "expand":
            return x[:, :, None, :, :].expand(n, groups, self.queries, t, size).reshape(n, groups * self.queries, t, size)
        return x.repeat_interleave(self.queries, dim=1) if self.repeat == "repeat_interleave" else x

    def forward(self, x, seen):
        n, t, _ = x.shape
        q, k, v = self.projected(x)
        q, k = self.normed(q), self.normed(k)
        if self.rotates_first:
            q, k = self.rotated(q, 2), self.rotated(k, 2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if not self.rotates_first:
            q, k = self.rotated(q, 1), self.rotated(k, 1)
        k, v = self.repeated(k), self.repeated(v)
        if self.core == "operator":
            p = self.p if self.training else 0.0
            mask = {"seen": seen, "trained": getattr(self, "bias", None), "by head": getattr(self, "bias", None),
                    "padding": self.padding(x)}.get(self.mask)
            more = {"enable_gqa": True} if self.repeat == "grouped" else {}
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=self.mask == "causal", **more)
        else:
            scores = q @ k.transpose(-2, -1) * self.size**-0.5
            if self.cap:
                scores = 2 * torch.tanh(scores / 2)
            if self.mask in ("trained", "by head"):
                scores = scores + self.bias
            elif self.mask == "padding":
                scores = scores + self.padding(x)
            elif self.mask != "none":
                keep = seen if self.mask == "seen" else torch.ones(t, t, dtype=torch.bool).tril()
                scores = scores.masked_fill(~keep, -1e9)
            weights = scores.softmax(-1)
            y = (self.drop(weights) if self.p else weights) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, -1))


class RandomMlp(nn.Module):
    """Plain or gated, by one linear layer or two, with numbers that are trained between."""

    def __init__(self, chance, width):
        super().__init__()
        inside, self.kind = chance.choice((5, 8, 13)), chance.choice(("plain", "gated", "joint", "split"))
        self.into = nn.ModuleList(nn.Linear(width, 2 * inside if self.kind in ("joint", "split") else inside, bias=chance.random() < 0.5)
                                  for _ in range(2 if self.kind == "gated" else 1))
        self.out, self.inside = nn.Linear(inside, width), inside
        self.act = chance.choice((F.gelu, F.silu, F.relu, torch.sigmoid, torch.tanh))
        self.scale = nn.Parameter(torch.tensor(0.8)) if chance.random() < 0.4 else None
        self.drop = nn.Dropout(chance.choice((0.0, 0.25)))

    def extra_repr(self):
        return f"{self.kind}, {self.act.__name__}, {self.scale is not None}"

    def forward(self, x):
        made = [layer(x) for layer in self.into]
        if self.kind in ("joint", "split"):
            made = made[0].chunk(2, -1) if self.kind == "joint" else made[0].split(self.inside, dim=-1)
        y = self.act(made[0]) * (made[1] if len(made) > 1 else 1.0)
        return self.out(self.drop(y if self.scale is None else y * self.scale))


class RandomTransformer(nn.Module):
    """Of language: logits [n, T, words] for ids [n, T]."""

    def __init__(self, chance, words, length, blocks=2):
        super().__init__()
        width = chance.choice((8, 12))
        self.embedding, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width))
        norm = chance.choice((nn.LayerNorm, nn.RMSNorm))
        self.norms = nn.ModuleList(norm(width) for _ in range(2 * blocks))
        self.attentions = nn.ModuleList(RandomAttention(chance, width, length) for _ in range(blocks))
        self.mlps = nn.ModuleList(RandomMlp(chance, width) for _ in range(blocks))
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        x = self.embedding(ids) + self.places
        seen = (ids != 0)[:, None, None, :] | torch.eye(ids.shape[1], dtype=torch.bool)
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps)):
            x = x + attention(self.norms[2 * i](x), seen)
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.head(x)
