"""Parts of random networks: functions of chance and a sample's shape that return a module and the shape that it makes, or None
where the part does not fit. Images are (C, H, W), sequences (T, D), rows (F,). Here are those for all shapes, and what joins parts."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


class Do(nn.Module):
    """A function as a module, with modules and parameters of its own."""

    def __init__(self, function, *modules, **parameters):
        super().__init__()
        self.function = function
        self.inner = nn.ModuleList(modules)
        for name, value in parameters.items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value, persistent=name[-1] != "_")

    def forward(self, x):
        return self.function(self, x)


def parameter(*shape):
    return nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))


# ---- structures ------------------------------------------------------------------------------------------------------
class SumOf(nn.Module):
    """A value and what is computed from it, added in one of several ways."""

    def __init__(self, chance, inner):
        super().__init__()
        self.inner, self.way, self.relu = inner, chance.randrange(6), chance.choice((None, F.relu, F.relu_, torch.tanh))

    def forward(self, x):
        y = self.inner(x)
        if self.way == 0:
            y = y + x
        elif self.way == 1:
            y = x + y
        elif self.way == 2:
            y = y.add(x, alpha=0.5)
        elif self.way == 3:
            y = y * 1
            y += x
        elif self.way == 4:
            z = x.clone()
            z += y
            y = z
        else:
            y = torch.lerp(x, y, 0.25)
        return self.relu(y) if self.relu else y


class SharedOf(nn.Module):
    """The same module twice, one after the other or both of one value."""

    def __init__(self, chance, inner):
        super().__init__()
        self.inner, self.chained = inner, chance.yes()

    def forward(self, x):
        return self.inner(torch.tanh(self.inner(x))) if self.chained else self.inner(x) + self.inner(x * 0.5)


class BranchOf(nn.Module):
    def __init__(self, one, other, join):
        super().__init__()
        self.one, self.other, self.join = one, other, join

    def forward(self, x):
        return self.join(self.one(x), self.other(x))

    @staticmethod
    def make(chance, one, first, other, second):
        if tuple(first) == tuple(second):
            join = chance.choice((torch.add, torch.mul, torch.maximum, torch.sub, lambda a, b: torch.cat([a, b], 1),
                                  lambda a, b: torch.stack([a, b]).mean(0), lambda a, b: torch.where(a > b, a, 0.5 * b)))
            shape = join(torch.zeros(2, *first), torch.zeros(2, *first)).shape[1:]
            return BranchOf(one, other, join), tuple(shape)
        if len(first) == len(second) and tuple(first[1:]) == tuple(second[1:]):
            return BranchOf(one, other, lambda a, b: torch.cat([b, a], dim=1)), (first[0] + second[0], *first[1:])
        rows = lambda a, b: torch.hstack([a.flatten(1), torch.flatten(b, 1)])  # noqa: E731
        return BranchOf(one, other, rows), (math.prod(first) + math.prod(second),)


class LateOf(nn.Module):
    """A number of each sample, made early and used after the inner part."""

    def __init__(self, inner, way):
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x):
        early = x.flatten(1)
        if self.way == 0:
            early = early.mean(1)
        elif self.way == 1:
            early = early.amax(dim=1)
        else:
            early = (early > 0.0371).sum(1)  # whole numbers, without a gradient; 0 itself is what many a norm leaves
        y = self.inner(x)
        early = early.view(-1, *[1] * (y.dim() - 1))
        return y + early if self.way < 2 else y / (1 + early)

    @staticmethod
    def make(chance, inner, after):
        return LateOf(inner, chance.randrange(3)), after


# ---- for all shapes --------------------------------------------------------------------------------------------------
def activation(chance, shape):
    inplace = chance.yes(0.4)
    made = chance.choice((
        lambda: nn.ReLU(inplace), lambda: nn.GELU(chance.choice(("none", "tanh"))), lambda: nn.SiLU(inplace), nn.Tanh, nn.Sigmoid,
        lambda: nn.LeakyReLU(0.1, inplace), lambda: nn.ELU(1.0, inplace), lambda: nn.PReLU(shape[0] if chance.yes() else 1),
        lambda: nn.Hardswish(inplace), nn.Softplus, lambda: nn.Mish(inplace), lambda: nn.SELU(inplace), nn.Softsign,
        lambda: nn.Hardtanh(-0.8, 0.9, inplace), lambda: nn.ReLU6(inplace), lambda: nn.Softmax(dim=1), lambda: nn.LogSoftmax(dim=-1), nn.LogSigmoid,
        lambda: nn.Hardsigmoid(inplace), lambda: nn.CELU(0.7, inplace), nn.Tanhshrink, lambda: nn.Softshrink(0.2)))()
    # What others hold may not be written over: as in people's networks, a layer stands in front.
    if inplace:
        return nn.Sequential(Do(lambda _, x: x * 1.5), made), shape
    return made, shape


def functions(chance, shape):
    made = chance.choice((
        lambda _, x: torch.sin(x) + x.cos(), lambda _, x: x.abs().add(0.1).sqrt(), lambda _, x: torch.log1p(x.square()),
        lambda _, x: x.clamp(-1, 1.5), lambda _, x: x.clamp(min=-0.5), lambda _, x: torch.erf(x) * x, lambda _, x: x.sigmoid() ** 2,
        lambda _, x: torch.where(x > 0, x, 0.1 * x), lambda _, x: x - x.mean(dim=1, keepdim=True), lambda _, x: F.normalize(x, dim=1),
        lambda _, x: torch.cumsum(x, dim=1) / x.shape[1], lambda _, x: x / (1 + x.norm(dim=-1, keepdim=True)), lambda _, x: x.flip(1),
        lambda _, x: torch.roll(x, 1, dims=1), lambda _, x: x.sort(dim=-1).values, lambda _, x: 1 - x, lambda _, x: 2 / (2 + x * x),
        lambda _, x: torch.addcmul(x, x, x, value=0.1), lambda _, x: x * torch.logsumexp(x, 1, keepdim=True).tanh(),
        lambda _, x: (x - x.mean()) if x.dim() > 9 else x - x.detach() * 0.5, lambda _, x: torch.atan2(x, x.abs() + 1),
        lambda _, x: torch.maximum(x, x.new_zeros(()) - 0.3), lambda _, x: x * torch.ones_like(x) + torch.zeros(x.shape[1:], dtype=x.dtype),
        lambda _, x: x.masked_fill(x < -1, -1.0), lambda _, x: torch.min(x, dim=1, keepdim=True)[0] + x, lambda _, x: x.pow(3) * 0.1,
        lambda _, x: x * x.var(dim=1, keepdim=True).add(1).rsqrt(), lambda _, x: x * x.std(-1, keepdim=True, correction=0),
        lambda _, x: torch.einsum("n...,n...->n...", x, x) * 0.3, lambda _, x: x.exp().log1p(), lambda _, x: x + x.argmax(dim=-1, keepdim=True) * 0.01,
        lambda _, x: x.expm1().clamp(max=3), lambda _, x: torch.rsqrt(x.square() + x.new_tensor(0.5)) + x, lambda _, x: x.nan_to_num() * torch.sign(x),
        lambda _, x: torch.hypot(x, x * 0.5 + 1), lambda _, x: x.softmax(dim=-1) * x, lambda _, x: F.dropout(x, 0.0) + F.hardshrink(x),
        lambda _, x: torch.cat([x[:, :1], x], 1)[:, 1:], lambda _, x: (x * 3).round() * 0.1 + x, lambda _, x: x.cumprod(1) * 0.1 + x))
    return Do(made), shape


def in_place(chance, shape):
    """Writes over values and through views."""

    def scaled(_, x):
        y = x.clone()
        y[:, ::2] *= 0.5
        return y

    def filled(_, x):
        y = x * 1.25
        y[..., 0] = 0.5
        return y

    def chained(_, x):
        return (x + 1).mul_(0.5).add_(x, alpha=0.25).sub_(0.1).neg_()

    def masked(_, x):
        y = x - 0.1
        return y.masked_fill_(y > 0.8, 0.8).clamp_(min=-1)

    def through(_, x):
        y = x * 2
        first, rest = y[:, :1], y[:, 1:]
        rest.mul_(0.5)
        return y + first

    def flat(_, x):
        y = x.contiguous() * 2
        z = y.view(y.shape[0], -1)
        z[:, 0].add_(1.0)
        z.div_(2.0)
        return y

    def copied(_, x):
        y = torch.empty_like(x).copy_(x)
        y[:, -1].copy_(x[:, 0])
        return y

    def zeros(_, x):
        y = x.new_zeros(x.shape)
        y[:, 1:] = x[:, :-1]
        y.add_(x)
        return y

    def turned(_, x):
        y = x + 0
        y.transpose(1, -1).mul_(0.7)
        return y.contiguous()

    def later(_, x):
        y = x * 1
        view = y.unsqueeze(1)
        y.mul_(1.5)
        return view.squeeze(1) + x

    def chunks(_, x):
        y = (x * 1).clamp_(max=3)
        first = y.narrow(1, 0, 1)
        first.zero_()
        return y

    return Do(chance.choice((scaled, filled, chained, masked, through, flat, copied, zeros, turned, later, chunks))), shape


def state(chance, shape):
    """Parameters and buffers of the shape or that spread over it, persistent and not; constants."""
    broad = tuple(size if chance.yes() else 1 for size in shape)
    numbers = torch.linspace(0.5, 1.5, math.prod(broad)).view(broad)
    made = chance.choice((
        lambda: Do(lambda m, x: x * m.scale + m.shift, scale=parameter(*broad), shift=parameter(*shape)),
        lambda: Do(lambda m, x: x * m.fixed, fixed=numbers), lambda: Do(lambda m, x: x - m.fixed_, fixed_=numbers),
        lambda: Do(lambda m, x: x * m.mask, mask=(torch.arange(shape[-1]) % 3 > 0)),
        lambda: Do(lambda m, x: x + torch.tensor([0.25]) * m.gain.exp(), gain=parameter(1)),
        lambda: Do(lambda m, x: torch.lerp(x, m.scale.expand_as(x), 0.2), scale=parameter(*broad)),
        lambda: Do(lambda m, x: x + m.count * 0.1 + torch.arange(x.shape[-1]) * 0.05, count=torch.arange(shape[-1]))))()
    return made, shape


def dropout(chance, shape):
    if chance.yes(0.3):
        return nn.Sequential(Do(lambda _, x: x * 1.0), nn.Dropout(chance.p(), inplace=True)), shape
    return nn.Dropout(chance.p()), shape


def nested(chance, shape):
    """A linear layer over the last dim, with functions outside of modules around it."""
    size, hidden = shape[-1], chance.randint(1, 9)
    weight, bias = chance.yes(0.2), chance.yes(0.8)
    one, other = nn.Linear(size, hidden, bias=bias), nn.Linear(hidden, size, bias=chance.yes(0.8))
    if weight:
        other = Do(lambda m, x: F.linear(x, m.matrix.t()), matrix=parameter(hidden, size))
    function = chance.choice((F.relu, torch.tanh, F.gelu, torch.sigmoid, F.silu, lambda x: F.relu(x, inplace=True)))
    return Do(lambda m, x: m.inner[1](function(m.inner[0](x))), one, other), shape


def tied(chance, shape):
    """A linear layer and its transpose."""
    made = nn.Linear(shape[-1], chance.randint(2, 8), bias=chance.yes())
    return Do(lambda m, x: F.linear(torch.tanh(m.inner[0](x)), m.inner[0].weight.t()), made), shape


def products(chance, shape):
    size = shape[-1]
    if size > 24:
        return None
    made = chance.choice((
        lambda: Do(lambda m, x: x @ m.matrix, matrix=parameter(size, size)),
        lambda: Do(lambda m, x: torch.einsum("n...i,ij->n...j", x, m.matrix), matrix=parameter(size, size)),
        lambda: Do(lambda m, x: torch.matmul(x, m.matrix) * torch.matmul(x, m.vector).unsqueeze(-1), matrix=parameter(size, size), vector=parameter(size)),
        lambda: Do(lambda m, x: torch.tensordot(x, m.matrix, dims=1), matrix=parameter(size, size)),
        lambda: parametrizations.weight_norm(nn.Linear(size, size)),
        lambda: Do(lambda m, x: F.linear(x, F.normalize(m.matrix, dim=1), m.bias), matrix=parameter(size, size), bias=parameter(size)),
        lambda: Do(lambda m, x: F.bilinear(x.contiguous(), x.tanh().contiguous(), m.cube, m.bias), cube=parameter(size, size, size), bias=parameter(size))))()
    return made, shape


EVERYWHERE = {"activation": activation, "functions": functions, "in place": in_place, "state": state, "dropout": dropout, "nested": nested,
              "tied": tied, "products": products}


def shape_after(module, shape):
    """Of a module that works on any batch; None where the shape is too small for it."""
    try:
        with torch.no_grad():
            return tuple(module.train()(torch.zeros(2, *shape)).shape[1:])
    except (RuntimeError, ValueError):
        return None


def fitted(module, shape):
    after = shape_after(module, shape)
    return None if after is None or min(after) < 1 else (module, after)


def divisor(chance, number):
    return chance.choice([size for size in range(1, number + 1) if number % size == 0])
