"""Where a step of a program goes on its GPU: the difference of two of its runs, of which one has more steps.

    kernel_times.py SHORT LONG STEPS

SHORT and LONG are what device_times.so wrote of the two; the longer one has STEPS steps more. What a run does once, such as trying
algorithms and validating, is in both and so in neither. Prints the time of each kernel in a step, with its share, launches and mean.
Exit code 2 where the longer one has no more work than the other.
"""

import sys
from pathlib import Path

SHOWN = 40


def times_of(path):
    """(launches, nanoseconds) by kernel."""
    found = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        launches, ns, name = line.split(",", 2)
        found[name] = int(launches), int(ns)
    return found


def of_a_step(short, long, steps):
    """(launches, microseconds) of a step by kernel."""
    found = {}
    for name, (launches, ns) in long.items():
        before = short.get(name, (0, 0))
        found[name] = (launches - before[0]) / steps, (ns - before[1]) / steps / 1e3
    return {name: times for name, times in found.items() if times[0] > 0}


def table(found):
    whole = sum(us for _, us in found.values())
    lines = [f"{whole / 1e3:.3f} ms of a step in {sum(launches for launches, _ in found.values()):.0f} launches of {len(found)} kernels",
             "share    us        launches  mean us  kernel"]
    for name, (launches, us) in sorted(found.items(), key=lambda item: -item[1][1])[:SHOWN]:
        lines.append(f"{us / whole:5.1%} {us:10.1f} {launches:8.1f} {us / launches:8.1f}  {name[:150]}")
    return "\n".join(lines)


def main():
    short, long, steps = sys.argv[1:]
    found = of_a_step(times_of(short), times_of(long), int(steps))
    if sum(us for _, us in found.values()) <= 0:
        print("kernel_times: the longer run gave the GPU no more work than the other", file=sys.stderr)
        return 2
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
