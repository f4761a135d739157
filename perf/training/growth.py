"""What a training step costs as it grows: in parameters (mlp of 1 to 128 million), in batch, in ranks (1 to 8), and in nodes that are
emulated with delays (1 to 4, a link of 1 Gbit/s between them). Beside each step the most memory of a rank, and the seconds of an
all_reduce between two ranks by its bytes.

A case that the file has as often as there are rounds is not run again. perf/notebooks/performance.ipynb draws the file, and predicts
from it what more ranks would take.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
from dataclasses import dataclass

import h5py
import random_images
import runs

sys.path.insert(0, str(runs.PEERS))
import networks  # noqa: E402

WARM_UP = 3  # steps that do not count
LINK = {"latency_ms": 0.5, "gbit_per_s": 1.0}
EXCHANGED = [2 ** power for power in range(3, 27, 2)]  # bytes
# Two hidden layers of that width have about so many million parameters.
HIDDEN = {1: 680, 4: 1640, 16: 3620, 64: 7610, 128: 10920}


@dataclass(frozen=True)
class Case:
    series: str
    model: str
    ranks: int
    batch: int  # of all ranks together
    steps: int
    nodes: int = 1
    hidden: int = 0  # of mlp; 0: its own

    def options(self, scratch):
        given = ["--model", self.model, "--global-batch", self.batch, "--limit-steps", self.steps, "--epochs", 1000, "--checkpoint-every", "end"]
        if self.hidden:
            given += ["--model-option", f"hidden={self.hidden},{self.hidden}"]
        if self.nodes > 1:
            given += ["--emulate", emulated(scratch, self.ranks, self.nodes)]
        return given


def cases():
    for hidden in HIDDEN.values():
        yield Case("parameters", "mlp", 2, 64, 12 if hidden > 4000 else 40, hidden=hidden)
    for model in ("mlp", "cnn"):
        for ranks in (1, 2):
            for batch in (16, 64, 256, 1024, 4096):
                yield Case("batch", model, ranks, batch, 20 if batch > 500 else 100)
        for ranks in (1, 2, 4, 8):
            yield Case("ranks", model, ranks, 512, 40)
    for model, hidden in (("mlp", 0), ("cnn", 0), ("mlp", HIDDEN[4])):
        for nodes in (1, 2, 4):
            yield Case("nodes", model, 4, 256, 20, nodes, hidden)


def parameters_of(case):
    if case.model == "mlp":
        widths = (784, *((case.hidden,) * 2 if case.hidden else (250, 100)), 10)
        return sum((before + 1) * after for before, after in zip(widths, widths[1:]))
    return sum(parameter.numel() for parameter in networks.make_network(case.model, seed=1).parameters())


def emulated(scratch, ranks, nodes):
    """The file of a machine of so many nodes."""
    path = scratch / f"{ranks}-ranks-{nodes}-nodes.toml"
    each = ranks // nodes
    said = "".join(f"[[node]]\nranks = {list(range(node * each, (node + 1) * each))}\n" for node in range(nodes))
    path.write_text(said + "[[link]]\n" + "".join(f"{key} = {value}\n" for key, value in LINK.items()))
    return path


def parse():
    parser = argparse.ArgumentParser(prog="perf/growth.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", nargs="+", choices=["parameters", "batch", "ranks", "nodes"], default=["parameters", "batch", "ranks", "nodes"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the smallest case of each series, five steps, kept nowhere: does it run?")
    parser.add_argument("--output", type=pathlib.Path, default=runs.TOP / "perf/results/growth/growth.csv")
    return parser.parse_args()


def measured(case, data, scratch):
    if not (data / case.model).exists():
        random_images.stage(data / case.model, networks.RECIPES[case.model]["shape"], train_samples=8192)
    runs.run(runs.dtrain_command(case.ranks, scratch, "run", "--dataset", data / case.model, *case.options(scratch), oversubscribe=True))
    with h5py.File(scratch / "run/results.h5", "r", locking=False) as file:
        ranks = list(file["ranks"].values())
        step_s = max(statistics.median(float(value) for value in rank["steps"]["time_s"][WARM_UP:]) for rank in ranks)
        peak = max(int(rank["epochs"]["peak_memory_bytes"].max()) for rank in ranks)
    return {"parameters": parameters_of(case), "step_s": f"{step_s:.6g}", "peak_mib": round(peak / 2**20)}


def exchanges(scratch):
    """Rows of all_reduces between two ranks of one node."""
    return [{"series": "exchange", "ranks": 2, "nodes": 1, "bytes": size, "step_s": f"{seconds:.6g}"}
            for size, seconds in runs.exchange_s(scratch, EXCHANGED).items()]


def facts_of(case):
    facts = {"series": case.series, "model": case.model, "hidden": case.hidden, "ranks": case.ranks, "nodes": case.nodes, "batch": case.batch,
             "cores": len(os.sched_getaffinity(0))}
    return facts | (LINK if case.nodes > 1 else dict.fromkeys(LINK, 0))


def main():
    arguments = parse()
    wanted = [case for case in cases() if case.series in arguments.series]
    rows = [] if arguments.quick else runs.read_rows(arguments.output)
    if arguments.quick:
        first = {case.series: case for case in reversed(wanted)}
        wanted = [Case(**{**vars(case), "steps": 5}) for case in first.values()]
        arguments.rounds = 1
    comments = [f"perf/growth.sh; {runs.machine()}"]
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        scratch = pathlib.Path(scratch)
        if not any(row["series"] == "exchange" for row in rows):
            rows += exchanges(scratch)
        for round_ in range(1, arguments.rounds + 1):
            for case in wanted:
                facts = facts_of(case)
                known = [row for row in rows if all(str(row.get(key, "")) == str(value) for key, value in facts.items())]
                if len(known) >= round_:
                    continue
                rows.append(facts | measured(case, scratch / "data", scratch))
                print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
                if not arguments.quick:
                    runs.write_rows(arguments.output, rows, comments)


if __name__ == "__main__":
    main()
