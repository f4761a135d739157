"""Runs are killed (SIGKILL, all ranks at once) at random moments of a save; each is then gone on with from a valid checkpoint.

    kill_while_saving.py BINARY [--runs N] [--out FOLDER]

Most moments lie between the opening of step-NNNNNNNN.partial and its renaming: how many is counted, and must be half of them. Each
run times a save first. Then the moment is drawn over that time: one in four runs has it in each quarter. On a busy machine one save
takes twice as long as the next.
"""

import argparse
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from dtrain_run import MPIRUN, kill_all, run, session, started

OPTIONS = ["--model", "mlp", "--model-option", "hidden=1200,1200", "--threads", 1, "--checkpoint-every", "4steps", "--epochs", 1000,
           "--record-steps", "off", "--name", "killed"]
RANKS = 2
QUARTERS = 4
ENOUGH = 0.5


def newest(checkpoints, ending=""):
    pattern = re.compile(r"step-(\d{8})" + re.escape(ending))
    steps = [int(match[1]) for name in os.listdir(checkpoints) if (match := pattern.fullmatch(name))] if checkpoints.exists() else []
    return max(steps, default=0)


def kill_in_a_save(binary, folder, moment):
    """Kills a run in its third save or later, `moment` (of 1) into it. Returns whether it was between the opening and the renaming, and
    the seconds of the save before."""
    checkpoints = folder / "runs/killed/checkpoints"
    with started([MPIRUN, RANKS, binary, *OPTIONS, "--quiet"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        def await_save(begun):
            """Until a save has begun, or has ended; the time then."""
            limit = time.monotonic() + 60
            while (newest(checkpoints, ".partial") > 0) != begun:
                assert time.monotonic() < limit and process.poll() is None, "no save begins" if begun else "a save does not end"
                time.sleep(0.001)
            return time.monotonic()

        limit = time.monotonic() + 60
        first = newest(checkpoints)
        while newest(checkpoints) <= first or newest(checkpoints, ".partial") <= first:
            assert time.monotonic() < limit and process.poll() is None, "no checkpoint is being written"
            time.sleep(0.002)
        members = session(process.pid)  # found beforehand: looking takes as long as the save
        await_save(False)
        begun = await_save(True)
        save_s = await_save(False) - begun
        await_save(True)
        time.sleep(moment * save_s)
        kill_all(members)
    for _ in range(100):  # until the kernel has taken the last of them away
        if not session(process.pid):
            break
        time.sleep(0.05)
    return newest(checkpoints, ".partial") > newest(checkpoints), save_s


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
            inside, save_s = kill_in_a_save(arguments.binary, folder, (number % QUARTERS + draw.random()) / QUARTERS)
            expected = newest(folder / "runs/killed/checkpoints")
            done = run(arguments.binary, RANKS, *OPTIONS, "--exit-after", "0.01s", cwd=folder, check=False)
            assert done.returncode == 75, (number, done.returncode, done.stdout, done.stderr)
            resumed = re.search(r"resumed .*step-(\d{8})", done.stdout)
            assert resumed and int(resumed[1]) == expected and "passed over" not in done.stdout, (number, expected, done.stdout)
            rows.append({"run": number, "between_opening_and_renaming": int(inside), "save_s": round(save_s, 3), "resumed_from": expected})
            print(*rows[-1].values(), flush=True)
    inside = sum(row["between_opening_and_renaming"] for row in rows)
    print(f"{len(rows)} runs, {inside} killed between the opening of .partial and its renaming")
    if arguments.out:
        with open(arguments.out / f"kill-while-saving-{date.today()}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if inside < ENOUGH * len(rows):
        sys.exit("too few were killed in the middle of a save: saves of a run take very different times here")


if __name__ == "__main__":
    main()
