"""Small modules for the C++ tests, each with something that random networks have found dtrain to compute otherwise than PyTorch, or
that looks alike to a pattern and is none."""

import torch
import torch.nn.functional as F
from torch import nn


class OwnStatistics(nn.Module):
    """BatchNorm without running statistics, with the sum and the ReLU that dtrain's own one takes in."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn1, self.bn2 = (nn.BatchNorm2d(4, track_running_stats=False) for _ in range(2))
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv(x)))
        return self.fc(F.relu(self.bn2(x) + x).mean((2, 3)))


class PaddedElsewhere(nn.Module):
    """The mean of real words, of a table whose padding is another row than 0."""

    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(11, 8, padding_idx=4), nn.Linear(8, 5)

    def forward(self, ids):
        real = (ids != 0).unsqueeze(2)
        return self.fc((self.embedding(ids) * real).sum(1) / real.sum(1).clamp(min=1))


class Bags(nn.Module):
    """nn.EmbeddingBag in its three modes, with padding and without."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(11, 4, mode=mode, padding_idx=padding)
                                  for mode, padding in (("mean", 0), ("mean", None), ("sum", 0), ("max", None), ("mean", 3)))
        self.fc = nn.Linear(20, 5)

    def forward(self, ids):
        return self.fc(torch.cat([bag(ids) for bag in self.bags], 1))


class WrittenThroughAView(nn.Module):
    """Writes through views of images, which dtrain lays out otherwise."""

    def __init__(self, view):
        super().__init__()
        self.conv, self.bn, self.fc, self.view = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 8 * 8, 5), view

    def forward(self, x):
        y = self.bn(self.conv(x))
        z = self.view(y)
        z.mul_(torch.arange(z.shape[1]) / 9)
        return self.fc((y * y).flatten(1)) + z.sum(1, keepdim=True)


class ViewedAs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 8 * 8, 5)

    def forward(self, x):
        y = self.bn(self.conv(x))
        return self.fc(y.view_as(torch.zeros(x.shape[0], 4 * 8 * 8)))


class TurnedInPlace(nn.Module):
    """A product that only turns its input, whose result is written to."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.first(x)
        turned = torch.einsum("nf->fn", y)
        turned.mul_(0.5)
        return self.last(y)


class MultipliedBehindAWrite(nn.Module):
    """A write behind which the value is multiplied with a parameter: no write to the parameter. And nn.RNN, which drops nothing."""

    def __init__(self):
        super().__init__()
        self.matrix, self.rnn = nn.Parameter(torch.randn(6, 4)), nn.RNN(4, 3, 2, nonlinearity="relu", batch_first=True)

    def forward(self, x):
        y = x + 0
        y.t().mul_(0.5)
        return self.rnn(torch.einsum("nf,fg->ng", y, self.matrix).unsqueeze(1))[0].squeeze(1)


class Counting(nn.Module):
    """Whole numbers that are written to in another layer than made them, and an activation in place behind it."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last, self.act = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3), nn.Hardswish(inplace=True)

    def forward(self, x):
        y = self.first(x)
        count = (y > 0).sum(1, keepdim=True)
        z = self.act(self.middle(y))
        count += 1
        z = self.last(z)
        return z / count


class DroppedInPlace(nn.Module):
    """Dropout in place, and views of what it leaves."""

    def __init__(self):
        super().__init__()
        self.net, self.last = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)), nn.Linear(4, 3)

    def forward(self, x):
        x = self.net(x)
        return self.last(x[:, ::2] * x[:, 1::2])


class WrittenThroughRows(nn.Module):
    """A write through a view of what BatchNorm gives for [N, C, L]."""

    def __init__(self):
        super().__init__()
        self.first, self.bn, self.last = nn.Linear(6, 12), nn.BatchNorm1d(3), nn.Linear(12, 3)

    def forward(self, x):
        y = self.bn(self.first(x).view(-1, 3, 4))
        z = y.flatten(1)
        z[:, :2].mul_(0.5)
        return self.last((y * y).flatten(1))


class NumbersOfSizes(nn.Module):
    """A number that follows from sizes beside a tensor, memory that is filled later, and a pool of what has no channels."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 24), nn.Linear(6, 3)

    def forward(self, x):
        y = self.first(x) / x.shape[0] ** 0.5
        y = F.max_pool2d(y.view(-1, 4, 6), 2).flatten(1)
        zeros = torch.empty_like(y)
        zeros.copy_(y.detach() * 0 + 1)
        return self.last(y * zeros) * torch.tensor(0.5) + torch.where(y[:, :3] > 0, y[:, :3], torch.tensor(0.0))


class NegativeScale(nn.Module):
    """Attention with dropout whose scale is below zero."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = self.first(x).view(-1, 3, 4).chunk(3, 1)
        y = F.scaled_dot_product_attention(q, torch.cat([k, q], 1), torch.cat([v, k], 1), dropout_p=0.2 if self.training else 0.0, scale=-0.7)
        return self.last(y.squeeze(1))


class BagOfOne(nn.Module):
    """nn.EmbeddingBag of one id for each sample."""

    def __init__(self):
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(11, 4, mode="mean", padding_idx=0), nn.Linear(4, 5)

    def forward(self, ids):
        return self.fc(self.bag(ids[:, :1]))


class OneBias(nn.Module):
    """One number is added to all outputs."""

    def __init__(self):
        super().__init__()
        self.first, self.bias = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.tensor(0.3))
        self.last, self.one = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.tensor([0.2]))

    def forward(self, x):
        return F.linear(F.linear(x, self.first, self.bias), self.last, self.one)


class WrittenPool(nn.Module):
    """What is pooled behind a ReLU is written to."""

    def __init__(self):
        super().__init__()
        self.conv, self.elu, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.ELU(inplace=True), nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        y = self.elu(F.max_pool2d(F.relu(self.conv(x)), 2) - 0.5)
        z = F.max_pool2d(F.relu(self.conv(x)), 2)
        z[:, 0] = 0
        return self.out((y + z).flatten(1))


class UnsafeChunks(nn.Module):
    """Parts that PyTorch does not call views are written to."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.first(x)
        part, _ = torch.unsafe_chunk(y, 2, 1)
        part.mul_(0.5)
        return self.last(y)


class FrozenReader(nn.Module):
    """What a frozen layer has read is written to."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        y = self.first(x) * 1.0
        z = self.frozen(y)
        y.mul_(2)
        return self.last(y + z)


class DroppedTurned(nn.Module):
    """Dropout of what lies in memory in another order, whose rows, a copy, are written to."""

    def __init__(self, in_place):
        super().__init__()
        self.first, self.drop, self.last, self.in_place = nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 3), in_place

    def forward(self, x):
        y = self.drop(self.first(x).view(-1, 2, 3).transpose(1, 2))
        z = y.flatten(1)
        if self.in_place:
            z *= 3
        else:
            z = z * 3
        return self.last(z) + y.sum(2)


class TurnedWords(nn.Module):
    """ReLU of what lies in memory in another order, with any number of words, whose rows, a copy, are written to."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(11, 4), nn.Linear(4, 5)

    def forward(self, ids):
        y = torch.relu(self.embedding(ids).transpose(1, 2))
        z = y.flatten(1)
        z.mul_(0.5)
        return self.out(y.mean(2) + z.sum(1, keepdim=True))


def flat(y):
    return y.flatten(1)


def contiguous(y):
    return y.contiguous().view(y.shape[0], -1)


def unflattened(y):
    return y.reshape(y.shape[0], -1).unflatten(1, (16, 16))[:, :, 0]


IMAGES = {"own_statistics": OwnStatistics(), "written_flat": WrittenThroughAView(flat), "written_contiguous": WrittenThroughAView(contiguous),
          "written_unflattened": WrittenThroughAView(unflattened), "viewed_as": ViewedAs(), "written_pool": WrittenPool()}
ROWS = {"turned_in_place": TurnedInPlace(), "counting": Counting(), "multiplied_behind": MultipliedBehindAWrite(), "dropped_in_place": DroppedInPlace(),
        "written_rows": WrittenThroughRows(), "numbers_of_sizes": NumbersOfSizes(), "negative_scale": NegativeScale(), "one_bias": OneBias(), "dropped_turned": DroppedTurned(True),
        "unsafe_chunks": UnsafeChunks(), "frozen_reader": FrozenReader()}
TEXTS = {"padded_elsewhere": PaddedElsewhere(), "bags": Bags(), "bag_of_one": BagOfOne()}
