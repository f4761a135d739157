"""Some steps on every rank, moment by moment, with the communication beside the computation."""

import json

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from .recording import PHASES, Nothing
from .style import PHASE_COLOURS, chosen, figure, rank_ticks

STEPS = 3
MOST_TRACE_BYTES = 400 << 20
MOST_RANKS = 16


def spans_of_trace(run):
    """Tuples (rank, thread, phase, step, start in s, duration in s) of trace.json; None where there is none to read."""
    path = run.folder / "trace.json"
    if not path.is_file() or path.stat().st_size > MOST_TRACE_BYTES:
        return None
    try:
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        return [(int(event["pid"]), int(event["tid"]), str(event["cat"]), int(event.get("args", {}).get("step", 0)),
                 float(event["ts"]) * 1e-6, float(event["dur"]) * 1e-6) for event in events if event.get("ph") == "X"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def steps_to_show(steps, begun, ended):
    """Some in a row from the middle half, for the first ones are not like the others; of median duration there, for one
    may have a pause. The arrays have a value per step."""
    order = np.argsort(steps)
    steps, begun, ended = steps[order], begun[order], ended[order]
    windows = np.arange(max(1, len(steps) - STEPS + 1))
    middle = windows[len(windows) // 4:len(windows) - len(windows) // 4]
    duration = ended[np.minimum(middle + STEPS, len(steps)) - 1] - begun[middle]
    first = middle[np.argsort(duration)[len(middle) // 2]]
    return steps[first:first + STEPS]


def boxes(axes, spans, low, high):
    """Rectangles of (start, duration, phase) from `low` to `high`, the later ones upon those before."""
    corners = [[(at, low), (at, high), (at + long, high), (at + long, low)] for at, long, _ in spans]
    colours = [PHASE_COLOURS.get(phase, PHASE_COLOURS["other"]) for _, _, phase in spans]
    if corners:
        axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0, rasterized=len(corners) > 2000))


def drawn(ranks, spans_of, note):
    """A figure with two lanes for each rank: `spans_of(rank)` gives those of the compute thread and those beside it."""
    lanes = [(rank, *spans_of(rank)) for rank in ranks]
    lanes = [lane for lane in lanes if lane[1] or lane[2]]
    everything = [span for _, computed, beside in lanes for span in [*computed, *beside]]
    total = {phase: sum(long for _, long, of in everything if of == phase) for _, _, phase in everything}
    phases = {phase for phase, long in total.items() if long > 2e-3 * sum(total.values())}  # those that can be seen
    if not phases:
        raise Nothing("No step that was recorded took any time.")
    lanes = [(rank, *([span for span in spans if span[2] in phases] for spans in lane)) for rank, *lane in lanes]
    everything = [span for _, computed, beside in lanes for span in [*computed, *beside]]
    begin = min(at for at, _, _ in everything)
    in_ms = lambda spans: [(1e3 * (at - begin), 1e3 * long, phase) for at, long, phase in spans]  # noqa: E731
    new, axes = figure(height=min(8.0, 1.4 + 0.55 * len(lanes)))
    for place, (_, computed, beside) in enumerate(lanes):
        # Of nested spans the inner lies on the outer.
        boxes(axes, sorted(in_ms(computed), key=lambda span: -span[1]), place - 0.4, place + 0.12)
        boxes(axes, in_ms(beside), place + 0.17, place + 0.4)
    axes.set_xlim(0, max(1e3 * (at + long - begin) for at, long, _ in everything))
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set(xlabel=f"ms{note}", ylabel="rank")
    rank_ticks(axes.yaxis, [rank for rank, _, _ in lanes])
    axes.grid(axis="y", visible=False)
    axes.legend(handles=[Patch(color=PHASE_COLOURS[phase], label=phase.replace("_", " "))
                         for phase in PHASE_COLOURS if phase in phases],
                loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return new


def last_time(spans, marks):
    """Of a step that was done again after a loss or a resumption the spans of the last time."""
    begins = sorted(mark.time_s for mark in marks)
    parts = np.searchsorted(begins, [span[4] for span in spans])
    last = {}
    for span, part in zip(spans, parts):
        last[span[3]] = max(part, last.get(span[3], 0))
    return [span for span, part in zip(spans, parts) if part == last[span[3]]]


def from_trace(spans, marks):
    of_steps = last_time([span for span in spans if span[3] > 0], marks)
    if of_steps:
        numbers, place = np.unique([span[3] for span in of_steps], return_inverse=True)
        begun, ended = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
        np.minimum.at(begun, place, [span[4] for span in of_steps])
        np.maximum.at(ended, place, [span[4] + span[5] for span in of_steps])
        wanted = set(steps_to_show(numbers, begun, ended).tolist())
        shown = [span for span in of_steps if span[3] in wanted]
        note = f", steps {min(wanted)} to {max(wanted)}"
    else:  # of a version that did not write them
        middle = np.median([span[4] for span in spans])
        shown, note = sorted(spans, key=lambda span: abs(span[4] - middle))[:2000], ", from the middle of the trace"
    ranks = chosen(sorted({span[0] for span in shown}), MOST_RANKS)

    def spans_of(rank):
        mine = [(at, long, phase, thread) for of, thread, phase, _, at, long in shown if of == rank]
        return ([span[:3] for span in mine if span[3] == 0], [span[:3] for span in mine if span[3] != 0])
    return drawn(ranks, spans_of, note)


def from_steps(run):
    """The phases one after another as far as their sums tell: their order within a step was not recorded."""
    steps = run.need_steps()
    if not np.isfinite(steps["ended_at_s"]).any():
        raise Nothing("This run's file has neither a trace nor the times at which its steps ended: an older dtrain wrote it.")
    known = np.isfinite(steps["ended_at_s"])
    ended = steps["ended_at_s"][known]
    wanted = steps_to_show(steps["step"][known].astype(int), ended - steps["time_s"][known], ended)
    ranks = chosen([rank.rank for rank in run.ranks if len(rank.steps)], MOST_RANKS)
    by_rank = {rank.rank: rank for rank in run.ranks}

    def spans_of(rank):
        computed, beside = [], []
        for row in by_rank[rank].steps[np.isin(by_rank[rank].steps["step"], wanted)]:
            begin = at = row["ended_at_s"] - row["time_s"]
            for phase in PHASES:
                computed.append((at, row[f"{phase}_time_s"], phase))
                at += row[f"{phase}_time_s"]
            # Operations beside one another add up to more than the step has time: drawn no longer than it.
            beside.append((begin, min(row["communication_time_s"], row["time_s"]), "communication"))
        return computed, beside
    return drawn(ranks, spans_of, f", steps {wanted[0]} to {wanted[-1]}; order within a step not recorded")


def timeline(run):
    spans = spans_of_trace(run)
    return from_trace(spans, run.marks) if spans else from_steps(run)
