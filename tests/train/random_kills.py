"""Ranks are killed at any moment, or their launcher is: no run hangs, what `state` says is true, and no process or shared memory
is left.

    random_kills.py BINARY [--full] [--out FOLDER]
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import h5py

from dtrain_run import MPIRUN, children, process_state, remove_session_folder, write_rows
from recovery import has_ulfm

RANKS = 4
# No result depends on these: they end a run that hangs. Other programs may have the cores for a while.
LIMIT_S = 240  # a rank that dies while MPI starts is given up after 60 s
LEFT_S = 60  # for processes and names to go; ranks whose launcher is gone look for it each second
OPTIONS = ["--model", "mlp", "--global-batch", 500, "--epochs", 2, "--checkpoint-every", "7steps", "--quiet", "--watchdog", 60,
           "--overwrite", "--threads", 1]
EAGER = "--pipeline eager-1f1b"  # two stages share a layer
MESHES = ["data=4", "data=2,pipe=2", "data=2,tensor=2", f"data=2,pipe=2 {EAGER}", f"pipe=4 {EAGER}"]


def alive(pid):
    return process_state(pid) not in ("", "Z", "X")


def started(binary, folder, mesh):
    environment = {**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}
    command = [str(MPIRUN), str(RANKS), str(binary), *map(str, OPTIONS), "--mesh", *mesh.split(), "--name", "killed"]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def ranks_of(run):
    """Process numbers, as soon as all are there."""
    end = time.monotonic() + LIMIT_S
    while len(children(run.pid)) < RANKS:
        assert time.monotonic() < end and run.poll() is None, "the run has not begun"
        time.sleep(0.005)
    return children(run.pid)


def names_in_memory():
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def check_nothing_is_left(case, pids, memory, begun=True):
    """`begun`: MPI was ready. A job killed before that leaves Open MPI's own files, whoever it is that starts there."""
    end = time.monotonic() + LEFT_S
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids)), (case, "a process is left", [pid for pid in pids if alive(pid)])
    left = names_in_memory() - memory
    if not begun:
        for name in left:
            if name.startswith("sm_segment") and not others_run(name):
                (Path("/dev/shm") / name).unlink(missing_ok=True)
        return
    # Other programs of this machine make names too: they map what is behind them, or take them away again.
    while (left := {name for name in left & names_in_memory() if not others_run(name)}) and time.monotonic() < end:
        time.sleep(0.2)
    assert not left, (case, "shared memory is left", left)


def others_run(name):
    """Whether a process maps this file: it is of another run on this machine."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and name in (entry / "maps").read_text():
                return True
        except OSError:
            pass
    return False


def survives(binary, folder, number, seed):
    """A row of what happened after a kill at a random moment of a random rank."""
    chance = random.Random(seed)
    mesh = MESHES[number % len(MESHES)]
    memory = names_in_memory()
    shutil.rmtree(folder / "runs", ignore_errors=True)
    run = started(binary, folder, mesh)
    pids = ranks_of(run)
    state_file = folder / "runs/killed/state"
    from_start = number % 20 == 0  # of MPI; the others from that of the run
    while not (from_start or state_file.exists()):
        assert run.poll() is None, "the run has not begun"
        time.sleep(0.002)
    delay_s = chance.uniform(0, 1.0 if from_start else 1.5)
    victim = chance.randrange(RANKS)
    case = f"{mesh}, rank {victim}, {delay_s:.2f} s after the start of {'MPI' if from_start else 'the run'}"
    time.sleep(delay_s)
    begun = state_file.exists()
    # Of each rank: rank 0 may have results while another is still making communicators.
    trained = all((folder / f"runs/killed/ranks/rank-{rank:05}.h5").exists() for rank in range(RANKS))
    done_before = run.poll() is not None
    if alive(pids[victim]):
        os.kill(pids[victim], signal.SIGKILL)
    out, err = run.communicate(timeout=LIMIT_S)
    state = state_file.read_text().strip() if state_file.exists() else "none"
    # Open MPI 5.0.11 crashes in the others when a rank dies while a communicator is made, and mpirun may return 0 even then: who
    # was not training yet need not outlive it, and `state` is what counts.
    assert state == "completed" or not trained, (case, state, run.returncode, out, err)
    assert state in ("completed", "failed", "none", "running"), (case, state)
    if state == "completed":
        assert run.returncode == 0, (case, run.returncode, out, err)
        with h5py.File(folder / "runs/killed/results.h5") as file:
            assert file.attrs["status"] == b"completed" and list(file["epochs"]["epoch"]) == [1, 2], (case, out, err)
    check_nothing_is_left(case, pids, memory, begun)
    why = "" if state == "completed" else "; ".join(line for line in err.splitlines() if line.startswith("dtrain:"))[:300]
    print(f"{case}: exit {run.returncode}, {state} {why}", flush=True)
    return {"mesh": mesh, "rank": victim, "after_s": round(delay_s, 3), "trained": trained, "exit_code": run.returncode,
            "state": state, "ended_before": done_before}


def ranks_end_with_their_launcher(binary, folder):
    memory = names_in_memory()
    run = started(binary, folder, "data=4")
    pids = ranks_of(run)
    end = time.monotonic() + LIMIT_S
    while not (folder / f"runs/killed/ranks/rank-{RANKS - 1:05}.h5").exists():
        assert time.monotonic() < end, "the run has not begun"
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=LIMIT_S)
    check_nothing_is_left("launcher killed", pids, memory)
    remove_session_folder(run.pid)
    print("launcher killed: its ranks have ended", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true", help="100 kills instead of 9")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    arguments = parser.parse_args()
    if not has_ulfm():
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        ranks_end_with_their_launcher(arguments.binary, Path(folder))
        rows = [survives(arguments.binary, Path(folder), number, arguments.seed * 1000 + number)
                for number in (range(100) if arguments.full else range(1, 10))]
    print(f"{len(rows)} kills: {dict(Counter((row['state'], row['exit_code']) for row in rows))}")
    if arguments.out:
        write_rows(rows, arguments.out, "random-kills")


if __name__ == "__main__":
    main()
