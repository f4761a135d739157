"""On two emulated nodes of two ranks whose link is held to 1 Gb/s: all_reduce by hierarchy beside rings in two orders and
MPI's own, with the bytes that crossed the link; and step times of one mesh placed well and badly.

    cluster.py DTRAIN ALL_REDUCE_BENCH OUT_FOLDER [--rounds 5] [--part all_reduce|mpi|mesh]

Writes all_reduce.csv, mpi.csv and mesh.csv, a row per round, and prints the medians. Needs root and Slurm, as tests/cluster does.
"""
import argparse
import csv
import json
import statistics
import sys
from pathlib import Path

import h5py

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tests" / folder) for folder in ("cluster", "support")]
from emulated import Cluster  # noqa: E402

BYTES = 36 << 20
STEPS = 8
MPI = {f"{library}_ALLOW_RUN_AS_ROOT{suffix}": "1" for library in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")}
MPI["OMPI_MCA_btl"] = "^ofi"  # without a fabric it costs each start a second


def mpirun(cluster, mapping, *command, limit_s=300, **settings):
    return cluster.run("head", "mpirun", "-np", 4, "--host", "node1:2,node2:2", "--map-by", mapping, "--bind-to", "none", *command,
                       limit_s=limit_s, **MPI, **settings).stdout


def link_bytes(cluster):
    """Sent and received by node 1."""
    stats = json.loads(cluster.run("node1", "ip", "-json", "-statistics", "link", "show", "eth0").stdout)[0]["stats64"]
    return stats["tx"]["bytes"], stats["rx"]["bytes"]


def all_reduce(cluster, bench, rounds):
    ways = [("hierarchical", "ppr:2:node", "placed", "hierarchical", {}), ("ring, block order", "ppr:2:node", "launched", "ring", {}),
            ("ring, cyclic order", "node", "launched", "ring", {})]
    return compare(cluster, bench, rounds, ways)


def mpi(cluster, bench, rounds):
    """The same of MPI_Allreduce: as it chooses, and by each of Open MPI's algorithms."""
    tuned = {"recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6}
    ways = [("MPI_Allreduce", "ppr:2:node", "launched", "mpi_native", {}),
            ("MPI_Allreduce, han", "ppr:2:node", "launched", "mpi_native", {"OMPI_MCA_coll_han_priority": "100"})]
    ways += [(f"MPI_Allreduce, {name}", "ppr:2:node", "launched", "mpi_native",
              {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number),
               "OMPI_MCA_coll_tuned_priority": "100"}) for name, number in tuned.items()]
    return compare(cluster, bench, rounds, ways)


def compare(cluster, bench, rounds, ways):
    """Rows of contender, round, seconds, and what crossed the link per operation as a multiple of the buffer."""
    rows = []
    for number in range(rounds):
        for name, mapping, order, contender, settings in ways:
            before = link_bytes(cluster)
            said = mpirun(cluster, mapping, bench, "--nodes", 0, "--rounds", 1, "--sizes", BYTES, "--only", contender, "--rank-order", order, **settings)
            after = link_bytes(cluster)
            operations = int(next(line for line in said.splitlines() if " operations of " in line).split()[-1])
            crossed = [(b - a) / operations / BYTES for a, b in zip(before, after)]
            times = {row["mode"]: float(row["microseconds"]) * 1e-6
                     for row in csv.DictReader(line for line in said.splitlines() if not line.startswith("#"))}
            for mode, seconds in times.items():
                rows.append({"contender": name, "mode": mode, "round": number, "seconds": seconds,
                             "sent_per_byte": round(crossed[0], 4), "received_per_byte": round(crossed[1], 4)})
    return rows


def mesh(cluster, dtrain, rounds):
    """Rows of model, placement, round, seconds per step (median of the run's later half), bytes over the link per step."""
    rows = []
    models = {"conv_autoencoder": ["--global-batch", 128], "vgg11": ["--global-batch", 32, "--model-option", "hidden=512"]}
    for number in range(rounds):
        for model, options in models.items():
            for order in ("placed", "launched"):
                name = f"{model}-{order}-{number}"
                before = link_bytes(cluster)
                mpirun(cluster, "node", dtrain, "--model", model, *options, "--mesh", "data=2,pipe=2", "--rank-order", order,
                       "--limit-steps", STEPS, "--output", cluster.folder / "runs", "--name", name, "--quiet", "--threads", 1,
                       "--all-reduce", "hierarchical")
                after = link_bytes(cluster)
                with h5py.File(cluster.folder / "runs" / name / "results.h5") as file:
                    times = file["ranks/00000/steps"]["time_s"][STEPS // 2:]
                rows.append({"model": model, "placement": order, "round": number, "step_s": round(float(statistics.median(times)), 4),
                             "sent_mb_per_step": round((after[0] - before[0]) / STEPS / 1e6, 2),
                             "received_mb_per_step": round((after[1] - before[1]) / STEPS / 1e6, 2)})
    return rows


def keep(path, rows, keys, values):
    """The rows to a file, their medians to standard output."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        mine = [row for row in rows if tuple(row[k] for k in keys) == key]
        said = [f"{value} {statistics.median(r[value] for r in mine):.4f} ({min(r[value] for r in mine):.4f} to {max(r[value] for r in mine):.4f})"
                for value in values]
        print(", ".join(key) + ": " + ", ".join(said), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dtrain", type=Path)
    parser.add_argument("bench", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=["all_reduce", "mpi", "mesh"])
    given = parser.parse_args()
    given.dtrain = given.dtrain.resolve()  # ranks have another current folder
    given.out.mkdir(parents=True, exist_ok=True)
    with Cluster(given.dtrain, "--rate", "1gbit") as cluster:
        for part in (all_reduce, mpi):
            if given.part in (None, part.__name__):
                keep(given.out / f"{part.__name__}.csv", part(cluster, given.bench.resolve(), given.rounds), ["contender", "mode"],
                     ["seconds", "sent_per_byte", "received_per_byte"])
        if given.part in (None, "mesh"):
            keep(given.out / "mesh.csv", mesh(cluster, given.dtrain, given.rounds), ["model", "placement"],
                 ["step_s", "sent_mb_per_step", "received_mb_per_step"])


if __name__ == "__main__":
    main()
