"""dtrain beside PyTorch, from the files that perf/training.sh has left: MODEL-DATE.csv, the newest of each model. MODEL-DATE-2.csv is
newer than MODEL-DATE.csv."""

import csv
import re
import statistics
from pathlib import Path

from .recording import Nothing
from .style import RUN_COLOURS, figure

PEERS = ("tuned, 2 ranks", "tuned, 1 process x 2 threads", "tutorial, 2 ranks")


def read(folder):
    """Rows by model."""
    newest = {}
    named = [(re.fullmatch(r"(.*)-(\d{4}-\d\d-\d\d)(?:-(\d+))?", path.stem), path) for path in Path(folder).glob("*.csv")]
    for (model, _, _), path in sorted(((name[1], name[2], int(name[3] or 1)), path) for name, path in named if name):
        newest[model] = path
    found = {}
    for model, path in newest.items():
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        if rows and "peer_samples_per_s" in rows[0]:
            found[model] = rows
    return found


def ratios(rows, peer):
    return [float(row["ratio"]) for row in rows if row["peer"] == peer]


def table(found):
    """A line for each model: over each peer the median of the ratios, and the most memory in MiB of a rank beside a peer's."""
    lines = [f"{'model':17}" + "".join(f"{peer:>30}" for peer in PEERS) + f"{'MiB, beside':>16}"]
    for model, rows in found.items():
        memory = [max((int(row[key]) for row in rows if row.get(key)), default=0) for key in ("dtrain_peak_mib", "peer_peak_mib")]
        lines.append(f"{model:17}" + "".join(f"{statistics.median(of):30.2f}" if (of := ratios(rows, peer)) else f"{'':30}" for peer in PEERS)
                     + (f"{memory[0]:9} {memory[1]:6}" if memory[0] else ""))
    return "\n".join(lines)


def speeds(found):
    if not found:
        raise Nothing("No comparison has been measured.")
    new, axes = figure(height=3.8)
    for number, peer in enumerate(PEERS):
        for at, rows in enumerate(found.values()):
            if of := ratios(rows, peer):
                middle = statistics.median(of)
                axes.bar(at + 0.27 * (number - 1), middle, 0.25, color=RUN_COLOURS[number], label=peer if at == 0 else None,
                         yerr=[[middle - min(of)], [max(of) - middle]], ecolor="#30343a")
    axes.axhline(1, color="#8a8f98", lw=1)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylabel("samples/s of dtrain over the peer's")
    axes.legend()
    return new
