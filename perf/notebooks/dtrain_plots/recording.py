"""A run as it lies in its folder: results.h5, and of a run that has not ended the files of its ranks."""

import re
import time
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

PHASES = ["data", "forward", "backward", "exposed_communication", "pipeline_idle", "optimizer", "checkpoint", "other"]
WAITING = ["exposed_communication", "pipeline_idle"]
# Events that a reader looks for in a curve, and what a mark of them says.
MARKED = {"lost_rank": "rank lost", "recovered": "recovered", "resumed": "resumed", "stopped": "stopped",
          "early_stopping": "stopped early"}
# Events that a rank records again and again, as record::is_measurement() has them.
MEASUREMENTS = {"activation_memory", "tensor_memory", "device_time", "gpu"}
SAME_EVENT_S = 5.0  # ranks that record one event record it within this time


ALWAYS_READ = 16 << 20  # bytes of a table
STATUSES = ("running", "completed", "preempted", "failed", "incomplete")
SILENCE_S = 60.0  # after which a run is not alive any more: its processes touch their files every second


class Nothing(Exception):
    """A figure for which the run has recorded nothing; says why, and what to do."""


@dataclass
class Rank:
    """One rank's tables: structured arrays; None where the run's version had no such table."""
    rank: int
    epochs: np.ndarray
    steps: np.ndarray
    events: list  # of (time_s, kind, detail)
    traffic: np.ndarray | None


@dataclass
class Mark:
    """Something that changed the run."""
    time_s: float
    kind: str
    text: str
    detail: str
    step: float = np.nan  # the first that ended afterwards


@dataclass
class Run:
    folder: Path
    about: dict  # root attributes
    status: str
    epochs: np.ndarray
    validations: np.ndarray | None
    test: np.ndarray
    topology: np.ndarray
    ranks: list = field(default_factory=list)
    unreadable: list = field(default_factory=list)

    @property
    def name(self):
        return self.about.get("name") or self.folder.name

    @property
    def world_size(self):
        return int(self.about["world_size"])

    @property
    def period(self):
        """What a row of /epochs is."""
        return "round" if "rounds" in self.options else "epoch"

    @cached_property
    def options(self):
        """The options in force by name; nested tables as `table.name`."""
        return flat(tomllib.loads(self.about.get("config", "")))

    @cached_property
    def steps(self):
        """The steps of all ranks together: a dictionary of arrays, one value per step that was recorded.

        loss: mean over the ranks' weights; weight: their sum; time_s: of the slowest; ended_at_s: of the last."""
        with_rows = [rank.steps for rank in self.ranks if len(rank.steps)]
        if not with_rows:
            return {}
        columns = {name: np.concatenate([rows[name] if name in rows.dtype.names else np.full(len(rows), np.nan)
                                         for rows in with_rows])
                   for name in ("step", "epoch", "loss", "weight", "time_s", "ended_at_s", "gradient_norm",
                                "learning_rate")}
        numbers, place = np.unique(columns["step"], return_inverse=True)
        weight, loss = np.zeros(len(numbers)), np.zeros(len(numbers))
        np.add.at(weight, place, columns["weight"])
        np.add.at(loss, place, np.where(columns["weight"] > 0, columns["loss"], 0.0) * columns["weight"])
        together = {"step": numbers, "weight": weight,
                    "loss": np.divide(loss, weight, out=np.full(len(numbers), np.nan), where=weight > 0)}
        for name in ("epoch", "time_s", "ended_at_s", "gradient_norm", "learning_rate"):
            most = np.full(len(numbers), -np.inf)
            np.fmax.at(most, place, columns[name])
            together[name] = np.where(np.isinf(most), np.nan, most)
        return together

    @cached_property
    def marks(self):
        """Losses, recoveries, resumptions and stops, in their order; what several ranks recorded counts once."""
        events = sorted((time_s, kind, detail, rank.rank) for rank in self.ranks for time_s, kind, detail in rank.events
                        if kind in MARKED)
        marks, recorded_at = [], {}
        for time_s, kind, detail, _ in events:
            known = time_s - recorded_at.get(kind, -np.inf) <= SAME_EVENT_S
            recorded_at[kind] = time_s
            if known:
                continue
            # Survivors resume, and record the recovery once they have done a step.
            if kind == "recovered" and marks and marks[-1].kind == "resumed":
                marks[-1].kind, marks[-1].text = kind, marks[-1].text.replace("resumed", "recovered")
            else:
                marks.append(Mark(time_s, kind, words_of(kind, detail), detail))
        ended = self.steps.get("ended_at_s", np.array([]))
        for mark in marks:
            after = np.flatnonzero(ended > mark.time_s)
            if len(after):
                mark.step = float(self.steps["step"][after[0]])
            elif len(ended) and np.isfinite(ended).any():
                mark.step = float(self.steps["step"][-1])
        return marks

    def need_steps(self):
        if not self.steps:
            raise Nothing("No step was recorded; a run with --record-steps all has this figure.")
        return self.steps

    def need_epochs(self):
        if not len(self.epochs):
            raise Nothing("No epoch has ended.")
        return self.epochs

    def need_ranks(self):
        with_rows = [rank for rank in self.ranks if len(rank.epochs) or len(rank.steps)]
        if not with_rows:
            raise Nothing("No rank has recorded a step or an epoch.")
        return with_rows


def words_of(kind, detail):
    """`resumed on 4 ranks, data=4,pipe=1,tensor=1` is short enough for a mark; the rest is in the list of events."""
    if kind == "resumed":
        layout = re.search(r" on (\d+) ranks, (\S+)", detail)
        return f"resumed: {ranks_in_words(int(layout[1]))}, {short_mesh(layout[2])}" if layout else "resumed"
    if kind == "recovered":
        left = re.search(r": (\d+) ranks agreed", detail)
        return f"went on with {ranks_in_words(int(left[1]))}" if left else "recovered"
    return MARKED[kind]


def ranks_in_words(count):
    return f"{count} rank" + ("s" if count != 1 else "")


def short_mesh(mesh):
    """`data=2,pipe=2` for data=2,pipe=2,tensor=1."""
    axes = [axis for axis in mesh.split(",") if not axis.endswith("=1")]
    return ",".join(axes) or "one copy"


def flat(table, before=""):
    values = {}
    for key, value in table.items():
        if isinstance(value, dict):
            values |= flat(value, f"{before}{key}.")
        else:
            values[before + key] = value
    return values


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def rows_of(table):
    """All rows. dtrain writes them uncompressed: a table larger than its file is none of its, and would fill the memory."""
    if table.size * table.dtype.itemsize > max(ALWAYS_READ, Path(table.file.filename).stat().st_size):
        raise ValueError(f"{table.name}: says that it has more rows than its file holds")
    return table[:]


def whole_rows(table, counter):
    """Without the zeros at the end of a burst that a kill has cut: steps and epochs count from 1."""
    rows = rows_of(table)
    used = np.flatnonzero(rows[counter] != 0)
    return rows[:used[-1] + 1] if len(used) else rows[:0]


def read_rank(group, rank):
    events = [(float(row["time_s"]), text(row["kind"]), text(row["detail"])) for row in rows_of(group["events"])]
    return Rank(rank, whole_rows(group["epochs"], "epoch"), whole_rows(group["steps"], "step"),
                [event for event in events if event[1]],
                whole_rows(group["traffic"], "epoch") if "traffic" in group else None)


def group_in(file, name):
    """The group of a rank in results.h5; a link only leads to the file that the run wrote for this rank."""
    link = file["ranks"].get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink) and link.filename != f"ranks/rank-{int(name):05}.h5":
        raise OSError("is a link to another file")
    return file["ranks"][name]


def read_ranks(run, file):
    live = sorted((run.folder / "ranks").glob("rank-*.h5")) if run.about["status"] == "running" else []
    for path in live:
        try:
            with h5py.File(path, "r", locking=False) as rank_file:
                run.ranks.append(read_rank(rank_file, int(path.stem.split("-")[1])))
        except (OSError, KeyError, ValueError) as error:
            run.unreadable.append(f"{path.name}: {error}")
    if live or "ranks" not in file:
        return
    for name in sorted(file["ranks"]):
        try:
            run.ranks.append(read_rank(group_in(file, name), int(name)))
        except (OSError, KeyError, ValueError) as error:
            run.unreadable.append(f"rank {name}: {error}")


def touched_at(path):
    """Seconds; long ago where there is no such file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def status_of(folder, written):
    """The status that results.h5 says; of one that it calls running what the folder shows, since a kill leaves it so."""
    if written != "running":
        return written
    state = folder / "state"
    lines = state.read_text(errors="replace").splitlines() if state.is_file() else []
    if lines and lines[0] in STATUSES and lines[0] != "running":
        return lines[0]
    files = [folder / "results.h5", folder / "alive", *(folder / "ranks").glob("rank-*.h5")]
    return "running" if time.time() - max(map(touched_at, files)) < SILENCE_S else "incomplete"


def read(folder, status=None):
    """The Run in `folder`, also while it trains. `status`: what is known of it, where that is more than its file says."""
    folder = Path(folder)
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        about = {name: value if isinstance(value, (int, np.integer)) else text(value)
                 for name, value in file.attrs.items()}
        run = Run(folder, about, status or status_of(folder, about["status"]), rows_of(file["epochs"]),
                  rows_of(file["validations"]) if "validations" in file else None, rows_of(file["test"]), rows_of(file["topology"]))
        read_ranks(run, file)
    return run
