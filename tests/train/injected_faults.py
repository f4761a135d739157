"""Each fault ends with the right verdict and exit code within its bound, the state says so, and no process is left.

    injected_faults.py BINARY
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import h5py

from drawn import drawn
from dtrain_run import MPIRUN, children, refused, run

RANKS = 4
WATCHDOG_S = 3
MLP = ["--model", "mlp", "--threads", 1, "--epochs", 1, "--limit-steps", 60, "--watchdog", WATCHDOG_S, "--quiet"]
# Fault: exit code, what standard error says, bound in seconds.
FAULTS = {
    "kill:rank=0,phase=forward,step=7": (5, r"rank 0 is gone", 10),
    "kill:rank=1,phase=backward,step=7": (5, r"rank 1 is gone", 10),
    "kill:rank=2,phase=all_reduce,step=7": (5, r"rank 2 is gone", 10),
    "kill:rank=3,phase=optimizer,step=7": (5, r"rank 3 is gone", 10),
    "kill:rank=1,phase=evaluation,step=60": (5, r"rank 1 is gone", 10),
    "kill:rank=2,phase=checkpoint,step=60": (5, r"rank 2 is gone", 10),
    "stop:rank=2,phase=backward,step=7": (5, r"rank 2 is suspended: process \d+ was stopped by a signal, in backward of step 7",
                                          WATCHDOG_S + 10),
    "stop:rank=2,phase=checkpoint,step=60": (5, r"rank 2 has not arrived within 3 s", WATCHDOG_S + 10),
    "skip:rank=1,step=7": (5, r"rank 1 is missing: it waits in all_reduce number \d+ of group world|"
                       r"rank 0 is missing: it waits in reduce_parts number \d+ of group data, which rank 1 has left out", WATCHDOG_S + 10),
    "count:rank=1,step=7": (1, r"rank 1 calls reduce_parts of 222527 float32", 10),
    "dtype:rank=3,step=7": (1, r"rank 3 calls reduce_parts of 222528 int32", 10),
    "order:rank=1,step=7": (1, r"rank 1 calls barrier", 10),
    "nan:rank=1,step=7": (1, r"step 7, output_fc.bias: the gradient is not finite", 10),
}


def left_running(mark):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def suffers(binary, folder, fault, code, words, bound_s):
    mark = "DTRAIN_TEST_MARK=" + uuid.uuid4().hex
    environment = {**os.environ, "DTRAIN_TEST_MARK": mark.split("=")[1]}
    command = [str(MPIRUN), str(RANKS), str(binary), *map(str, MLP), "--name", "faulty", "--overwrite", "--inject", fault]
    if fault.startswith("kill"):  # plain mpirun kills all at the first death, and returns what it likes
        environment["DTRAIN_MPIRUN_FLAGS"] = "--with-ft ulfm"
        command += ["--on-failure", "abort"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          capture_output=True)
    took_s = time.monotonic() - start
    assert done.returncode == code, (fault, done.returncode, done.stderr)
    assert re.search(words, done.stderr), (fault, done.stderr)
    assert took_s < bound_s, (fault, took_s)
    assert (folder / "runs/faulty/state").read_text() == "failed\n", fault
    for _ in range(50):
        if not left_running(mark):
            break
        time.sleep(0.1)
    assert not left_running(mark), fault
    print(f"{fault}: exit {code} after {took_s:.1f} s", flush=True)


def tells_of_a_failure_of_its_own(binary, folder):
    """What one rank fails of is said by it, once, and is what the program ends with; the others only wait for it."""
    for rank in (0, 1):
        for _ in range(3):
            refused(binary, 3, 1, [f"rank {rank}: ", "--inject fail: fails here because it was told to; leave it out"], *MLP, "--name", "failing",
                    "--inject", f"fail:rank={rank},step=3", "--overwrite", cwd=folder)


def leaves_flights_and_the_verdict(folder):
    """Of the run that hung: what each rank communicated last, and who kept the others waiting."""
    ranks = folder / "runs/faulty/ranks"
    tables = [(ranks / f"flights-{rank:05}.csv").read_text().splitlines() for rank in range(RANKS)]
    assert all(table[0] == "group,number,operation,count,type,queued_s,started_s,ended_s" for table in tables)
    waiting = [table[-1].split(",") for table in tables]
    assert waiting[0][:3] == waiting[1][:3] == waiting[3][:3] and waiting[0][-1] == "", waiting  # started, never ended
    assert waiting[2][0] != "data" or int(waiting[2][1]) <= int(waiting[0][1]), waiting  # woken to be killed, it has come no further
    said = []
    for rank in (0, 1, 3):
        with h5py.File(ranks / f"rank-{rank:05}.h5", locking=False) as file:
            said += [event["detail"].decode() for event in file["events"][:] if event["kind"] == b"lost_rank"]
            assert b"injected" in file["events"]["kind"]
    assert any("rank 2 is suspended" in detail for detail in said), said


def finds_a_straggler(binary, folder):
    run(binary, RANKS, "--model", "cnn", "--threads", 1, "--epochs", 1, "--limit-steps", 60, "--name", "slow", "--quiet",
        "--inject", "slow:rank=2,step=10,factor=10", cwd=folder)
    with h5py.File(folder / "runs/slow/results.h5") as file:
        assert file.attrs["status"] in ("completed", b"completed")
        events = [event["detail"].decode() for event in file["ranks/00000/events"][:] if event["kind"] == b"straggler"]
    assert events and re.match(r"rank 2 is slow: [\d.]+ s of its own in steps", events[0]), events
    report = subprocess.run([binary, "report", "runs/slow"], cwd=folder, text=True, capture_output=True, check=True, timeout=60).stdout
    assert "rank 2" in report and "slower than the median" in report, report


def outlives_a_suspension(binary, folder):
    """All ranks are suspended for longer than a collective may take, as a batch system does, and continue."""
    watchdog_s = 1
    command = [str(MPIRUN), "2", str(binary), "--model", "cnn", "--threads", "1", "--epochs", "1000", "--limit-steps", "4000", "--quiet",
               "--watchdog", str(watchdog_s), "--name", "suspended"]
    job = subprocess.Popen(command, cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    results = folder / "runs/suspended/results.h5"
    end = time.monotonic() + 60
    while not results.exists():
        assert job.poll() is None and time.monotonic() < end, "the run has not begun"
        time.sleep(0.02)
    time.sleep(1)
    pids = children(job.pid)
    assert len(pids) == 2 and job.poll() is None, "the run was over before it could be suspended"
    for _ in range(3):  # wherever they wait
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * watchdog_s)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, (job.returncode, out, err)
    assert (folder / "runs/suspended/state").read_text() == "completed\n", err
    print("suspended and continued: completed", flush=True)


def outlives_a_full_disk(binary, folder):
    """The run goes on, records what it can, keeps its whole checkpoints, and says in the end what is missing.

    Step 20's was whole before step 40's was begun; whether that one, written in the background, was ended before the
    disk filled depends on the machine, and the run says which.
    """
    command = [str(MPIRUN), str(RANKS), str(binary), *map(str, MLP), "--checkpoint-every", "20steps", "--name", "full", "--inject",
               "disk_full:rank=0,step=41"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, text=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 4 and time.monotonic() - start < 20, (done.returncode, done.stderr)
    assert done.stderr.count("warning: the checkpoint of step 60 is missing") == 1, done.stderr
    assert "recording stopped early" in done.stderr, done.stderr
    whole = [step for step in (20, 40) if f"the checkpoint of step {step} is missing" not in done.stderr]
    assert 20 in whole, done.stderr
    kept = sorted(entry.name for entry in (folder / "runs/full/checkpoints").iterdir() if entry.name not in ("best", "last"))
    assert kept == [f"step-{step:08}" for step in whole], (kept, done.stderr)
    assert (folder / "runs/full/state").read_text() == "failed\n"
    print(f"disk_full: exit 4 after {time.monotonic() - start:.1f} s", flush=True)


def finds_copies_that_drift_apart(binary, folder):
    options = ["--model", "resnet18", "--model-option", "width=4", "--global-batch", 64, "--limit-steps", 12, "--epochs", 1,
               "--threads", 1, "--quiet", "--verify-every", 5]
    run(binary, 3, *options, "--name", "alike", cwd=folder)
    refused(binary, 3, 1, ["step 10", "rank 1 holds", "other"], *options, "--name", "drifted", "--inject", "drift:rank=1,step=7",
            cwd=folder)


def refuses_another_build(binary, folder):
    other = folder / "other-build"
    shutil.copy(binary, other)
    bytes_ = bytearray(other.read_bytes())
    note = bytes_.find(b"GNU\0", bytes_.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"))  # 4 name, 20 bytes, type build-id
    assert note > 0, "the program has no build-id"
    bytes_[note + 4] ^= 0xFF
    other.write_bytes(bytes_)
    command = [str(MPIRUN), "1", str(binary), *map(str, MLP), "--name", "mixed", ":", "-np", "1", str(other), *map(str, MLP), "--name", "mixed"]
    done = subprocess.run(command, cwd=folder, text=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 2 and "rank 1 is another build of dtrain than rank 0" in done.stderr, (done.returncode, done.stderr)
    assert not (folder / "runs/mixed").exists()


def refuses(binary, folder):
    for fault, words in {"kill:rank=9": ["there is no rank 9", "0 to 1"], "kill:rank=1,phase=lunch": ["no phase \"lunch\"", "backward"],
                         "melt:rank=1": ["no fault \"melt\"", "kill"], "kill:rank=one": ["rank=one is not a number"],
                         "kill:rank=0,step=0": ["count from 1"], "slow:rank=0,factor=1": ["factor above 1"],
                         "kill:colour=red": ["colour"], "link_down:rank=0,seconds=-1": ["seconds=0 or more"],
                         "kill:rank=0,phase=recovery,step=x": ["step=x is not a number"]}.items():
        refused(binary, 2, 2, ["--inject", *words], "--inject", fault, cwd=folder)
    refused(binary, 2, 2, ["--watchdog"], "--watchdog", 0, cwd=folder)
    refused(binary, 2, 2, ["--verify-every"], "--verify-every", -1, cwd=folder)


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        refuses(binary, folder)
        refuses_another_build(binary, folder)
        for fault, (code, words, bound_s) in drawn(FAULTS.items()):
            suffers(binary, folder, fault, code, words, bound_s)
            if fault.startswith("stop") and "backward" in fault:
                leaves_flights_and_the_verdict(folder)
        tells_of_a_failure_of_its_own(binary, folder)
        outlives_a_suspension(binary, folder)
        outlives_a_full_disk(binary, folder)
        finds_a_straggler(binary, folder)
        finds_copies_that_drift_apart(binary, folder)


if __name__ == "__main__":
    main()
