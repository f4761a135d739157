"""The largest of differences is not a number as soon as one of them is none, wherever it stands."""

import math
import unittest

from gaps import largest, largest_of

NAN = float("nan")


class GapsTest(unittest.TestCase):
    def test_of_numbers(self):
        self.assertEqual(largest(1.0, 3.0, 2.0), 3.0)
        self.assertEqual(largest(*(value for value in (0.0,))), 0.0)
        self.assertEqual(largest(1.0, math.inf), math.inf)
        self.assertEqual(largest_of({"loss": 1.0, "norm": 3.0}), "norm")

    def test_what_is_not_a_number_is_above_all(self):
        for gaps in (NAN, 1.0, 3.0), (1.0, NAN, 3.0), (1.0, 3.0, NAN), (math.inf, NAN):
            self.assertTrue(math.isnan(largest(*gaps)), gaps)
            self.assertFalse(largest(*gaps) <= 9, gaps)
        for name in ("first", "second", "third"):
            self.assertEqual(largest_of({"first": 1.0, "second": 2.0, "third": 3.0} | {name: NAN}), name)


if __name__ == "__main__":
    unittest.main()
