"""Parts of random networks: functions of chance and a sample's shape that return a module and the shape that it makes, or None
where the part does not fit. Images are (C, H, W), sequences (T, D), rows (F,)."""

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
            early = (early > 0).sum(1)  # whole numbers, without a gradient
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


# ---- images ----------------------------------------------------------------------------------------------------------
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


def conv(chance, shape):
    groups = divisor(chance, shape[0]) if chance.yes(0.4) else 1
    out = groups * chance.randint(1, max(1, 8 // groups))
    size = chance.choice((1, 2, 3, 3, 3, 5, (1, 3), (3, 2)))
    if chance.yes(0.15):
        return fitted(nn.Conv2d(shape[0], out, size, padding="same", groups=groups), shape)
    mode = chance.choices(("zeros", "reflect", "circular", "replicate"), (8, 1, 1, 1))[0]
    return fitted(nn.Conv2d(shape[0], out, size, stride=chance.choice((1, 1, 2, (2, 1))), padding=chance.choice((0, 1, 1, (1, 0))), dilation=chance.choice((1, 1, 1, 2)),
                            groups=groups, bias=chance.yes(0.7), padding_mode=mode), shape)


def transposed(chance, shape):
    groups = divisor(chance, shape[0]) if chance.yes(0.2) else 1
    stride = chance.choice((1, 2, 2))
    return fitted(nn.ConvTranspose2d(shape[0], groups * chance.randint(1, 4), chance.choice((2, 3, 4)), stride, padding=chance.choice((0, 1)), groups=groups,
                                     output_padding=chance.choice((0, 0, stride - 1)), bias=chance.yes(0.8)), shape)


def image_norm(chance, shape):
    channels = shape[0]
    affine, track = chance.yes(0.8), chance.yes(0.9)
    made = chance.choice((
        lambda: nn.BatchNorm2d(channels, affine=affine, momentum=chance.choice((0.1, 0.01, 0.3)), eps=chance.choice((1e-5, 1e-3)), track_running_stats=track),
        lambda: nn.BatchNorm2d(channels), lambda: nn.BatchNorm2d(channels),
        lambda: nn.GroupNorm(divisor(chance, channels), channels, affine=affine), lambda: nn.InstanceNorm2d(channels, affine=affine),
        lambda: nn.LayerNorm(shape, elementwise_affine=affine), lambda: nn.LocalResponseNorm(3),
        lambda: Do(lambda m, x: m.inner[0](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.LayerNorm(channels, bias=affine))))()
    if isinstance(made, nn.InstanceNorm2d) and shape[1] * shape[2] < 2:
        return None
    return made, shape


def conv_norm(chance, shape):
    """As most people write it."""
    made = conv(chance, shape)
    if made is None:
        return None
    act = chance.choice((nn.ReLU, lambda: nn.ReLU(True), nn.SiLU, nn.Identity, lambda: nn.ReLU6(True), lambda: nn.LeakyReLU(0.2, True)))()
    norm = nn.BatchNorm2d(made[1][0], track_running_stats=chance.yes(0.9))
    order = chance.choice(((made[0], norm, act), (made[0], act, norm), (norm_of_input(shape), act, made[0])))
    return nn.Sequential(*order), made[1]


def norm_of_input(shape):
    return nn.BatchNorm2d(shape[0])


def residual_norm(chance, shape):
    """ResNet's block, with its sum written in several ways."""
    channels = shape[0]
    one, two = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels, track_running_stats=chance.yes(0.9))
    other = nn.BatchNorm2d(channels)
    short = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels)) if chance.yes(0.4) else nn.Identity()
    way, relu = chance.randrange(4), chance.choice((F.relu, F.relu_, lambda x: x, F.hardtanh))

    def forward(m, x):
        y = m.inner[1](m.inner[0](x))
        if way == 0:
            y = y + m.inner[3](x)
        elif way == 1:
            y += m.inner[3](x)
        elif way == 2:
            y = m.inner[3](x) + y
        else:
            y = y + m.inner[2](x)
        return relu(y)

    return Do(forward, one, two, other, short), shape


def pool(chance, shape):
    one = chance.choice((
        lambda: nn.MaxPool2d(2), lambda: nn.MaxPool2d(2, ceil_mode=True), lambda: nn.MaxPool2d(3, 2, 1), lambda: nn.MaxPool2d((2, 1)), lambda: nn.MaxPool2d(3, 1, dilation=2),
        lambda: nn.AvgPool2d(2), lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), lambda: nn.AdaptiveAvgPool2d((3, 2)), lambda: nn.AdaptiveMaxPool2d(2),
        lambda: nn.AdaptiveAvgPool2d(1), lambda: nn.LPPool2d(2, 2), lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), lambda: nn.AdaptiveAvgPool2d((None, 2)),
        lambda: Do(lambda _, x: F.max_pool2d(x, 2, return_indices=True)[0]), lambda: nn.Sequential(Do(lambda _, x: x + 0.5), nn.ReLU(True), nn.MaxPool2d(2))))()
    return fitted(one, shape)


def resized(chance, shape):
    made = chance.choice((
        lambda: nn.Upsample(scale_factor=2), lambda: nn.Upsample(size=(5, 7), mode="bilinear", align_corners=chance.yes()), lambda: nn.PixelUnshuffle(2), lambda: nn.PixelShuffle(2),
        lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), lambda: nn.ZeroPad2d((1, 0, 2, 1)), lambda: nn.ReflectionPad2d(1), lambda: nn.ReplicationPad2d((0, 1, 1, 0)),
        lambda: nn.CircularPad2d(1), lambda: nn.ConstantPad2d((1, -1, 0, 0), 0.5), lambda: Do(lambda _, x: F.interpolate(x, size=(4, 6), mode="area")),
        lambda: Do(lambda _, x: x[:, :, 1:, :-1]), lambda: Do(lambda _, x: x[:, :, ::2]), lambda: Do(lambda _, x: F.pad(x, (1, 1)))))()
    return fitted(made, shape)


def image_views(chance, shape):
    channels, height, width = shape
    made = chance.choice((
        lambda: Do(lambda _, x: x.transpose(2, 3)), lambda: Do(lambda _, x: x.flatten(2).unflatten(2, (width, height))), lambda: nn.ChannelShuffle(divisor(chance, channels)),
        lambda: Do(lambda _, x: x.permute(0, 2, 3, 1).contiguous().view(x.shape[0], channels, height, width)), lambda: Do(lambda _, x: torch.rot90(x, 1, (2, 3))),
        lambda: Do(lambda _, x: torch.cat(x.chunk(2, dim=1)[::-1], 1)), lambda: Do(lambda _, x: torch.stack(x.unbind(1)[::-1], dim=1)),
        lambda: Do(lambda _, x: F.fold(F.unfold(x, 3, padding=1), (height, width), 3, padding=1)), lambda: Do(lambda _, x: x.reshape(x.shape[0] * channels, 1, height, width).view_as(x)),
        lambda: Do(lambda _, x: x.unfold(3, 1, 1).squeeze(-1)), lambda: Do(lambda _, x: x.mean((2, 3), keepdim=True).expand_as(x) + x),
        lambda: Do(lambda _, x: x.view(x.size(0), -1).view(-1, channels, height, width)), lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (height, channels, width))),
        lambda: Do(lambda _, x: x.movedim(1, -1).flatten(1, 2).transpose(1, 2).unflatten(-1, (height, width))), lambda: Do(lambda _, x: torch.swapaxes(x, -1, -2))))()
    return fitted(made, shape)


def excited(chance, shape):
    """Squeeze and excitation."""
    hidden = chance.randint(1, 5)
    return Do(lambda m, x: x * torch.sigmoid(m.inner[1](F.relu(m.inner[0](F.adaptive_avg_pool2d(x, 1))))), nn.Conv2d(shape[0], hidden, 1), nn.Conv2d(hidden, shape[0], 1)), shape


def image_linear(chance, shape):
    """A linear layer over channels, between permutations."""
    out = chance.randint(1, 6)
    return Do(lambda m, x: m.inner[0](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.Linear(shape[0], out)), (out, *shape[1:])


def standardised(chance, shape):
    """A convolution whose weights are computed."""
    out = chance.randint(1, 6)

    def forward(m, x):
        flat = m.weight.view(out, -1)
        return F.conv2d(x, ((flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 1e-3)).view_as(m.weight), m.bias, padding=1)

    return Do(forward, weight=parameter(out, shape[0], 3, 3), bias=parameter(out)), (out, *shape[1:])


IMAGE_PARTS = EVERYWHERE | {"conv": conv, "transposed conv": transposed, "image norm": image_norm, "conv norm": conv_norm, "residual norm": residual_norm, "pool": pool,
                            "resized": resized, "image views": image_views, "excited": excited, "image linear": image_linear, "standardised": standardised, "conv norm 2": conv_norm}


# ---- sequences -------------------------------------------------------------------------------------------------------
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


# ---- rows ------------------------------------------------------------------------------------------------------------
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
        lambda: Do(lambda m, x: F.embedding((x[:, :2] > 0).long(), m.table).flatten(1), table=parameter(2, 3)), lambda: Do(lambda _, x: F.one_hot((x > 0).long(), 2).flatten(1) * x.repeat(1, 2)),
        lambda: Do(lambda _, x: F.pad(x, (1, 2), value=0.3))))()
    return fitted(made, shape) if size > 1 else None


ROW_PARTS = EVERYWHERE | {"row linear": row_linear, "row norm": row_norm, "row views": row_views, "row linear 2": row_linear}


# ---- texts -----------------------------------------------------------------------------------------------------------
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


# ---- from one shape to another ---------------------------------------------------------------------------------------
def TO_ROW(chance, shape):  # noqa: N802  a constant of the drawing
    if len(shape) == 3:
        made = chance.choice((nn.Flatten(), Do(lambda _, x: x.mean((2, 3))), Do(lambda _, x: x.amax(dim=(-2, -1))), Do(lambda _, x: torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)),
                              Do(lambda _, x: x.view(x.size(0), -1)), Do(lambda _, x: x.reshape(x.shape[0], -1)), Do(lambda _, x: x.sum((2, 3)) * 0.1)))
    else:
        made = chance.choice((nn.Flatten(), Do(lambda _, x: x.mean(1)), Do(lambda _, x: x[:, -1]), Do(lambda _, x: x.max(1).values), Do(lambda _, x: x.max(dim=1)[0]),
                              Do(lambda _, x: torch.logsumexp(x, 1)), Do(lambda _, x: torch.cat([x.mean(1), x.amax(1)], 1))))
    return fitted(made, shape)


def TO_SEQUENCE(chance, shape):  # noqa: N802
    return fitted(chance.choice((Do(lambda _, x: x.flatten(2).transpose(1, 2)), Do(lambda _, x: x.flatten(1, 2)), Do(lambda _, x: x.mean(2)), Do(lambda _, x: x.flatten(2).mT))), shape)
