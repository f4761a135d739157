"""What checkpoints of vgg11 cost, measured in turn in one run; a table and the raw figures go to perf/results/checkpoints.

1. Two ranks, batch 128, a checkpoint each 50 steps and none: how long a save blocks the loop, in steps; what the step of the
   save and the five behind it take over the run's median step, as a part of 50 steps; samples/s of both kinds of run.
2. The checkpoint's writing (parts, SHA-256, sync, manifest) beside cp and a sync of the same files, and torch.save and a sync
   of the same tensors.
3. Reading it into memory on one rank, with its SHA-256 checked and without, beside a plain read of the same files and
   torch.load of the same tensors: from opening until all values are in memory, each in a process of its own; all from the
   machine's cache.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

import h5py

import runs

EVERY = 50
BEHIND = 5  # steps in which what was saved is surely written
VGG11 = ["--model", "vgg11", "--global-batch", 128, "--epochs", 1]


def parse():
    parser = argparse.ArgumentParser(prog="perf/checkpoint.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", type=int, choices=(1, 2, 3), default=[1, 2, 3])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "checkpoints")
    return parser.parse_args()


def steps_of(folder):
    """By rank: seconds of each step but the first, and those of them that a save blocked."""
    with h5py.File(folder / "run" / "results.h5", "r", locking=False) as file:
        return [(rank["steps"]["time_s"][1:], rank["steps"]["checkpoint_time_s"][1:]) for rank in file["ranks"].values()]


def blocking(arguments, folder, rows):
    steps = EVERY + 10
    blocked, extra, rates, falls = [], [], {True: [], False: []}, []
    for pair in range(arguments.pairs):
        for saves in (False, True):
            every = ["--checkpoint-every", f"{EVERY}steps"] if saves else []
            runs.run(runs.dtrain_command(2, folder, "run", *VGG11, "--limit-steps", steps, *every))
            ranks = steps_of(folder)
            seconds = max(float(times.sum()) for times, _ in ranks)
            rates[saves].append(128 * (steps - 1) / seconds)
            if saves:
                slowest = [max(step) for step in zip(*(times for times, _ in ranks))]
                usual = statistics.median(slowest)
                saving = slowest[EVERY - 2:EVERY - 1 + BEHIND]  # the first step is left out
                extra.append((sum(saving) - usual * len(saving)) / (EVERY * usual))
                blocked.append(max(float(waits.max()) for _, waits in ranks) / usual)
            rows.append({"part": 1, "pair": pair, "case": "saves" if saves else "none", "samples_per_s": rates[saves][-1],
                         "blocked_steps": blocked[-1] if saves else "", "extra_of_50_steps": extra[-1] if saves else ""})
        falls.append(1 - rates[True][-1] / rates[False][-1])
        print(f"pair {pair}: blocked {blocked[-1]:.3f} of a step, costs {100 * extra[-1]:.1f} % of {EVERY} steps, "
              f"throughput falls by {100 * falls[-1]:.1f} %", flush=True)
    return ("## What a save costs the loop\n\n| | median (range) |\n| --- | --- |\n"
            f"| a save blocks the loop for, of a step | {runs.median_and_range(blocked, 3)} |\n"
            f"| a save costs, beside the run's usual steps, of {EVERY} steps, % | {runs.median_and_range([100 * part for part in extra], 1)} |\n"
            f"| samples/s without checkpoints | {runs.median_and_range(rates[False], 1)} |\n"
            f"| one each {EVERY} steps | {runs.median_and_range(rates[True], 1)} |\n"
            f"| throughput falls by, % | {runs.median_and_range([100 * fall for fall in falls], 1)} |")


def copied(source, target):
    """Seconds of a copy that is on disk."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    start = time.perf_counter()
    for file in source.iterdir():
        with open(file, "rb") as reading, open(target / file.name, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 22)
            writing.flush()
            os.fsync(writing.fileno())
    return time.perf_counter() - start


def saved_by_torch(tensors, target):
    import torch
    start = time.perf_counter()
    with open(target, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def tensors_of(folder):
    import torch
    found = {}
    for entry in json.loads((folder / "manifest.json").read_text())["tensors"]:
        with h5py.File(folder / entry["slices"][0]["file"]) as file:
            found[entry["name"]] = torch.as_tensor(file[entry["name"]][()])
    return found


def writing(arguments, folder, rows):
    rates = {"dtrain": [], "cp": [], "torch.save": []}
    for pair in range(arguments.pairs):
        runs.run(runs.dtrain_command(2, folder, "run", *VGG11, "--limit-steps", 1))
        with h5py.File(folder / "run" / "results.h5", "r", locking=False) as file:
            events = [event["detail"].decode() for event in file["ranks/00000/events"][:] if event["kind"] == b"checkpoint"]
        checkpoint = folder / "run" / "checkpoints" / "step-00000001"
        megabytes = sum(file.stat().st_size for file in checkpoint.iterdir()) / 1e6
        seconds = {"dtrain": float(re.search(r"([\d.]+) s$", events[0])[1]), "cp": copied(checkpoint, folder / "copy"),
                   "torch.save": saved_by_torch(tensors_of(checkpoint), folder / "torch.pt")}
        for case, value in seconds.items():
            rates[case].append(megabytes / value)
            rows.append({"part": 2, "pair": pair, "case": case, "megabytes": megabytes, "seconds": value})
        print(f"pair {pair}: " + ", ".join(f"{case} {values[-1]:.0f} MB/s" for case, values in rates.items()), flush=True)
    return (f"## Writing {megabytes:.0f} MB, until they are on disk\n\n| | MB/s: median (range) |\n| --- | --- |\n" +
            "\n".join(f"| {case} | {runs.median_and_range(values, 0)} |" for case, values in rates.items()))


READ_PLAINLY = """
import pathlib, sys, time
start, held = time.perf_counter(), []
for file in pathlib.Path(sys.argv[1]).iterdir():
    with open(file, "rb") as reading:
        held.append(bytearray(file.stat().st_size))
        reading.readinto(held[-1])
print(time.perf_counter() - start)
"""
LOAD_BY_TORCH = """
import sys, time, torch
start = time.perf_counter()
tensors = torch.load(sys.argv[1])
print(time.perf_counter() - start)
"""


def seconds_said(code, path):
    """Of a new process: a second reading in one would find memory that it has used."""
    return float(runs.run([sys.executable, "-c", code, str(path)])[0])


def loading(arguments, folder, rows):
    reader = runs.TOP / "build" / "release" / "perf" / "checkpoint" / "read_checkpoint"
    if not reader.exists():
        raise SystemExit(f"perf: {reader} is not there; run jobs/build.sh all")
    runs.run(runs.dtrain_command(2, folder, "run", *VGG11, "--limit-steps", 1))
    checkpoint = folder / "run" / "checkpoints" / "step-00000001"
    saved_by_torch(tensors_of(checkpoint), folder / "torch.pt")
    rates = {"dtrain, checked": [], "dtrain, not checked": [], "plain read": [], "torch.load": []}
    for pair in range(arguments.pairs + 1):
        (count, checked_s), (_, unchecked_s) = (map(float, runs.run([str(reader), str(checkpoint), how])[0].split(","))
                                                for how in ("checked", "unchecked"))
        seconds = {"dtrain, checked": checked_s, "dtrain, not checked": unchecked_s, "plain read": seconds_said(READ_PLAINLY, checkpoint),
                   "torch.load": seconds_said(LOAD_BY_TORCH, folder / "torch.pt")}
        if pair == 0:
            continue  # fills the cache
        for case, value in seconds.items():
            rates[case].append(count / 1e6 / value)
            rows.append({"part": 3, "pair": pair - 1, "case": case, "megabytes": count / 1e6, "seconds": value})
        print(f"pair {pair - 1}: " + ", ".join(f"{case} {values[-1]:.0f} MB/s" for case, values in rates.items()), flush=True)
    return (f"## Reading {count / 1e6:.0f} MB into memory, from the cache\n\n| | MB/s: median (range) |\n| --- | --- |\n" +
            "\n".join(f"| {case} | {runs.median_and_range(values, 0)} |" for case, values in rates.items()))


def main():
    arguments = parse()
    machine, rows, pages = runs.machine(), [], []
    with tempfile.TemporaryDirectory() as folder:
        for part in arguments.parts:
            pages.append((blocking, writing, loading)[part - 1](arguments, pathlib.Path(folder), rows))
    command = f"perf/checkpoint.sh --parts {' '.join(map(str, arguments.parts))} --pairs {arguments.pairs}"
    runs.write_results(arguments.out, "cost", rows, f"`{command}`. Machine: {machine}.\n\n" + "\n\n".join(pages))


if __name__ == "__main__":
    main()
