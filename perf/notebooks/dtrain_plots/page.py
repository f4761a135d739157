"""One HTML page that needs no other file: styles, figures (SVG) and tables are in it, and no script."""

import io
import re
from html import escape

import numpy as np

from . import gallery
from .comparison import differing_options
from .recording import MEASUREMENTS
from .style import seconds_text

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #24292f; background: #fff; margin: 0 auto;
  max-width: 68rem; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid #d8dce1; padding-bottom: .25rem; overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 48rem; }
p.note, figcaption { color: #59636e; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 1rem; }
a { color: #2f6f9f; }
figure { margin: 0 0 1rem; }
figure svg { width: 100%; height: auto; max-height: 46rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; }
.tiles div { border: 1px solid #d8dce1; border-radius: .5rem; padding: .5rem .9rem; }
.tiles b { display: block; font-size: 1.25rem; font-weight: 600; }
.tiles span { color: #59636e; font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e6e8eb; vertical-align: top; }
th { font-weight: 600; color: #59636e; white-space: nowrap; }
td.number, th.number { text-align: right; }
pre { background: #f6f8fa; padding: .75rem; overflow-x: auto; font-size: .8rem; border-radius: .4rem; }
.failed, .incomplete { color: #c0392b; } .completed { color: #2d7a4b; } .running, .preempted { color: #8a6d00; }
"""
STATUS = {"running": "running", "completed": "completed", "preempted": "stopped on request; the same command resumes it",
          "failed": "failed: what was recorded is shown", "incomplete": "ended without saying so: what was recorded is shown"}
MOST_EVENTS = 200


def svg(figure, prefix, label):
    """The figure as an element of a page. Names within it begin with `prefix`, since a page has many."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    width = 104 * figure.get_figwidth()  # a figure of 10 inches is as wide as the page
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" style="max-width: {width:.0f}px" ', 1)


def table(headings, rows, numbers=()):
    """`numbers`: columns that are set to the right."""
    def cells(tag, row):
        return "".join(f'<{tag}{" class=number" if i in numbers else ""}>{escape(str(cell))}</{tag}>'
                       for i, cell in enumerate(row))
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", headings)}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def number(value, digits=4):
    return "-" if value is None or not np.isfinite(value) else f"{value:,.{digits}g}"


def tiles(run):
    """What is asked first."""
    found = []
    if len(run.epochs):
        last = run.epochs[-1]
        found.append((f"{last['epoch']:,}", f"{run.period}s"))
        found.append((number(last["train_loss"]), "training loss"))
        best = run.epochs["validation_loss"]
        if np.isfinite(best).any():
            found.append((number(np.nanmin(best)), "best validation loss"))
        if np.isfinite(run.epochs["validation_accuracy"]).any():
            found.append((number(np.nanmax(run.epochs["validation_accuracy"])), "best validation accuracy"))
        total_s = run.epochs["train_time_s"].sum()
        found.append((number(run.epochs["samples"].sum() / max(total_s, 1e-9)), "samples/s"))
        found.append((seconds_text(total_s), "of training"))
    elif run.steps:
        found.append((f"{run.steps['step'][-1]:,.0f}", "steps"))
        found.append((number(run.steps["loss"][-1]), "training loss"))
    if len(run.test):
        found.append((number(run.test[0]["loss"]), "test loss"))
        if np.isfinite(run.test[0]["accuracy"]):
            found.append((number(run.test[0]["accuracy"]), "test accuracy"))
    if not found:
        return ""
    return '<div class="tiles">' + "".join(f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>"
                                           for value, what in found) + "</div>"


def nodes_of(run):
    """Of the newest ranks: before a loss or a resumption there may have been others."""
    rows = run.topology
    if not len(rows):
        return 0
    if "generation" in rows.dtype.names:
        rows = rows[rows["generation"] == rows["generation"].max()]
    return len(set(rows["node"]))


def summary(run):
    ranks = f"{run.world_size} rank" + ("s" if run.world_size != 1 else "")
    if nodes_of(run):
        ranks += f" on {nodes_of(run)} node" + ("s" if nodes_of(run) != 1 else "")
    about = run.about
    rows = [("status", STATUS.get(run.status, run.status)), ("model", f"{about['model']} on {about['dataset']}"),
            ("layout", f"{ranks}, {about['mesh']}, {about['strategy']}"), ("started", about["start_time_utc"])]
    if about.get("end_time_utc"):
        rows.append(("ended", about["end_time_utc"]))
    rows += [("dtrain", about["dtrain_version"]), ("command", about["command_line"])]
    rows += [("left out", problem) for problem in run.unreadable]
    lines = "".join(f"<tr><th>{what}</th><td{' class=' + escape(run.status) if what == 'status' else ''}>{escape(text)}</td></tr>"
                    for what, text in rows)
    return f'<div class="scroll"><table>{lines}</table></div>'


def events(run):
    """What happened; of what was measured again and again the newest of each kind."""
    rows = sorted((time_s, rank.rank, kind, detail) for rank in run.ranks for time_s, kind, detail in rank.events)
    happened = [row for row in rows if row[2] not in MEASUREMENTS]
    shown = happened[-MOST_EVENTS:]
    title = "Events" if len(shown) == len(happened) else f"Events (the last {len(shown)} of {len(happened)})"
    measured = {row[2]: row for row in rows if row[2] in MEASUREMENTS}
    parts = [(title, shown), ("Measured last; results.h5 has all", sorted(measured.values(), key=lambda row: row[2]))]
    return "\n".join(f"<h3>{heading}</h3>\n" + table(("s", "rank", "what", "detail"), [
        (f"{time_s:,.1f}", rank, kind.replace("_", " "), detail) for time_s, rank, kind, detail in found], (0, 1))
        for heading, found in parts if found)


def section(pictures, subject, prefix):
    """The figures, and their links for the head of the page."""
    links, parts = [], []
    for picture, figure, sentence in gallery.drawn(pictures, subject):
        name = f"{prefix}{picture.name}"
        head = f'<h3 id="{name}">{escape(picture.title)}</h3>'
        if figure is None:
            parts.append(f'{head}\n<p class="note">{escape(sentence)}</p>')
            continue
        links.append(f'<a href="#{name}">{escape(picture.title)}</a>')
        parts.append(f"{head}\n<figure>{svg(figure, name + '-', picture.title)}"
                     f"<figcaption>{escape(picture.caption)}</figcaption></figure>")
    return links, parts


def of_run(run, prefix, heading):
    links, parts = section(gallery.OF_RUN, run, prefix)
    body = [f"<{heading}>{escape(run.name)}</{heading}>", summary(run), tiles(run), f"<nav>{''.join(links)}</nav>", *parts,
            events(run)]
    if run.about.get("config"):
        body.append(f"<h3>Options in force</h3>\n<details><summary>config.toml</summary><pre>{escape(run.about['config'])}</pre>"
                    "</details>")
    return body


def of_runs(runs):
    links, parts = section(gallery.OF_RUNS, runs, "")
    differ = differing_options(runs)
    body = [f"<h1>{len(runs)} runs</h1>"]
    periods = " or ".join(sorted({f"{run.period}s" for run in runs}))
    body.append(table(("run", "status", "model", "ranks", periods, "samples/s", "best validation loss", "test loss"),
                      [overview(run) for run in runs], (3, 4, 5, 6, 7)))
    body.append("<h2>Options that differ</h2>")
    if differ:
        body.append(table(("option", *(run.name for run in runs)),
                          [(name, *("-" if value is None else show(value) for value in values)) for name, values in differ]))
    else:
        body.append('<p class="note">None: these runs have the same options.</p>')
    body += [f"<nav>{''.join(links)}</nav>", *parts]
    for number_of, run in enumerate(runs):
        body += of_run(run, f"run{number_of}-", "h2")
    return body


def show(value):
    if isinstance(value, list):
        return " ".join(map(str, value))
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def overview(run):
    epochs = run.epochs
    best = epochs["validation_loss"] if len(epochs) else np.array([])
    return (run.name, run.status, f"{run.about['model']} on {run.about['dataset']}", run.world_size, len(epochs),
            number(epochs["samples"].sum() / max(epochs["train_time_s"].sum(), 1e-9)) if len(epochs) else "-",
            number(np.nanmin(best)) if np.isfinite(best).any() else "-", number(run.test[0]["loss"]) if len(run.test) else "-")


def html(runs):
    """The whole page."""
    body = of_run(runs[0], "", "h1") if len(runs) == 1 else of_runs(runs)
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return ("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<title>{escape(title)} - dtrain</title>\n<style>{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body)
            + "\n</body>\n</html>\n")
