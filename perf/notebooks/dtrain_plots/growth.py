"""What a step costs as it grows, from perf/results/growth: figures, and what more ranks would take.

The prediction is three numbers of the machine and two of the model. A rank computes a + b n seconds for n samples. An all_reduce of
s bytes takes what is measured within a node, and between m nodes the faster of a ring and a tree over links of latency l and
bandwidth w: 2 (m - 1) l + 2 (m - 1) / m s / w, or 2 ceil(log2 m) (l + s / w) (Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005). The sums hide behind the backward pass, two thirds of computing, but for the
last bucket. A short message about losses and norms at the end of each step hides behind nothing.
"""

import csv
import math
import statistics
from dataclasses import dataclass

import numpy as np

from .recording import Nothing
from .style import RUN_COLOURS, figure

BACKWARD = 2 / 3
BUCKETS = 4  # of equal size: the last one hides behind nothing
CLOSING_BYTES = 128
TEXT = {"series", "model"}


def read(path):
    """Rows as dictionaries of numbers; what a row lacks is 0."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [{key: value if key in TEXT else float(value or 0) for key, value in row.items()} for row in rows]


def medians(rows, series, **wanted):
    """One row for each case of a series: its step in the median, with the least and the most."""
    found = {}
    for row in rows:
        if row["series"] == series and all(row[key] == value for key, value in wanted.items()):
            found.setdefault(tuple(value for key, value in row.items() if key not in ("step_s", "peak_mib")), []).append(row)
    return [same[0] | {"step_s": statistics.median(row["step_s"] for row in same), "least_s": min(row["step_s"] for row in same),
                       "most_s": max(row["step_s"] for row in same), "peak_mib": max(row["peak_mib"] for row in same)} for same in found.values()]


@dataclass(frozen=True)
class Link:
    """Between two nodes: seconds, and bytes per second."""

    latency_s: float
    bytes_per_s: float

    def all_reduce_s(self, size, nodes):
        if nodes < 2:
            return 0.0
        ring = 2 * (nodes - 1) * self.latency_s + 2 * (nodes - 1) / nodes * size / self.bytes_per_s
        tree = 2 * math.ceil(math.log2(nodes)) * (self.latency_s + size / self.bytes_per_s)
        return min(ring, tree)


LINKS = {"100 Gbit/s, 2 us": Link(2e-6, 12.5e9), "10 Gbit/s, 20 us": Link(20e-6, 1.25e9), "1 Gbit/s, 500 us": Link(500e-6, 0.125e9)}


@dataclass(frozen=True)
class Computing:
    """Seconds of a rank alone on its core: fixed, and of each sample."""

    fixed_s: float
    sample_s: float

    def of(self, samples):
        return self.fixed_s + self.sample_s * samples


def computing(rows, model):
    """From the steps of one rank, each as important as the others whatever it takes."""
    found = medians(rows, "batch", model=model, ranks=1)
    batches, seconds = (np.array([row[key] for row in found]) for key in ("batch", "step_s"))
    weights = 1 / seconds
    fixed, sample = np.linalg.lstsq(np.stack([weights, batches * weights], 1), np.ones(len(found)), rcond=None)[0]
    return Computing(max(float(fixed), 0.0), float(sample))


def within_node_s(rows, size):
    """An all_reduce of two ranks, between measured sizes in proportion."""
    found = sorted((row["bytes"], row["step_s"]) for row in rows if row["series"] == "exchange")
    sizes, seconds = zip(*found)
    return float(np.interp(size, sizes, seconds)) if size <= sizes[-1] else seconds[-1] * size / sizes[-1]


def step_s(rows, compute_s, size, ranks_in_node, nodes, link):
    """Of computing, of sums of so many bytes that hide behind two thirds of it but for the last bucket, and of the last message."""
    def sum_s(of):
        within = within_node_s(rows, of) * math.log2(ranks_in_node) if ranks_in_node > 1 else 0.0
        return within + (link.all_reduce_s(of, nodes) if nodes > 1 else 0.0)
    sums = sum_s(size)
    return compute_s + max(sums / BUCKETS, sums - BACKWARD * compute_s) + sum_s(CLOSING_BYTES)


def predicted(rows, row):
    """Seconds of the step that a row has measured, from what other rows have: those of one rank, and of exchanges."""
    each = computing(rows, row["model"]).of(row["batch"] / row["ranks"]) * max(1.0, row["ranks"] / row["cores"])
    link = Link(row["latency_ms"] * 1e-3, row["gbit_per_s"] * 1e9 / 8) if row["nodes"] > 1 else None
    return step_s(rows, each, 4 * row["parameters"], row["ranks"] / row["nodes"], int(row["nodes"]), link)


def comparisons(rows):
    """(row, predicted seconds, error in %) of all that was measured on more than one rank with the networks whose computing is known."""
    known = {row["model"] for row in rows if row["series"] == "batch"}
    cases = [row for series in ("batch", "ranks", "nodes") for row in medians(rows, series) if row["model"] in known and row["ranks"] > 1 and not row["hidden"]]
    made = [(row, predicted(rows, row)) for row in cases]
    return [(row, seconds, 100 * (seconds / row["step_s"] - 1)) for row, seconds in made]


def line(axes, found, x, y, label, colour, scale=1.0, **how):
    found = sorted(found, key=lambda row: row[x])
    if found:
        axes.plot([row[x] for row in found], [row[y] * scale for row in found], marker="o", ms=4, label=label, color=colour, **how)


def growth(rows):
    """Four figures in one: parameters, batch, ranks, nodes."""
    new, (left, memory, batch, ranks) = figure(2, 2, height=7.0)
    found = medians(rows, "parameters")
    line(left, found, "parameters", "step_s", "mlp, 2 ranks, batch 64", RUN_COLOURS[0], 1e3)
    line(memory, found, "parameters", "peak_mib", "most memory of a rank", RUN_COLOURS[0])
    sizes = np.array(sorted(row["parameters"] for row in found))
    memory.plot(sizes, 16 * sizes / 2**20, color=RUN_COLOURS[6], ls=":", label="16 bytes for each parameter")
    for number, model in enumerate(("mlp", "cnn")):
        for count, style in ((1, "--"), (2, "-")):
            line(batch, medians(rows, "batch", model=model, ranks=count), "batch", "step_s", f"{model}, {count} rank{'s' * (count > 1)}", RUN_COLOURS[number], 1e3, ls=style)
        line(ranks, medians(rows, "ranks", model=model), "ranks", "step_s", f"{model}, batch 512", RUN_COLOURS[number], 1e3)
    for axes, x in ((left, "parameters"), (memory, "parameters"), (batch, "batch of all ranks"), (ranks, "ranks on two cores")):
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel="ms of a step")
        axes.legend(handlelength=3)
    memory.set_ylabel("MiB")
    ranks.set_xticks(counts := sorted({row["ranks"] for row in medians(rows, "ranks")}), [f"{count:.0f}" for count in counts])
    ranks.minorticks_off()
    return new


def checked(rows):
    """What was measured against what was predicted."""
    found = comparisons(rows)
    if not found:
        raise Nothing("Nothing was measured on more than one rank.")
    new, axes = figure(width=5.5, height=4.2)
    for number, series in enumerate(("batch", "ranks", "nodes")):
        mine = [(seconds * 1e3, row["step_s"] * 1e3) for row, seconds, _ in found if row["series"] == series]
        if mine:
            axes.plot(*zip(*mine), ls="", marker="o", color=RUN_COLOURS[number], label=f"more {series}")
    ends = [min(seconds for _, seconds, _ in found) * 1e3, max(seconds for _, seconds, _ in found) * 1e3]
    axes.plot(ends, ends, color="#8a8f98", lw=1)
    axes.set(xscale="log", yscale="log", xlabel="predicted ms of a step", ylabel="measured")
    axes.legend()
    return new


def weak(rows, model, batch, link, ranks_per_node, most=1024):
    """(ranks, predicted seconds, efficiency) with `batch` samples on each rank, each on a core of its own."""
    one = computing(rows, model).of(batch)
    size = 4 * next(row["parameters"] for row in rows if row["model"] == model and not row["hidden"])
    counts = [2 ** power for power in range(int(math.log2(most)) + 1)]
    made = []
    for count in counts:
        seconds = step_s(rows, one, size, min(count, ranks_per_node), -(-count // ranks_per_node), link)
        made.append((count, seconds, one / seconds))
    return made


def ahead(rows, ranks_per_node=8, batch=64):
    """Efficiency of each model's steps up to 1,024 ranks, with each link."""
    new, axes = figure(width=6.5, height=4.0)
    for number, model in enumerate(dict.fromkeys(row["model"] for row in rows if row["series"] == "batch")):
        for style, (name, link) in zip(("-", "--", ":"), LINKS.items()):
            made = weak(rows, model, batch, link, ranks_per_node)
            axes.plot([count for count, _, _ in made], [efficiency for _, _, efficiency in made], ls=style, color=RUN_COLOURS[number], label=f"{model}, {name}")
    axes.set(xlabel=f"ranks, {ranks_per_node} on a node, batch {batch} each", ylabel="efficiency, predicted", ylim=(0, 1.05))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.legend(handlelength=3)
    return new
