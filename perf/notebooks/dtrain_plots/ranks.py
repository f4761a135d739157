"""What the ranks did: their phases, when they waited, memory, bytes between them."""

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import LogLocator

from .recording import PHASES, WAITING, Nothing
from .style import (MOST_LABELS, MOST_LINES, PHASE_COLOURS, RUN_COLOURS, bytes_along, bytes_axis, bytes_text, chosen, draw_marks,
                    figure, percent_axis, rank_ticks, whole_numbers)

MOST_COLUMNS = 400  # of the map of waiting


def seconds_of(rank, phase):
    """Of all epochs, or where none has ended of all steps."""
    rows = rank.epochs if len(rank.epochs) else rank.steps
    return float(rows[f"{phase}_time_s"].sum())


def phases(run):
    ranks = run.need_ranks()
    many = len(ranks) > 3 * MOST_LABELS
    new, axes = figure(height=3.6 if many else max(2.0, 0.8 + 0.32 * len(ranks)))
    places = np.arange(len(ranks))
    before = np.zeros(len(ranks))
    whole = sum(seconds_of(rank, phase) for rank in ranks for phase in PHASES)
    for phase in PHASES:
        seconds = np.array([seconds_of(rank, phase) for rank in ranks])
        if seconds.sum() <= 5e-4 * whole:  # too little to be seen
            continue
        how = {"color": PHASE_COLOURS[phase], "label": phase.replace("_", " ")}
        if many:
            axes.bar(places, seconds, 1.0, bottom=before, **how)
        else:
            axes.barh(places, seconds, 0.72, left=before, **how)
        before += seconds
    if many:
        axes.set(xlabel="rank", ylabel="s")
        rank_ticks(axes.xaxis, [rank.rank for rank in ranks])
        axes.margins(x=0)
    else:
        axes.set(xlabel="s of training", ylabel="rank")
        rank_ticks(axes.yaxis, [rank.rank for rank in ranks])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return new


def waiting_map(run):
    """[ranks, columns]: the part of a step that a rank waited; the first step of each column, and the ranks."""
    ranks = [rank for rank in run.need_ranks() if len(rank.steps)]
    numbers = run.need_steps()["step"]
    columns = min(len(numbers), MOST_COLUMNS)
    column_of = np.minimum((np.arange(len(numbers)) * columns) // len(numbers), columns - 1)
    waited, spent = np.zeros((len(ranks), columns)), np.zeros((len(ranks), columns))
    for row, rank in enumerate(ranks):
        place = column_of[np.searchsorted(numbers, rank.steps["step"])]
        np.add.at(waited[row], place, sum(rank.steps[f"{phase}_time_s"] for phase in WAITING))
        np.add.at(spent[row], place, rank.steps["time_s"])
    share = np.divide(waited, spent, out=np.full_like(waited, np.nan), where=spent > 0)
    return share, numbers[np.searchsorted(column_of, np.arange(columns))], [rank.rank for rank in ranks]


def waiting(run):
    if max(run.world_size, len([rank for rank in run.ranks if len(rank.steps)])) < 2:
        raise Nothing("A single rank waits for no other.")
    share, first_steps, ranks = waiting_map(run)
    known = share[np.isfinite(share)]
    most = max(0.05, float(np.percentile(known, 99))) if len(known) else 1.0
    new, axes = figure(height=min(6.0, max(2.2, 1.2 + 0.25 * len(ranks))))
    last = run.steps["step"][-1]
    edges = np.append(first_steps, last + 1) - 0.5
    image = axes.pcolormesh(edges, np.arange(len(ranks) + 1) - 0.5, np.ma.masked_invalid(share), cmap="YlOrRd", vmin=0,
                            vmax=most, rasterized=True)
    axes.set_facecolor("#e9ebee")
    axes.set(xlabel="step", ylabel="rank")
    axes.grid(visible=False)
    axes.invert_yaxis()
    rank_ticks(axes.yaxis, ranks)
    whole_numbers(axes.xaxis)
    bar = new.colorbar(image, ax=axes, format=percent_axis, extend="max" if len(known) and known.max() > most else "neither")
    bar.set_label("waiting, part of the step")
    bar.outline.set_visible(False)
    draw_marks(axes, run.marks, lambda mark: mark.step)
    return new


def memory(run):
    ranks = [rank for rank in run.need_ranks() if len(rank.epochs)]
    if not ranks:
        raise Nothing("No epoch has ended: memory is recorded with each.")
    columns = ["peak_memory_bytes", "device_peak_memory_bytes"]
    used = [column for column in columns if any((rank.epochs[column] > 0).any() for rank in ranks)]
    new, (left, right) = figure(2, height=3.2)
    places = np.arange(len(ranks))
    for number, column in enumerate(used):
        peaks = np.array([rank.epochs[column].max() for rank in ranks], float)
        width = 0.72 / len(used)
        how = {"color": RUN_COLOURS[number], "label": "of its process" if column == columns[0] else "of its GPU"}
        if len(ranks) > 2 * MOST_LABELS:
            left.plot(places, peaks, ".", **how)
        else:
            left.bar(places + (number - (len(used) - 1) / 2) * width, peaks, width, **how)
        for rank in chosen(ranks, MOST_LINES):
            right.plot(rank.epochs["epoch"], rank.epochs[column], color=RUN_COLOURS[number], lw=1.0, alpha=0.7,
                       marker="o", ms=3)
    left.set(xlabel="rank", ylabel="peak memory")
    rank_ticks(left.xaxis, [rank.rank for rank in ranks])
    left.grid(axis="x", visible=False)
    right.set(xlabel=run.period, ylabel="peak up to then")
    whole_numbers(right.xaxis)
    most = max(rank.epochs[column].max() for rank in ranks for column in used)
    for axes in (left, right):
        bytes_along(axes.yaxis, most)
        axes.set_ylim(0, (1.3 if len(used) > 1 else 1.08) * most)
    if len(used) > 1:
        left.legend(loc="upper left")
    return new


def traffic_matrix(run):
    """[ranks, ranks]: bytes from the one to the other in all epochs, and the ranks. Each pair is counted at both ends;
    where one end is missing, as of a rank that was killed, the other's counts."""
    size = 1 + max([run.world_size - 1, *(rank.rank for rank in run.ranks)])
    told_by_sender, told_by_receiver = np.zeros((size, size)), np.zeros((size, size))
    recorded = False
    for rank in run.ranks:
        if rank.traffic is None:
            continue
        recorded = True
        np.add.at(told_by_sender[rank.rank], rank.traffic["peer"], rank.traffic["bytes_sent"])
        np.add.at(told_by_receiver[:, rank.rank], rank.traffic["peer"], rank.traffic["bytes_received"])
    if not recorded:
        raise Nothing("This run's file lacks the bytes by pair: an older dtrain wrote it.")
    return np.maximum(told_by_sender, told_by_receiver), list(range(size))


def traffic(run):
    if max(run.world_size, len(run.ranks)) < 2:
        raise Nothing("A single rank sends nothing.")
    run.need_epochs()
    sent, ranks = traffic_matrix(run)
    if not sent.any():
        raise Nothing("No rank has sent another a byte in an epoch that has ended.")
    side = min(7.0, max(3.2, 1.6 + 0.42 * len(ranks)))
    new, axes = figure(width=side + 1.6, height=side)
    least, most = sent[sent > 0].min(), sent.max()
    scale = LogNorm(least / 2, most) if most > 20 * least else Normalize(0, most)
    image = axes.imshow(np.ma.masked_less_equal(sent, 0), cmap="Blues", norm=scale, interpolation="nearest")
    axes.set_facecolor("#f3f4f6")
    axes.grid(visible=False)
    axes.set(xlabel="to rank", ylabel="from rank")
    rank_ticks(axes.xaxis, ranks)
    rank_ticks(axes.yaxis, ranks)
    if len(ranks) <= 8:
        for row, column in np.argwhere(sent > 0):
            value = sent[row, column]
            axes.text(column, row, bytes_text(value).replace(" ", "\n"), ha="center", va="center", fontsize=7,
                      color="white" if scale(value) > 0.55 else "#30343a")
    bar = new.colorbar(image, ax=axes, shrink=0.85)
    if isinstance(scale, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(1024 ** 0.5 if most > 2000 * least else 2))
        bar.minorticks_off()
        bar.ax.yaxis.set_major_formatter(bytes_axis)
    else:
        bytes_along(bar.ax.yaxis, most)
    bar.set_label("sent in all epochs")
    bar.outline.set_visible(False)
    return new
