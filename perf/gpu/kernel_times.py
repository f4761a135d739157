"""Sums the time of each kernel in what `ncu --csv --metrics gpu__time_duration.sum` prints, read from standard input: the kernels that
take most, with their share, launches and mean. Exit code 2 where there is no kernel in it.
"""

import collections
import csv
import sys

SHOWN = 30
TO_US = {"second": 1e6, "msecond": 1e3, "usecond": 1.0, "nsecond": 1e-3, "s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


def times_of(lines):
    """Microseconds of each launch by kernel. ncu says other things before its table."""
    found = collections.defaultdict(list)
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for row in csv.DictReader(lines[start:]):
        value = (row.get("Metric Value") or "").replace(",", "")
        if row.get("Metric Name") == "gpu__time_duration.sum" and value:
            found[row["Kernel Name"]].append(float(value) * TO_US[row["Metric Unit"]])
    return found


def table(found):
    whole = sum(map(sum, found.values()))
    lines = [f"{whole / 1e3:.2f} ms in {sum(map(len, found.values()))} launches of {len(found)} kernels",
             "share    ms       launches  mean us  kernel"]
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        lines.append(f"{sum(times) / whole:5.1%} {sum(times) / 1e3:8.3f} {len(times):9d} {sum(times) / len(times):8.1f}  {name[:120]}")
    return "\n".join(lines)


def main():
    found = times_of(sys.stdin.read().splitlines())
    if not found:
        print("kernel_times: there is no gpu__time_duration.sum of a kernel in the input", file=sys.stderr)
        return 2
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
