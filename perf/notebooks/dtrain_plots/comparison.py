"""Several runs beside one another: their curves, speed, phases, and in which options they differ."""

import numpy as np

from .curves import draw_known
from .recording import PHASES, Nothing
from .style import PHASE_COLOURS, RUN_COLOURS, figure, grouped_axis, log_if_positive, percent_axis, whole_numbers

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
            draw_known(axes, x, run.epochs["train_loss"], color=of[run.name], marker="o", ms=3, label=run.name)
            draw_known(axes, x, run.epochs["validation_loss"], color=of[run.name], ls="--", marker="s", ms=3)
        everything += [run.epochs["train_loss"], run.epochs["validation_loss"]]
    left.set(xlabel="epoch", ylabel="loss (dashed: validation)")
    right.set(xlabel="s of training and validation", ylabel="loss (dashed: validation)")
    whole_numbers(left.xaxis)
    for axes in (left, right):
        log_if_positive(axes, np.concatenate(everything))
    left.legend(loc="upper right")
    return new


def speed_of(run):
    """Samples per second over all epochs."""
    return run.epochs["samples"].sum() / max(run.epochs["train_time_s"].sum(), 1e-9)


def efficiencies(runs):
    """(run, samples/s, efficiency): speed per rank over that of the run of its model with the fewest ranks."""
    found = sorted(with_epochs(runs), key=lambda run: run.world_size)
    first = {}
    for run in found:
        first.setdefault(run.about["model"], run)
    return [(run, speed_of(run), speed_of(run) / run.world_size
             / (speed_of(first[run.about["model"]]) / first[run.about["model"]].world_size)) for run in found]


def scaling(runs):
    rows = efficiencies(runs)
    models = list(dict.fromkeys(run.about["model"] for run, _, _ in rows))
    new, (left, right) = figure(2, height=3.6)
    most_ranks = max(run.world_size for run, _, _ in rows)
    for number, model in enumerate(models):
        colour = RUN_COLOURS[number % len(RUN_COLOURS)]
        of_model = [row for row in rows if row[0].about["model"] == model]
        ranks = np.array([run.world_size for run, _, _ in of_model])
        left.plot(ranks, [speed for _, speed, _ in of_model], "o", color=colour, label=model)
        right.plot(ranks, [efficiency for _, _, efficiency in of_model], "o", color=colour, label=model)
        steps = np.unique(ranks)
        for axes, column in ((left, 1), (right, 2)):
            axes.plot(steps, [np.median([row[column] for row in of_model if row[0].world_size == n]) for n in steps],
                      color=colour, lw=1.2)
        first = of_model[0][1] / of_model[0][0].world_size
        ideal = np.array([ranks.min(), max(most_ranks, ranks.min())])
        left.plot(ideal, first * ideal, ls=":", lw=1.4, color=colour, label=f"{model}, ideal")
    right.axhline(1.0, ls=":", lw=1.4, color="#8a8f98", label="ideal")
    left.set(xlabel="ranks", ylabel="samples/s", ylim=(0, None))
    left.yaxis.set_major_formatter(grouped_axis)
    right.set(xlabel="ranks", ylabel="efficiency", ylim=(0, max(1.1, 1.05 * max(row[2] for row in rows))))
    right.yaxis.set_major_formatter(percent_axis)
    for axes in (left, right):
        whole_numbers(axes.xaxis)
        axes.legend(loc="best")
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
    axes.set_yticks(np.arange(len(found)), [f"{run.name}, {run.world_size} ranks" if run.world_size > 1 else
                                            f"{run.name}, 1 rank" for run in found])
    axes.set(xlabel="share of training, mean over the ranks", ylabel="run", xlim=(0, 1))
    axes.xaxis.set_major_formatter(percent_axis)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return new
