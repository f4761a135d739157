"""What the pictures are drawn from, on a run made up for it: sums over ranks, marks, windows of steps, bytes by pair."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

sys.path.insert(0, sys.argv[1])
from dtrain_plots import command, comparison, curves, page, ranks, recording, style, timeline  # noqa: E402

PHASES = [*recording.PHASES, "communication"]
STEP = np.dtype([("step", "i8"), ("epoch", "i8"), ("loss", "f8"), ("weight", "f8"), ("gradient_norm", "f8"), ("learning_rate", "f8"),
                 ("time_s", "f8"), *((f"{phase}_time_s", "f8") for phase in PHASES), ("ended_at_s", "f8")])
EPOCHS = np.dtype([("epoch", "i8"), ("train_loss", "f8"), ("train_accuracy", "f8"), ("validation_loss", "f8"), ("validation_accuracy", "f8"),
                   ("samples", "i8"), ("train_time_s", "f8"), ("validation_time_s", "f8"), ("samples_per_s", "f8"),
                   ("model_flops_per_s", "f8"), ("learning_rate", "f8"), ("validation_f1", "f8")])
EVENT = np.dtype([("time_s", "f8"), ("kind", "S32"), ("detail", "S256")])
TRAFFIC = np.dtype([("epoch", "i8"), ("peer", "i8"), ("bytes_sent", "i8"), ("bytes_received", "i8")])
PAUSE_AFTER = 20


def steps_of(rank, count):
    rows = np.zeros(count, STEP)
    rows["step"] = np.arange(1, count + 1)
    rows["epoch"] = 1
    rows["weight"] = 10 * (rank + 1)
    rows["loss"] = 1 + rank
    rows["time_s"] = 0.1 + 0.1 * rank
    rows["forward_time_s"] = 0.05
    rows["exposed_communication_time_s"] = rows["time_s"] - 0.05
    rows["ended_at_s"] = 0.2 * rows["step"] + np.where(rows["step"] > PAUSE_AFTER, 50.0, 0.0)
    return rows


def write(folder, name, world_size, config="", tables=None):
    folder.mkdir()
    with h5py.File(folder / "results.h5", "w") as file:
        for key, value in {"name": name, "model": "mlp", "dataset": "d", "strategy": "ddp", "mesh": "data=2,pipe=1,tensor=1",
                           "start_time_utc": "", "end_time_utc": "", "dtrain_version": "", "command_line": "", "config": config,
                           "status": "completed"}.items():
            file.attrs[key] = np.bytes_(value)
        file.attrs["world_size"] = world_size
        epochs = np.zeros(1, EPOCHS)
        epochs["epoch"], epochs["train_loss"], epochs["samples"], epochs["train_time_s"] = 1, 0.5, 1200, 10 / world_size
        epochs["train_accuracy"] = epochs["validation_accuracy"] = np.nan
        file["epochs"] = epochs
        file["test"] = np.zeros(0, [("loss", "f8"), ("accuracy", "f8")])
        file["topology"] = np.zeros(world_size, [("node", "i8")])
        for rank, (steps, events, traffic) in (tables or {}).items():
            group = file.create_group(f"ranks/{rank:05}")
            group["steps"], group["events"] = steps, np.array(events, EVENT)
            group["epochs"] = np.zeros(1, [("epoch", "i8"), *((f"{phase}_time_s", "f8") for phase in PHASES)])
            group["traffic"] = np.array(traffic, TRAFFIC)
    return folder


def run_of_two(folder, every=1):
    steps = {0: steps_of(0, 40)[::every], 1: steps_of(1, 20)[::every]}
    steps[0] = np.concatenate([steps[0], np.zeros(3, STEP)])  # as a kill leaves a burst
    events = {0: [(4.05, b"lost_rank", b"rank 1 is gone"), (4.3, b"resumed", b"from memory on 1 ranks, data=1,pipe=1,tensor=1"),
                  (54.3, b"recovered", b"rank 1 lost: 1 ranks agreed after 0.1 s"), (55.0, b"straggler", b"")],
              1: [(4.1, b"lost_rank", b"another sentence")]}
    traffic = {0: [(1, 1, 100, 7)], 1: [(1, 0, 5, 90)]}
    return write(folder, "two", 2, "epochs = 2\nname = 'two'\n[table]\na = 1\n", {r: (steps[r], events[r], traffic[r]) for r in (0, 1)})


def changed(folder, first, last, begin=21, epochs=((1, 10), (2, 20), (3, 40)), kind=b"resumed"):
    """A run of `first` ranks, then of `last`, from step `begin` on; `epochs`: (epoch, its last step), each of 10 s."""
    def of_rank(rank):
        steps = steps_of(0, epochs[-1][1])
        steps["epoch"] = 1 + np.searchsorted([end for _, end in epochs], steps["step"])
        present = np.where(steps["step"] < begin, rank < first, rank < last)
        detail = b"from step-1 on %d ranks, data=%d" % (last, last) if kind == b"resumed" else b"rank 1 lost: 1 ranks agreed after 1 s"
        at_s = (steps["ended_at_s"][begin - 2] + steps["ended_at_s"][begin - 1]) / 2
        return steps[present], [(at_s, kind, detail)] if rank < last else [], []
    write(folder, folder.name, last, tables={rank: of_rank(rank) for rank in range(max(first, last))})
    with h5py.File(folder / "results.h5", "r+") as file:
        del file["epochs"]
        rows = np.zeros(len(epochs), EPOCHS)
        rows["epoch"], rows["samples"], rows["train_time_s"] = [number for number, _ in epochs], [1000, 2000, 4000], 10
        file["epochs"] = rows
        for rank in range(max(first, last)):
            del file[f"ranks/{rank:05}/epochs"]
            own = [(number, *[0] * len(recording.PHASES)) for number, end in epochs if rank < (last if end >= begin else first)]
            file[f"ranks/{rank:05}/epochs"] = np.array(own, [("epoch", "i8"), *((f"{phase}_time_s", "f8") for phase in recording.PHASES)])
    return recording.read(folder)


def speeds_are_those_of_the_last_layout(folder):
    epochs = lambda run: comparison.settled_epochs(run)["epoch"].tolist()
    grown = changed(folder / "grown", 1, 2)
    assert epochs(grown) == [3] and comparison.speed_of(grown) == 400
    assert epochs(changed(folder / "within", 2, 1, begin=15)) == [3], "epoch 2 is of both layouts"
    assert epochs(changed(folder / "lost", 2, 1, begin=5, kind=b"recovered")) == [2, 3], "epoch 1 lost a rank"
    assert epochs(changed(folder / "same", 2, 2, begin=15)) == [1, 2, 3]
    late = changed(folder / "late", 1, 2, begin=25)
    assert epochs(late) == [] and "late" in comparison.without_speed([grown, late])
    assert [run.name for run, _, _ in comparison.efficiencies([grown, late])] == ["grown"]
    assert comparison.scaling([grown, late]).get_supxlabel() == comparison.without_speed([grown, late])
    try:
        comparison.scaling([late])
        raise AssertionError("no run has a speed")
    except recording.Nothing as nothing:
        assert "late" in str(nothing)


def losses_without_weights_are_those_of_epochs(folder):
    """As secure aggregation leaves them: steps without a weight and a loss."""
    steps = steps_of(0, 20)
    steps["weight"], steps["loss"] = 0, np.nan
    run = recording.read(write(folder / "secure", "secure", 1, tables={0: (steps, [], [])}))
    line, *_ = curves.loss(run).axes[0].lines
    assert (line.get_label(), line.get_xdata().tolist(), line.get_ydata().tolist()) == ("training", [20], [0.5])
    try:
        curves.throughput(run)
        raise AssertionError("there is no throughput")
    except recording.Nothing as nothing:
        assert "--secure-aggregation" in str(nothing)


def dead_runs_are_not_running(folder):
    """results.h5 of a killed run says that it runs."""
    dead = write(folder / "dead", "dead", 1)
    with h5py.File(dead / "results.h5", "r+") as file:
        file.attrs["status"] = np.bytes_("running")
    (dead / "ranks").mkdir()
    (dead / "alive").write_text("host 1 2\n")
    assert recording.read(dead).status == "running" and recording.read(dead, "preempted").status == "preempted"
    for path in (dead / "alive", dead / "results.h5"):
        os.utime(path, (time.time() - 100,) * 2)
    for state, status in ((None, "incomplete"), ("running", "incomplete"), ("failed", "failed"), ("preempted", "preempted"), ("?", "incomplete")):
        if state:
            (dead / "state").write_text(f"{state}\n")
        assert recording.read(dead).status == status, (state, recording.read(dead).status)
    (dead / "alive").touch()
    assert recording.read(dead).status == "running"


def names_are_shown_as_they_are(folder):
    runs = [recording.read(write(folder / f"names-{number}", name, 1)) for number, name in enumerate((r"bad$\frac{$", "_t"))]
    content = page.html(runs)
    assert content.count(r">bad$\frac{$</text>") == 1 and len(re.findall(r">\s*_t</text>", content)) == 1, "in the legend"
    rounds = recording.read(write(folder / "rounds", "rounds", 1, "rounds = 3\n"))
    assert "<span>rounds</span>" in page.html([rounds]) and "<th class=number>epochs or rounds</th>" in page.html([*runs, rounds])


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run = recording.read(run_of_two(folder / "two"))
        # The mean over the ranks' weights; the time of the slowest; rows of zeros are none.
        assert run.steps["step"].tolist() == list(range(1, 41))
        assert np.allclose(run.steps["loss"], [(10 * 1 + 20 * 2) / 30] * 20 + [1] * 20)
        assert np.allclose(run.steps["weight"], [30] * 20 + [10] * 20) and np.allclose(run.steps["time_s"], [0.2] * 20 + [0.1] * 20)
        # Both ranks recorded the loss: one mark; a recovery is the resumption of the survivors.
        assert [(mark.kind, mark.text, mark.step) for mark in run.marks] == [
            ("lost_rank", "rank lost", 21.0), ("recovered", "recovered: 1 rank, one copy", 21.0)], run.marks
        share, first_steps, shown = ranks.waiting_map(run)
        assert shown == [0, 1] and first_steps.tolist() == list(range(1, 41))
        assert np.allclose(share[0], 0.5) and np.allclose(share[1, :20], 0.75) and np.isnan(share[1, 20:]).all()
        # Of each pair the end that has counted more: the other may have died before it wrote.
        sent, _ = ranks.traffic_matrix(run)
        assert sent.tolist() == [[0, 100], [7, 0]], sent
        ended = run.steps["ended_at_s"]
        begun = ended - run.steps["time_s"]
        shown = timeline.steps_to_show(run.steps["step"], begun, ended)
        assert len(shown) == 3 and shown[0] > 10 and not shown[0] <= PAUSE_AFTER < shown[-1], shown
        assert timeline.steps_to_show(np.array([7]), np.array([0.0]), np.array([1.0])).tolist() == [7]
        assert curves.metrics_of(run) == ["f1"], "an accuracy that is NaN is none"
        throughput = curves.throughput(run).axes[0].lines[0]
        assert np.isnan(throughput.get_ydata()).sum() == 1, "one pause"
        assert np.all(np.diff(throughput.get_xdata()) >= 0)

        # Of a run that kept each second step, by --record-steps 2.
        all_in_all = lambda of: float(curves.throughput(of).axes[0].lines[1].get_label().split(": ")[1].split()[0].replace(",", ""))
        thinned = recording.read(run_of_two(folder / "thinned", every=2))
        assert abs(all_in_all(thinned) / all_in_all(run) - 1) < 0.1 and curves.unit_of_weight(thinned) == curves.unit_of_weight(run)

        # A rank that links to elsewhere is left out, and named.
        with h5py.File(folder / "two/results.h5", "r+") as file:
            del file["ranks/00001"]
            file["ranks/00001"] = h5py.ExternalLink("/etc/passwd", "/")
        linked = recording.read(folder / "two")
        assert [rank.rank for rank in linked.ranks] == [0] and "link" in linked.unreadable[0], linked.unreadable

        one = recording.read(write(folder / "one", "two", 1, "epochs = 3\nname = 'x'\n"))
        assert comparison.differing_options([run, one]) == [("ranks", [2, 1]), ("epochs", [2, 3]), ("table.a", [1, None])]
        comparison.named_apart([run, one])
        assert (run.name, one.name) == (str(folder / "two"), str(folder / "one")), "runs of one name"
        whole = recording.read(write(folder / "whole", "whole", 2))
        assert [round(row[2], 6) for row in comparison.efficiencies([whole, one])] == [1, 1]

        speeds_are_those_of_the_last_layout(folder)
        losses_without_weights_are_those_of_epochs(folder)
        dead_runs_are_not_running(folder)
        names_are_shown_as_they_are(folder)
        # A user without an entry in the machine's list and without HOME.
        with mock.patch.dict(os.environ), mock.patch.object(Path, "home", side_effect=RuntimeError("no home")):
            os.environ.pop("MPLCONFIGDIR", None)
            assert not command.can_keep_fonts()

        assert style.smoothed([1, 1, np.nan, 1, 1], 3).tolist() == [1] * 5
        assert style.blocks(np.arange(10), 5).tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
        assert [style.bytes_text(value) for value in (0, 1023, 1024, 150 << 20, 5 << 40)] == ["0 B", "1023 B", "1 KiB", "150 MiB", "5 TiB"]


main()
