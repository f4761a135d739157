"""A part of a script's checks, which the date draws: all of those of the longest scripts would take tests/run.sh too long.

ctest sets DTRAIN_DRAWN=today for the tests that CMakeLists.txt calls DRAWN, and leaves it out for those of --full. By hand all checks
run; DTRAIN_DRAWN=2026-11-28 draws what that day drew.
"""

import math
import os
import random
import sys
import unittest
from datetime import date
from pathlib import Path


def drawn(checks, of=Path(sys.argv[0]).name, share=1 / 2):
    """The share of `checks` that the day draws, rounded up, in their order. All where nothing is to be drawn."""
    day = os.environ.get("DTRAIN_DRAWN")
    if not day:
        return list(checks)
    day = date.today().isoformat() if day == "today" else day
    checks = list(checks)
    chosen = set(random.Random(f"{day} {of}").sample(range(len(checks)), math.ceil(share * len(checks))))
    print(f"drawn by {day}: {len(chosen)} of {len(checks)} checks of {of}", flush=True)
    return [check for place, check in enumerate(checks) if place in chosen]


class DrawnTests(unittest.TestLoader):
    """Loads the drawn share of each class."""

    def __init__(self, share=1 / 2):
        super().__init__()
        self.share = share

    def getTestCaseNames(self, testCaseClass):
        return drawn(super().getTestCaseNames(testCaseClass), testCaseClass.__qualname__, self.share)


def main(argv=None, share=1 / 2):
    """unittest.main with the drawn tests."""
    unittest.main(argv=argv, testLoader=DrawnTests(share))
