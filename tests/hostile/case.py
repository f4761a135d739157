"""What a case of wrong or hostile input is: a command, the files it reads, and what must come of it."""

import inspect
from dataclasses import dataclass

TRAIN = ("--model", "mlp", "--model-option", "hidden=8", "--limit-steps", "1", "--global-batch", "8", "--threads", "1",
         "--name", "out", "--quiet")
EVALUATE = ("evaluate", "checkpoint", "--data-root", "{given}", "--threads", "1")
EXPORT = ("export", "checkpoint", "out.h5")
STAGE = ("stage", "set", "--from")


@dataclass(frozen=True)
class Case:
    """`prepare(folder, given)` writes the input into the case's folder, in which dtrain runs; {given} stands for the folder of
    the fixtures. `codes` are the exit codes that are promised. `says` are words of the refusal; where only 0 is promised, of what
    is printed. `check(folder, given, output)` says what is wrong with an accepted input, `after(folder, given, output)` what is
    wrong with the folder however the command ended; empty: nothing."""

    family: str
    name: str
    arguments: tuple
    prepare: object
    codes: frozenset
    says: tuple
    check: object
    after: object
    quick: bool

    @property
    def title(self):
        return f"{self.family}/{self.name}"


class Family:
    """The cases of one class, in their order."""

    def __init__(self, name):
        self.name = name
        self.cases = []
        self._checks = {}  # FILE:LINE of each call of add() with a check, and whether the check can run in a case of that line

    def add(self, name, prepare, *arguments, code, says=(), check=None, after=None, quick=False):
        codes = frozenset([code] if isinstance(code, int) else code)
        self.cases.append(Case(self.name, name, tuple(map(str, arguments)), prepare, codes, tuple(says), check, after, quick))
        if check:
            caller = inspect.currentframe().f_back
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            self._checks[place] = self._checks.get(place, False) or 0 in codes

    def idle_checks(self):
        """The places whose check cannot run: none of their cases may be accepted."""
        return [place for place, runs in self._checks.items() if not runs]


def nothing(folder, given):
    """For cases whose input are the words of the command."""
