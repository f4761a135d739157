"""Runs are killed (SIGKILL, all ranks at once) at random moments of a save; each is then gone on with from a valid checkpoint.

    kill_while_saving.py BINARY [--runs N] [--out FOLDER]

Most moments lie between the opening of step-NNNNNNNN.partial and its renaming: how many is counted, and must be three in
four. A checkpoint's writing takes about 50 ms here, so the moment is drawn from the first 50.
"""

import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from dtrain_run import MPIRUN, run

OPTIONS = ["--model", "mlp", "--model-option", "hidden=1200,1200", "--threads", 1, "--checkpoint-every", "4steps", "--epochs", 1000,
           "--record-steps", "off", "--name", "killed"]
RANKS = 2
WINDOW_S = 0.05
ENOUGH = 0.75


def session(leader):
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def newest(checkpoints, ending=""):
    pattern = re.compile(r"step-(\d{8})" + re.escape(ending))
    steps = [int(match[1]) for name in os.listdir(checkpoints) if (match := pattern.fullmatch(name))] if checkpoints.exists() else []
    return max(steps, default=0)


def kill_in_a_save(binary, folder, draw):
    """Kills a run in its second save or later; whether it was between the opening and the renaming."""
    checkpoints = folder / "runs/killed/checkpoints"
    command = [str(MPIRUN), str(RANKS), str(binary), *map(str, OPTIONS), "--quiet"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        limit = time.monotonic() + 60
        first = newest(checkpoints)
        while newest(checkpoints) <= first or newest(checkpoints, ".partial") <= first:
            assert time.monotonic() < limit and process.poll() is None, "no checkpoint is being written"
            time.sleep(0.002)
        members = session(process.pid)  # found beforehand: looking takes as long as the save
        limit = time.monotonic() + 60
        while newest(checkpoints, ".partial") > 0:  # this one's end, and then the next one's beginning
            assert time.monotonic() < limit, "a save does not end"
            time.sleep(0.001)
        while newest(checkpoints, ".partial") == 0:
            assert time.monotonic() < limit, "no other save begins"
            time.sleep(0.001)
        time.sleep(draw.uniform(0, WINDOW_S))
        for member in members:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait(timeout=30)
    for _ in range(100):  # until the kernel has taken the last of them away
        if not session(process.pid):
            break
        time.sleep(0.05)
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{process.pid}", ignore_errors=True)  # a killed launcher's own
    return newest(checkpoints, ".partial") > newest(checkpoints)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    arguments = parser.parse_args()
    draw = random.Random(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for number in range(arguments.runs):
            inside = kill_in_a_save(arguments.binary, folder, draw)
            expected = newest(folder / "runs/killed/checkpoints")
            done = run(arguments.binary, RANKS, *OPTIONS, "--exit-after", "0.01s", cwd=folder, check=False)
            assert done.returncode == 75, (number, done.returncode, done.stdout, done.stderr)
            resumed = re.search(r"resumed .*step-(\d{8})", done.stdout)
            assert resumed and int(resumed[1]) == expected and "passed over" not in done.stdout, (number, expected, done.stdout)
            rows.append({"run": number, "between_opening_and_renaming": int(inside), "resumed_from": expected})
            print(*rows[-1].values(), flush=True)
    inside = sum(row["between_opening_and_renaming"] for row in rows)
    print(f"{len(rows)} runs, {inside} killed between the opening of .partial and its renaming")
    if arguments.out:
        with open(arguments.out / f"kill-while-saving-{date.today()}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if inside < ENOUGH * len(rows):
        sys.exit("too few were killed in the middle of a save: the machine writes faster than the window")


if __name__ == "__main__":
    main()
