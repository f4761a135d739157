"""Parts of random networks that take images (C, H, W): random_parts.py says how."""

import torch
from torch import nn
from torch.nn import functional as F

from random_parts import EVERYWHERE, Do, divisor, fitted, parameter


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
