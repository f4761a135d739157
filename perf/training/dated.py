"""Names of files with figures: each has the day in it, and earlier figures of the same day stay."""

import datetime
import itertools
import pathlib


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def free_stem(folder, name):
    """FOLDER/NAME-DATE, with -2, -3 and so on behind it where the folder has figures of that name already."""
    stem = pathlib.Path(folder) / f"{name}-{today()}"
    stems = itertools.chain([stem], (stem.with_name(f"{stem.name}-{number}") for number in itertools.count(2)))
    return next(free for free in stems if not any(pathlib.Path(f"{free}{ending}").exists() for ending in (".csv", ".md")))
