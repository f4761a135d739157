"""Ranks are killed, and the others go on without them from the newest checkpoint: with the bits of an undisturbed run, each
sample used once an epoch.

    recovery.py BINARY [--full] [--out FOLDER]
"""

import argparse
import csv
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import h5py

from dtrain_run import MPIRUN, checkpoint_tensors, refused, run

RANKS = 4
STEPS = 24
EVERY = 5
COMMON = ["--model", "mlp", "--global-batch", 500, "--epochs", 2, "--limit-steps", STEPS, "--reproducible", "--checkpoint-every",
          f"{EVERY}steps", "--quiet", "--watchdog", 20]
MESHES = ["data=4", "data=2,pipe=2"]
PHASES = ["forward", "backward", "all_reduce", "optimizer", "evaluation", "checkpoint"]
STEP_OF = {"checkpoint": 10, "evaluation": 17}  # the end of an epoch; 8 of others
SAMPLE = [("data=4", "kill:rank=0,phase=forward,step=8"), ("data=4", "kill:rank=2,phase=all_reduce,step=8"),
          ("data=2,pipe=2", "kill:rank=3,phase=optimizer,step=8"), ("data=2,pipe=2", "kill:rank=0,phase=checkpoint,step=10"),
          ("data=4", "kill:rank=1,phase=backward,step=8;kill:rank=3,phase=backward,step=8"),
          ("data=4", "kill:rank=1,phase=forward,step=2")]  # before the first checkpoint


def has_ulfm():
    version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
    return "Open MPI) 5" in version or "prterun" in version


def started(binary, folder, name, mesh, *options):
    environment = {**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}
    command = [str(MPIRUN), str(RANKS), str(binary), *map(str, COMMON), "--mesh", mesh, "--name", name, *map(str, options)]
    return subprocess.run(command, cwd=folder, env=environment, text=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)


def facts(run_folder):
    """Tensors of the last checkpoint, and by epoch the hash of the samples that all ranks together have used."""
    hashes = {}
    with h5py.File(run_folder / "results.h5") as file:
        for rank in file["ranks"].values():
            for row in rank["samples"][:]:
                hashes[int(row["epoch"])] = (hashes.get(int(row["epoch"]), 0) + int(row["hash"])) % 2**64
    return checkpoint_tensors(run_folder / "checkpoints" / f"step-{STEPS:08}", group=None), hashes


def survives(binary, folder, mesh, fault, expected):
    """Seconds from the loss to the end of the first step without the lost ranks."""
    done = started(binary, folder, "killed", mesh, "--inject", fault, "--overwrite")
    run_folder = folder / "runs/killed"
    assert done.returncode == 0, (mesh, fault, done.returncode, done.stdout, done.stderr)
    assert (run_folder / "state").read_text() == "completed\n", (mesh, fault)
    found, hashes = facts(run_folder)
    others = [name for name in expected[0] if expected[0][name].tobytes() != found[name].tobytes()]
    assert not others, (mesh, fault, others[:5])
    assert hashes == expected[1], (mesh, fault, "a sample was used twice or not at all")
    with h5py.File(run_folder / "results.h5") as file:
        events = [event["detail"].decode() for event in file["ranks/00000/events"][:] if event["kind"] == b"recovered"]
    lost = sorted(set(re.findall(r"rank=(\d)", fault)))
    assert len(events) == 1 and events[0].startswith(f"rank{'s' if len(lost) > 1 else ''} {', '.join(lost)} lost"), (fault, events)
    seconds = float(re.search(r"was done after ([\d.]+) s", events[0])[1])
    print(f"{mesh} {fault}: the bits of an undisturbed run, recovered in {seconds:.2f} s", flush=True)
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true", help="every rank in every phase on both meshes")
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    arguments = parser.parse_args()
    if not has_ulfm():
        sys.exit(77)
    cases = SAMPLE
    if arguments.full:
        cases = [(mesh, f"kill:rank={rank},phase={phase},step={STEP_OF.get(phase, 8)}")
                 for mesh in MESHES for rank in range(RANKS) for phase in PHASES] + SAMPLE[4:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        refused(arguments.binary, 2, 2, ["--on-failure recover", "--with-ft ulfm"], "--on-failure", "recover", cwd=folder)
        run(arguments.binary, RANKS, *COMMON, "--name", "undisturbed", cwd=folder)
        expected = facts(folder / "runs/undisturbed")
        for mesh, fault in cases:
            rows.append({"mesh": mesh, "fault": fault, "recovered_s": survives(arguments.binary, folder, mesh, fault, expected)})
        given_up = started(arguments.binary, folder, "aborted", "data=4", "--inject", SAMPLE[0][1], "--on-failure", "abort")
        assert given_up.returncode == 5 and "rank 0 is gone" in given_up.stderr, (given_up.returncode, given_up.stderr)
        shutil.rmtree(folder / "runs")
    times = [row["recovered_s"] for row in rows]
    print(f"{len(rows)} losses, recovered in {statistics.median(times):.2f} s (median), {max(times):.2f} s at most")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        with open(arguments.out / f"kills-{date.today()}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
