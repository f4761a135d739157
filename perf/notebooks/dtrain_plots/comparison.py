"""Several runs beside one another: their curves, speed, phases, and in which options they differ."""

import numpy as np

from .curves import draw_known
from .recording import PHASES, Nothing
from .style import PHASE_COLOURS, RUN_COLOURS, figure, grouped_axis, log_if_positive, percent_axis, plain, whole_numbers

# How a run is told, and what differs by itself.
NO_SETTINGS = {"name", "output", "overwrite", "quiet", "resume"}


def colours(runs):
    return {run.name: RUN_COLOURS[i % len(RUN_COLOURS)] for i, run in enumerate(runs)}


def named_apart(runs):
    """The same runs; those of one name are called by their folders."""
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.about["name"] = str(run.folder)
    return runs


def differing_options(runs):
    """Rows (option, value of each run), of the options that are not the same in all; None where one does not have it."""
    everything = sorted({name for run in runs for name in run.options} - NO_SETTINGS)
    rows = [("ranks", [run.world_size for run in runs])]
    rows += [(name, [run.options.get(name) for run in runs]) for name in everything]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values[1:])]


def with_epochs(runs):
    found = [run for run in runs if len(run.epochs)]
    if not found:
        raise Nothing("No epoch of any of these runs has ended.")
    return found


def losses(runs):
    found = with_epochs(runs)
    new, (left, right) = figure(2, height=3.8)
    of = colours(runs)
    everything = []
    for run in found:
        passed = np.cumsum(run.epochs["train_time_s"] + run.epochs["validation_time_s"])
        for axes, x in ((left, run.epochs["epoch"]), (right, passed)):
            draw_known(axes, x, run.epochs["train_loss"], color=of[run.name], marker="o", ms=3, label=plain(run.name))
            draw_known(axes, x, run.epochs["validation_loss"], color=of[run.name], ls="--", marker="s", ms=3)
        everything += [run.epochs["train_loss"], run.epochs["validation_loss"]]
    left.set(xlabel="epoch", ylabel="loss (dashed: validation)")
    right.set(xlabel="s of training and validation", ylabel="loss (dashed: validation)")
    whole_numbers(left.xaxis)
    for axes in (left, right):
        log_if_positive(axes, np.concatenate(everything))
    left.legend(loc="upper right")
    return new


def settled_epochs(run):
    """The rows of /epochs since the number of ranks changed last, without the epoch in which it changed: those that all
    `world_size` ranks have trained. Ranks that were taken in or lost have rows of their own for fewer epochs."""
    if not len(run.epochs):
        return run.epochs
    numbers = run.epochs["epoch"]
    ranks = np.array([sum(number in rank.epochs["epoch"] for rank in run.ranks) for number in numbers])
    others = np.flatnonzero(ranks != ranks[-1])
    changed = numbers[others[-1] + 1] if len(others) else None
    first = numbers[0] if changed is None else changed
    for mark in run.marks:
        if mark.kind not in ("resumed", "recovered") or not np.isfinite(mark.step):
            continue
        epoch = run.steps["epoch"][run.steps["step"] >= mark.step][0]
        if mark.kind == "recovered" or epoch == changed:
            first = max(first, epoch + (epoch in run.steps["epoch"][run.steps["step"] < mark.step]))
    return run.epochs[numbers >= first]


def speed_of(run):
    """Samples per second over the epochs of the last layout."""
    epochs = settled_epochs(run)
    return epochs["samples"].sum() / max(epochs["train_time_s"].sum(), 1e-9)


def without_speed(runs):
    """A sentence about the runs with epochs that have no speed per rank; empty where there are none."""
    names = [run.name for run in runs if len(run.epochs) and not len(settled_epochs(run))]
    return f"Left out, without a whole epoch since the number of ranks changed: {', '.join(names)}." if names else ""


def efficiencies(runs):
    """(run, samples/s, efficiency): speed per rank over that of the run of its model with the fewest ranks. Runs that
    without_speed() names are left out."""
    found = sorted((run for run in with_epochs(runs) if len(settled_epochs(run))), key=lambda run: run.world_size)
    first = {}
    for run in found:
        first.setdefault(run.about["model"], run)
    return [(run, speed_of(run), speed_of(run) / run.world_size
             / (speed_of(first[run.about["model"]]) / first[run.about["model"]].world_size)) for run in found]


def scaling(runs):
    rows = efficiencies(runs)
    if not rows:
        raise Nothing(without_speed(runs))
    models = list(dict.fromkeys(run.about["model"] for run, _, _ in rows))
    new, (left, right) = figure(2, height=3.6)
    most_ranks = max(run.world_size for run, _, _ in rows)
    for number, model in enumerate(models):
        colour = RUN_COLOURS[number % len(RUN_COLOURS)]
        of_model = [row for row in rows if row[0].about["model"] == model]
        ranks = np.array([run.world_size for run, _, _ in of_model])
        left.plot(ranks, [speed for _, speed, _ in of_model], "o", color=colour, label=plain(model))
        right.plot(ranks, [efficiency for _, _, efficiency in of_model], "o", color=colour, label=plain(model))
        steps = np.unique(ranks)
        for axes, column in ((left, 1), (right, 2)):
            axes.plot(steps, [np.median([row[column] for row in of_model if row[0].world_size == n]) for n in steps],
                      color=colour, lw=1.2)
        first = of_model[0][1] / of_model[0][0].world_size
        ideal = np.array([ranks.min(), max(most_ranks, ranks.min())])
        left.plot(ideal, first * ideal, ls=":", lw=1.4, color=colour, label=f"{plain(model)}, ideal")
    right.axhline(1.0, ls=":", lw=1.4, color="#8a8f98", label="ideal")
    left.set(xlabel="ranks", ylabel="samples/s", ylim=(0, None))
    left.yaxis.set_major_formatter(grouped_axis)
    right.set(xlabel="ranks", ylabel="efficiency", ylim=(0, max(1.1, 1.05 * max(row[2] for row in rows))))
    right.yaxis.set_major_formatter(percent_axis)
    for axes in (left, right):
        whole_numbers(axes.xaxis)
        axes.legend(loc="best")
    if without_speed(runs):
        new.supxlabel(without_speed(runs), fontsize=8, color="#59636e", parse_math=False)
    return new


def phase_shares(runs):
    found = [run for run in runs if any(len(rank.epochs) for rank in run.ranks)]
    if not found:
        raise Nothing("No rank of these runs has ended an epoch.")
    new, axes = figure(height=max(2.0, 0.9 + 0.4 * len(found)))
    seconds = np.array([[np.mean([rank.epochs[f"{phase}_time_s"].sum() for rank in run.ranks if len(rank.epochs)])
                         for phase in PHASES] for run in found])
    share = seconds / np.maximum(seconds.sum(axis=1, keepdims=True), 1e-9)
    before = np.zeros(len(found))
    for number, phase in enumerate(PHASES):
        if share[:, number].max() > 5e-4:
            axes.barh(np.arange(len(found)), share[:, number], 0.7, left=before, color=PHASE_COLOURS[phase],
                      label=phase.replace("_", " "))
            before += share[:, number]
    axes.set_yticks(np.arange(len(found)), [f"{plain(run.name)}, {run.world_size} ranks" if run.world_size > 1 else
                                            f"{plain(run.name)}, 1 rank" for run in found])
    axes.set(xlabel="share of training, mean over the ranks", ylabel="run", xlim=(0, 1))
    axes.xaxis.set_major_formatter(percent_axis)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return new
