"""The largest of differences, where one that is not a number counts as larger than all others: max() passes over it."""

import math


def largest_of(gaps):
    """Of a dictionary: the name of the largest, or of one that is not a number."""
    return max(gaps, key=lambda name: (math.isnan(gaps[name]), gaps[name]))


def largest(*gaps):
    """Not a number if one of them is none, so that `assert largest(...) <= tolerance` fails."""
    return gaps[largest_of(dict(enumerate(gaps)))]
