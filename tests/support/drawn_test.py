"""What drawn.py draws: all without a day, the larger half by a day, the same by the same day, and in time every check."""

import os
import unittest
from unittest import mock

from drawn import DrawnTests, drawn

CHECKS = list("abcdefg")


def of_day(day, checks=CHECKS, **how):
    with mock.patch.dict(os.environ, {"DTRAIN_DRAWN": day}):
        return drawn(checks, "a script", **how)


class DrawnTest(unittest.TestCase):
    def test_without_a_day_all_run(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("DTRAIN_DRAWN", None)
            self.assertEqual(drawn(CHECKS), CHECKS)

    def test_a_day_draws_the_larger_half_in_order(self):
        self.assertEqual(len(of_day("today")), 4)
        self.assertEqual(of_day("today"), sorted(of_day("today")))
        self.assertEqual(of_day("2026-11-28"), of_day("2026-11-28"))
        self.assertEqual(of_day("2026-11-28", ["alone"]), ["alone"])
        self.assertEqual(len(of_day("today", share=1 / 3)), 3)

    def test_thirty_days_draw_every_check(self):
        self.assertEqual(set(CHECKS), {check for day in range(1, 31) for check in of_day(f"2026-11-{day:02}")})

    def test_classes_are_drawn_apart(self):
        with mock.patch.dict(os.environ, {"DTRAIN_DRAWN": "2026-11-28"}):
            self.assertEqual(len(DrawnTests().getTestCaseNames(DrawnTest)), 2)


if __name__ == "__main__":
    unittest.main()
