"""How the training went: loss, metrics, rate and gradient norm, throughput."""

import numpy as np

from .recording import Nothing
from .style import (LIGHT, MARK_COLOURS, MOST_LINES, TRAIN, VALIDATION, blocks, chosen, draw_marks, figure,
                    grouped_axis, log_if_positive, smoothed, whole_numbers)

WINDOWS = 60  # of smoothing in a curve


def validation_points(run, metric):
    """Steps and values of a metric after each validation; by epoch where the version recorded no /validations."""
    if run.validations is not None and len(run.validations) and metric in run.validations.dtype.names:
        return run.validations["step"], run.validations[metric]
    column = f"validation_{metric}"
    if not len(run.epochs) or column not in run.epochs.dtype.names:
        return np.array([]), np.array([])
    return last_steps(run), run.epochs[column]


def last_steps(run):
    """Of each epoch of /epochs its last recorded step; NaN where none was."""
    steps = run.steps
    if not steps:
        return np.full(len(run.epochs), np.nan)
    ends = {epoch: step for epoch, step in zip(steps["epoch"], steps["step"])}
    return np.array([ends.get(float(epoch), np.nan) for epoch in run.epochs["epoch"]])


def draw_known(axes, x, y, **how):
    known = np.isfinite(x) & np.isfinite(y)
    if known.any():
        axes.plot(np.asarray(x)[known], np.asarray(y)[known], **how)
    return known.any()


def losses_of_ranks(axes, run):
    """Every rank lightly; a rank without a piece, or without the last stage, has no loss."""
    with_loss = [rank for rank in run.ranks if len(rank.steps) and (rank.steps["weight"] > 0).any()]
    for rank in chosen(with_loss, MOST_LINES):
        computed = rank.steps["weight"] > 0
        values = blocks(rank.steps["loss"][computed], 600)
        axes.plot(blocks(rank.steps["step"][computed], 600), values, color=LIGHT, lw=0.7,
                  alpha=max(0.25, 0.9 / max(1, len(with_loss)) ** 0.5), zorder=1)
    return len(with_loss)


def loss(run):
    new, axes = figure(height=4.0)
    shown = []
    steps = run.steps
    by_step = bool(steps)
    if by_step and (steps["weight"] > 0).any():  # with secure aggregation steps have none, and no loss
        ranks = losses_of_ranks(axes, run)
        if ranks:
            axes.plot([], [], color=LIGHT, lw=1.2, label=f"each of {ranks} ranks" if ranks > 1 else "each step")
        window = max(1, len(steps["step"]) // WINDOWS)
        mean = smoothed(steps["loss"], window)
        axes.plot(blocks(steps["step"]), blocks(mean), color=TRAIN, zorder=3,
                  label=f"training, mean over {window} steps" if window > 1 else "training")
        shown.append(mean)
    elif len(run.epochs):
        draw_known(axes, last_steps(run) if by_step else run.epochs["epoch"], run.epochs["train_loss"], color=TRAIN, marker="o", ms=4,
                   label="training")
        shown.append(run.epochs["train_loss"])
    else:
        raise Nothing("No step recorded a loss, and no epoch has ended." if by_step else "No step and no epoch was recorded.")
    x, y = validation_points(run, "loss")
    if not by_step and len(run.epochs):
        x, y = run.epochs["epoch"], run.epochs["validation_loss"]
    if draw_known(axes, x, y, color=VALIDATION, marker="o", ms=4, lw=1.2, zorder=4, label="validation"):
        shown.append(y)
    axes.set(xlabel="step" if by_step else run.period, ylabel="loss")
    log_if_positive(axes, np.concatenate([np.asarray(values, float) for values in shown]))
    whole_numbers(axes.xaxis)
    axes.legend(loc="upper right")
    if by_step:
        draw_marks(axes, run.marks, lambda mark: mark.step)
    return new


def metrics_of(run):
    """What this model has beside its loss: names without `validation_`, in the order of the file."""
    if not len(run.epochs):
        return []
    names = run.epochs.dtype.names
    own = names[names.index("learning_rate") + 1:]
    found = []
    for metric in ["accuracy", *(name.removeprefix("validation_") for name in own)]:
        columns = [column for column in (f"train_{metric}", f"validation_{metric}", metric) if column in names]
        if any(np.isfinite(run.epochs[column]).any() for column in columns):
            found.append(metric)
    return found


def metrics(run):
    run.need_epochs()
    found = metrics_of(run)
    if not found:
        raise Nothing("This model has no metric beside its loss.")
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    new, all_axes = figure(columns, rows, height=3.2 * rows)
    all_axes = np.atleast_1d(all_axes)
    for axes, metric in zip(all_axes, found):
        for kind, colour in (("train", TRAIN), ("validation", VALIDATION)):
            column = f"{kind}_{metric}"
            if column in run.epochs.dtype.names:
                draw_known(axes, run.epochs["epoch"], run.epochs[column], color=colour, marker="o", ms=4,
                           label="training" if kind == "train" else kind)
        if metric in run.epochs.dtype.names:
            draw_known(axes, run.epochs["epoch"], run.epochs[metric], color=VALIDATION, marker="o", ms=4, label="validation")
        words = metric.replace("_", " ")
        test = run.test[metric][0] if len(run.test) and metric in run.test.dtype.names else np.nan
        if np.isfinite(test):
            axes.axhline(test, color="#8a8f98", lw=1.0, ls=":", label=f"test: {test:.4g}")
        axes.set(xlabel=run.period, ylabel=words)
        whole_numbers(axes.xaxis)
        axes.margins(x=0.04)
        axes.legend(loc="best")
    for axes in all_axes[len(found):]:
        axes.set_visible(False)
    return new


def rate_and_gradient(run):
    steps = run.need_steps()
    new, (left, right) = figure(2, height=3.2)
    draw_known(left, blocks(steps["step"]), blocks(steps["learning_rate"]), color=TRAIN)
    left.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    norm = steps["gradient_norm"]
    if np.isfinite(norm).any():
        window = max(1, len(norm) // WINDOWS)
        right.plot(blocks(steps["step"]), blocks(norm), color=LIGHT, lw=0.8, label="each step")
        if window > 1:
            right.plot(blocks(steps["step"]), blocks(smoothed(norm, window)), color=TRAIN, label=f"mean over {window} steps")
        log_if_positive(right, norm)
        right.legend(loc="upper right")
    else:
        right.text(0.5, 0.5, "not recorded by this run", transform=right.transAxes, ha="center", color="#8a8f98")
    right.set(xlabel="step", ylabel="norm of the gradient")
    for axes in (left, right):
        whole_numbers(axes.xaxis)
    # Words for the marks would lie on one another here: the figure of the loss has them.
    for axes in (left, right):
        for mark in run.marks:
            if np.isfinite(mark.step):
                axes.axvline(mark.step, color=MARK_COLOURS[mark.kind], lw=1.0, ls=(0, (4, 2)), zorder=1.5)
    return new


def steps_per_row(steps):
    """Of which each row is one: --record-steps."""
    numbers = np.unique(steps["step"])
    return (numbers[-1] - numbers[0]) / (len(numbers) - 1) if len(numbers) > 1 else 1.0


def unit_of_weight(run):
    """`samples`, or `target tokens` where a step's weight counts these."""
    if len(run.epochs) and run.steps:
        of_epoch = run.steps["weight"][run.steps["epoch"] == run.epochs["epoch"][0]].sum()
        of_epoch *= steps_per_row(run.steps)
        if of_epoch > 1.5 * run.epochs["samples"][0]:
            return "target tokens"
    return "samples"


def throughput(run):
    steps = run.need_steps()
    if not (steps["weight"] > 0).any():
        raise Nothing("The steps of this run have no samples of their own, as with --secure-aggregation on; its epochs have.")
    known = np.isfinite(steps["ended_at_s"]) & (steps["weight"] > 0)
    if not known.any():
        raise Nothing("This run's file lacks the times at which steps ended: an older dtrain wrote it.")
    ended, weight, time_s = (steps[name][known] for name in ("ended_at_s", "weight", "time_s"))
    # A point is some steps in a row; whatever came between two steps beside training is a gap.
    per_point = max(1, min(len(ended) // 12, max(len(ended) // 80, 4)))
    begun = ended - time_s
    gaps = 1 + np.flatnonzero(begun[1:] - ended[:-1] > 0.02 * (ended[-1] - begun[0]) + 1e-9)
    edges = np.unique([*range(0, len(ended), per_point), *gaps, len(ended)])
    at, rate = [], []
    for begin, end in zip(edges[:-1], edges[1:]):
        if begin in gaps:
            at.append(at[-1])
            rate.append(np.nan)
        at += [max(begun[begin], at[-1]) if at else begun[begin], ended[end - 1]]
        rate += 2 * [weight[begin:end].sum() / max(time_s[begin:end].sum(), 1e-9)]
    unit = unit_of_weight(run)
    new, axes = figure(height=3.4)
    axes.plot(at, rate, color=TRAIN, label="while it trained")
    whole = steps_per_row(steps) * weight.sum() / max(ended[-1] - (ended[0] - time_s[0]), 1e-9)
    axes.axhline(whole, color="#8a8f98", lw=1.0, ls=":",
                 label=f"all in all, with validations, checkpoints and pauses: {whole:,.{0 if whole >= 10 else 2}f} {unit}/s")
    axes.set(xlabel="s since the start of the run", ylabel=f"{unit}/s", ylim=(0, 1.3 * np.nanmax(rate)),
             xlim=(0, 1.02 * max([ended[-1], *(mark.time_s for mark in run.marks)])))
    axes.yaxis.set_major_formatter(grouped_axis)
    axes.legend(loc="upper right")
    draw_marks(axes, run.marks, lambda mark: mark.time_s)
    return new
