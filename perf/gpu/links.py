"""Figures of two programs that measure by themselves: collectives between GPUs, and the loader."""

import re

import h5py

import dtrain_steps
import programs

LOADER_LINE = re.compile(r"^ +(?P<what>\S.*?), (?P<memory>.*?) +batch +(?P<batch>\d+): (?P<us>[\d.]+) us \((?P<least>[\d.]+) to "
                         r"(?P<most>[\d.]+)\)$", re.MULTILINE)
READING_LINE = re.compile(r"^ +(?P<what>\S.*?) {2,}(?P<rate>[\d.]+) GB/s", re.MULTILINE)


def loader_figures(printed):
    """Images per second of the loader alone, where it works in the caller's thread: a batch over the time of next()."""
    rows = [{"memory": line["memory"], "batch": int(line["batch"]), "next_us": float(line["us"]),
             "per_s": int(line["batch"]) / float(line["us"]) * 1e6, "least_per_s": int(line["batch"]) / float(line["most"]) * 1e6,
             "most_per_s": int(line["batch"]) / float(line["least"]) * 1e6}
            for line in LOADER_LINE.finditer(printed) if line["what"] == "inline"]
    if not rows:
        raise programs.Failed(f"the loader's benchmark printed no times:\n{printed[-programs.WORDS:]}")
    reading = {line["what"]: float(line["rate"]) for line in READING_LINE.finditer(printed)}
    return {"rows": rows, "reading_gb_per_s": reading}


def measure(bench):
    """Bus bandwidth of all_reduce and the other collectives, with as many ranks as there are GPUs."""
    if bench.device == "cuda" and bench.gpus < 2:
        return {"note": "one GPU has no peer: there is no bandwidth between GPUs to measure"}
    ranks = bench.gpus if bench.device == "cuda" else 2
    options = ["--device", bench.device, *(["--sizes", "4KiB"] if bench.quick else [])]
    file = bench.scratch / "topology.h5"
    programs.run([dtrain_steps.MPIRUN, ranks, bench.program, "topology", "--benchmark", *options, "--output", file], bench.limits)
    group = b"data on GPUs" if bench.device == "cuda" else b"world"
    with h5py.File(file, locking=False) as results:
        rows = [{"operation": row["operation"].decode(), "algorithm": row["algorithm"].decode(), "bytes": int(row["bytes"]),
                 "ranks": int(row["ranks"]), "median_s": float(row["median_s"]), "bus_bytes_per_s": float(row["bus_bandwidth"])}
                for row in results["measurements"][:] if row["group"] == group]
        devices = sorted({row["device"].decode() for row in results["topology"][:]})
    return {"rows": rows, "devices": devices}
