"""What a case of wrong or hostile input is: a command, the files it reads, and what must come of it."""

from dataclasses import dataclass

TRAIN = ("--model", "mlp", "--model-option", "hidden=8", "--limit-steps", "1", "--global-batch", "8", "--threads", "1",
         "--name", "out", "--quiet")
EVALUATE = ("evaluate", "checkpoint", "--data-root", "{given}", "--threads", "1")
EXPORT = ("export", "checkpoint", "out.h5")
STAGE = ("stage", "set", "--from")


@dataclass(frozen=True)
class Case:
    """`prepare(folder, given)` writes the input into the case's folder, in which dtrain runs; {given} stands for the folder of
    the fixtures. `codes` are the exit codes that are promised. `check(folder, given, output)` says what is wrong with an
    accepted input; empty: nothing."""

    family: str
    name: str
    arguments: tuple
    prepare: object
    codes: frozenset
    says: tuple
    check: object
    quick: bool

    @property
    def title(self):
        return f"{self.family}/{self.name}"


class Family:
    """The cases of one class, in their order."""

    def __init__(self, name):
        self.name = name
        self.cases = []

    def add(self, name, prepare, *arguments, code, says=(), check=None, quick=False):
        codes = frozenset([code] if isinstance(code, int) else code)
        self.cases.append(Case(self.name, name, tuple(map(str, arguments)), prepare, codes, tuple(says), check, quick))


def nothing(folder, given):
    """For cases whose input are the words of the command."""
