"""What `stage` makes of a date, computed by Python's datetime: the parts that docs/data.md lists."""

import datetime
import math


def part_of_date(part, text):
    """`text`: ISO 8601 without an offset."""
    when = datetime.datetime.fromisoformat(text)
    day = datetime.timedelta(days=1)
    if part == "years":
        return (when - datetime.datetime(1970, 1, 1)) / day / 365.2425
    midnight = when.replace(hour=0, minute=0, second=0, microsecond=0)
    new_year = datetime.datetime(when.year, 1, 1)
    turn, way = part.split("_")
    share = {"year": lambda: (when - new_year) / (datetime.datetime(when.year + 1, 1, 1) - new_year),
             "week": lambda: (when.weekday() + (when - midnight) / day) / 7,
             "day": lambda: (when - midnight) / day}[turn]()
    return {"sin": math.sin, "cos": math.cos}[way](2 * math.pi * share)
