"""Joins the CSV files of perf/all_reduce.sh into one Markdown table: median and range, ratios to MPI and gloo.

    all_reduce_table.py OUT.md FILE.csv...
"""
import csv
import itertools
import statistics
import sys


def read(paths):
    """(ranks, nodes, mode, bytes, contender) -> microseconds of each round; and the lines about machines."""
    times, machines = {}, []
    for path in paths:
        with open(path) as file:
            lines = file.readlines()
        machines += [line[2:].strip() for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            key = (int(row["ranks"]), int(row["nodes"]), row["mode"], int(row["bytes"]), row["contender"])
            times.setdefault(key, []).append(float(row["microseconds"]))
    return times, machines


def ratio(times, key, other, best):
    """How often `key` fits into the peer's time, or an empty cell."""
    peer = times.get(key[:4] + (other,))
    return f"{statistics.median(peer) / best:.2f} x" if peer and key[4] != other else ""


def size_name(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def main():
    out, paths = sys.argv[1], sys.argv[2:]
    times, machines = read(paths)
    text = ["# all_reduce of float32, microseconds", ""]
    text += [f"- {line}" for line in machines]
    text += ["", "Median [least .. greatest] over the rounds, the slowest rank's time. repeated: one call after another;",
             "refilled: each rank has just written its buffer. hierarchical and auto use buffers from allocate(),",
             "hierarchical_plain ordinary memory. bus: 2 (n-1)/n bytes / time.", ""]
    section = None
    for key in sorted(times, key=lambda k: k[:4]):
        ranks, nodes, mode, size, contender = key
        if section != key[:3]:
            section = key[:3]
            text += ["", f"## {ranks} ranks, {nodes} node{'s' if nodes > 1 else ''}, {mode}", "",
                     "| size | all_reduce | median | range | bus GB/s | MPI_Allreduce / this | gloo / this |",
                     "| --- | --- | --- | --- | --- | --- | --- |"]
        values = times[key]
        median = statistics.median(values)
        bus = 2 * (ranks - 1) / ranks * size / median * 1e-3
        text.append(f"| {size_name(size)} | {contender} | {median:.2f} | {min(values):.2f} .. {max(values):.2f} | {bus:.2f} | "
                    f"{ratio(times, key, 'mpi_native', median)} | {ratio(times, key, 'gloo', median)} |")
    with open(out, "w") as file:
        file.write("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
