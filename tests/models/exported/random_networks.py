"""Networks drawn by chance, as plain PyTorch modules of a few thousand parameters: sequences, branches and sums of the layers and
functions that people write, with odd sizes, views, operators in place, shared weights and values that are used late.

    network(seed)                 a Drawn: its module, what it takes, and the names of its parts
    network(seed, parts=["lstm"]) only with these parts, where they fit

The same seed gives the same module and the same weights; `dropout` False: with every probability 0.
"""

import random
from dataclasses import dataclass, field

import torch
from torch import nn

from random_image_parts import IMAGE_PARTS
from random_parts import BranchOf, Do, LateOf, SharedOf, SumOf
from random_row_parts import ROW_PARTS, TEXT_PARTS, to_row, to_sequence
from random_sequence_parts import SEQUENCE_PARTS

CLASSES = 10
WORDS = 40
LENGTH = 7  # words of a text, and steps of a series
FEATURES = 6  # of each step
IMAGE = (3, 11, 9)
LONGEST_ROW = 100  # of what a part takes: longer ones are narrowed
MOST_NUMBERS = 700  # of a sample between two parts: larger ones are pooled


@dataclass
class Drawn:
    seed: int
    data: str  # image, text or series
    module: nn.Module
    parts: list = field(default_factory=list)  # names, in their order

    def example(self, samples=5):
        generator = torch.Generator().manual_seed(self.seed)
        if self.data == "text":
            return torch.randint(1, WORDS, (samples, LENGTH), generator=generator)
        return torch.randn((samples, *(IMAGE if self.data == "image" else (LENGTH, FEATURES))), generator=generator)


class Chance(random.Random):
    """Draws, and the probability that dropout gets."""

    def __init__(self, seed, dropout):
        super().__init__(seed)
        self.dropout = dropout

    def yes(self, share=0.5):
        return self.random() < share

    def p(self):
        drawn = self.choice((0.1, 0.25, 0.5))
        return drawn if self.dropout else 0.0


class Drawing:
    """One network: `names` are those of the parts so far."""

    def __init__(self, seed, dropout, parts):
        self.chance, self.only, self.names = Chance(seed, dropout), parts, []

    def table(self, shape):
        return {3: IMAGE_PARTS, 2: SEQUENCE_PARTS, 1: ROW_PARTS}[len(shape)]

    def part(self, shape, keeps=False):
        """A part that takes this shape, and what it returns; with `keeps` one that returns the same."""
        if len(shape) == 1 and shape[0] > LONGEST_ROW and not keeps:
            self.names.append("narrowed")
            return nn.Linear(shape[0], 24), (24,)
        table = self.table(shape)
        names = [name for name in table if self.only is None or name in self.only] or list(table)
        for _ in range(40):
            name = self.chance.choice(names)
            made = table[name](self.chance, shape)
            if made is None or (keeps and tuple(made[1]) != tuple(shape)) or max(made[1]) > 64:
                continue
            self.names.append(name)
            return made
        return nn.Identity(), shape

    def several(self, shape, count, keeps=False):
        parts = []
        for _ in range(count):
            module, shape = self.part(shape, keeps)
            parts.append(module)
        return nn.Sequential(*parts), shape

    def block(self, shape, depth):
        """A part, or a structure of parts."""
        kind = self.chance.choices(("part", "sum", "branch", "shared", "late"), (6, 1.5, 1, 0.7, 0.7))[0] if depth else "part"
        if kind == "part":
            return self.part(shape)
        self.names.append(kind)
        if kind in ("sum", "shared"):
            inner, _ = self.several(shape, self.chance.randint(1, 2), keeps=True)
            if kind == "shared" and any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in inner.modules()):
                return inner, shape
            return (SumOf(self.chance, inner) if kind == "sum" else SharedOf(self.chance, inner)), shape
        if kind == "branch":
            one, first = self.several(shape, self.chance.randint(1, 2))
            other, second = self.several(shape, self.chance.randint(1, 2))
            return BranchOf.make(self.chance, one, first, other, second)
        inner, after = self.block(shape, depth - 1)
        return LateOf.make(self.chance, inner, after)

    def blocks(self, shape, count):
        parts = []
        for _ in range(count):
            module, shape = self.block(shape, 2)
            parts.append(module)
            if torch.Size(shape).numel() > MOST_NUMBERS and len(shape) == 3:
                parts.append(nn.MaxPool2d(2, ceil_mode=True))
                shape = (shape[0], (shape[1] + 1) // 2, (shape[2] + 1) // 2)
        return nn.Sequential(*parts), shape

    def whole(self, data):
        chance = self.chance
        stages = []
        if data == "text":
            name = chance.choice([key for key in TEXT_PARTS if self.only is None or key in self.only] or list(TEXT_PARTS))
            self.names.append(name)
            module, shape = TEXT_PARTS[name](chance, (LENGTH, WORDS))
            stages.append(module)
        else:
            shape = IMAGE if data == "image" else (LENGTH, FEATURES)
            # A byte may be the mean of its image to the bit: behind a norm it would lie on the kink of a ReLU.
            stages.append(Do(lambda _, x: x + 0.1 * x.sin()))
        if len(shape) > 1:
            module, shape = self.blocks(shape, chance.randint(1, 4))
            stages.append(module)
        if len(shape) == 3 and chance.yes(0.3):
            module, shape = to_sequence(chance, shape)
            stages.append(module)
            module, shape = self.blocks(shape, chance.randint(1, 2))
            stages.append(module)
        if len(shape) > 1:
            module, shape = to_row(chance, shape)
            stages.append(module)
        module, shape = self.blocks(shape, chance.randint(0, 3))
        stages += [module, nn.Linear(shape[0], CLASSES, bias=chance.yes(0.9))]
        return nn.Sequential(*stages)


def freeze(chance, module):
    """Some parameters that do not train, as of a network that is tuned."""
    parameters = list(module.parameters())[:-2]
    for parameter in parameters:
        if chance.yes(0.25):
            parameter.requires_grad_(False)


def network(seed, dropout=True, parts=None, data=None):
    drawing = Drawing(seed, dropout, parts)
    torch.manual_seed(seed)
    chosen = drawing.chance.choice(("image", "text", "series"))
    module = drawing.whole(data or chosen)
    if drawing.chance.yes(0.15):
        drawing.names.append("frozen")
        freeze(drawing.chance, module)
    return Drawn(seed, data or chosen, module, drawing.names)
