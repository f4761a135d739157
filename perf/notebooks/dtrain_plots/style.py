"""How the figures look: colours of phases and runs, axes, marks; and how numbers are written."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

# Own work is cold, waiting is warm; neighbours differ in lightness, too, for those that do not see the hue.
PHASE_COLOURS = {"data": "#2a9d8f", "forward": "#8ecae6", "backward": "#2f6f9f", "exposed_communication": "#e76f51",
                 "pipeline_idle": "#f4b860", "optimizer": "#6a4c93", "checkpoint": "#8d6e63", "other": "#c9ced4",
                 "communication": "#b23a48", "transfer": "#7a9e3f"}
RUN_COLOURS = ["#2f6f9f", "#e07a3f", "#3a8f5c", "#a23b72", "#7a6a2f", "#5b5bd6", "#c0392b", "#4d908e"]
TRAIN, VALIDATION = RUN_COLOURS[0], RUN_COLOURS[1]
LIGHT = "#9fb6c9"
MARK_COLOURS = {"lost_rank": "#c0392b", "recovered": "#3a8f5c", "resumed": "#3a8f5c", "stopped": "#7a6a2f",
                "early_stopping": "#7a6a2f"}
MOST_POINTS = 1500   # of a line: more cannot be seen
MOST_LINES = 64      # light ones, in one figure
MOST_LABELS = 16     # ranks along an axis
MOST_WORD_LINES = 3  # above a figure, for its marks
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

SETTINGS = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"], "font.size": 9,
    "axes.titlesize": 10, "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98", "axes.grid": True, "grid.color": "#e6e8eb", "grid.linewidth": 0.8,
    "axes.axisbelow": True, "xtick.color": "#4a4f57", "ytick.color": "#4a4f57", "axes.labelcolor": "#30343a",
    "legend.frameon": False, "legend.fontsize": 8, "lines.linewidth": 1.6, "svg.fonttype": "none",
    "svg.hashsalt": "dtrain", "figure.dpi": 100}
matplotlib.rcParams.update(SETTINGS)


def figure(columns=1, rows=1, width=10.0, height=3.6, **how):
    """A new figure that no window system knows, and its axes: one, or a flat array of several."""
    new = Figure(figsize=(width, height), layout="constrained")
    axes = new.subplots(rows, columns, squeeze=False, **how).ravel()
    return new, axes[0] if len(axes) == 1 else axes


def plain(name):
    """A name of the user's as a label: matplotlib reads `$` as the start of a formula, and leaves labels with `_` in front out
    of a legend."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def whole_numbers(axis):
    axis.set_major_locator(MaxNLocator(integer=True))


def blocks(values, most=MOST_POINTS):
    """Means of equal blocks of consecutive values, so that at most `most` are left; NaN counts for nothing."""
    values = np.asarray(values, float)
    size = -(-len(values) // most)
    if size <= 1:
        return values
    padded = np.full(-(-len(values) // size) * size, np.nan)
    padded[:len(values)] = values
    rows = padded.reshape(-1, size)
    known = np.isfinite(rows)
    count = known.sum(axis=1)
    return np.divide(np.where(known, rows, 0).sum(axis=1), count, out=np.full(len(rows), np.nan), where=count > 0)


def smoothed(values, window):
    """The running mean over `window` values, those at the ends over as many as there are; NaN counts for nothing."""
    values = np.asarray(values, float)
    window = min(window, len(values))
    if window <= 1:
        return values
    known = np.isfinite(values)
    kernel = np.ones(window)
    count = np.convolve(known, kernel, "same")
    total = np.convolve(np.where(known, values, 0.0), kernel, "same")
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)


def log_if_positive(axes, values):
    """A logarithmic axis where all values allow it and they differ by more than a factor of three."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if len(known) and known.min() > 0 and known.max() > 3 * known.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        # Between the powers of ten, where these are few: as numbers, and so far apart that they do not touch.
        span = known.max() / known.min()
        if span < 1000:
            axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7) if span < 10 else (2, 5)))
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
            axes.tick_params(axis="y", which="minor", labelsize=7)
        else:
            axes.yaxis.set_minor_formatter(NullFormatter())


def chosen(items, most=MOST_LINES):
    """At most `most` of them, evenly."""
    items = list(items)
    if len(items) <= most:
        return items
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, most).astype(int))]


def rank_ticks(axis, ranks):
    """Labels of the places 0, 1, ... along which `ranks` lie; of many ranks a part."""
    apart = 1
    while len(ranks) > apart * MOST_LABELS:
        apart *= 2
    places = range(0, len(ranks), apart)
    axis.set_ticks(places, [str(ranks[place]) for place in places])


def draw_marks(axes, marks, where):
    """Vertical lines at `where(mark)`, with words above; those of marks that lie close together are in one line. Where they
    would lie on those before them they are a line higher; of very many the last ones have none."""
    low, high = axes.get_xlim()
    close = 0.02 * (high - low)
    together = []
    for mark in sorted((mark for mark in marks if low <= where(mark) <= high), key=where):
        if not together or where(mark) - where(together[-1][-1]) > close:
            together.append([])
        together[-1].append(mark)
    free_from = [low] * MOST_WORD_LINES
    for group in together:
        for mark in reversed(group):  # the first one, whose colour the words have, on top
            axes.axvline(where(mark), color=MARK_COLOURS[mark.kind], lw=1.0, ls=(0, (4, 2)), zorder=1.5)
        words = ", then ".join(mark.text for mark in group)
        width = 0.0085 * (high - low) * len(words)  # of a font of 7 points in a figure of 10 inches
        at = where(group[0])
        left = at + width > high
        begin = at - width if left else at
        line = next((i for i, free in enumerate(free_from) if begin >= free), None)
        if line is None:
            continue
        axes.annotate(words, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(-2 if left else 2, 2 + 10 * line),
                      textcoords="offset points", ha="right" if left else "left", va="bottom", fontsize=7.5,
                      color=MARK_COLOURS[group[0].kind], annotation_clip=False)
        free_from[line] = begin + width
    axes.set_xlim(low, high)


def bytes_text(value):
    for unit in UNITS:
        if abs(value) < 1024 or unit == UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.3g} {unit}"
        value /= 1024


def seconds_text(value):
    if not np.isfinite(value):
        return "-"
    if value < 120:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def bytes_along(axis, most):
    """Ticks at round numbers of bytes up to `most`, all in the unit that suits it."""
    power = max(0, min(int(np.log2(max(most, 1)) // 10), len(UNITS) - 1))
    unit = 1024.0 ** power
    axis.set_major_locator(FixedLocator(unit * MaxNLocator(5).tick_values(0, 1.08 * most / unit)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:.3g} {UNITS[power]}"))


bytes_axis = FuncFormatter(lambda value, _: bytes_text(value))
grouped_axis = FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}")
percent_axis = FuncFormatter(lambda value, _: f"{100 * value:.3g} %")
