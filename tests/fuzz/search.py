"""search.py PROGRAMS FOUND [--rounds N] [--seconds S] [--readers NAME ...] [--limit-s L]: searches with every fuzzer of the preset fuzz in turn.

PROGRAMS is build/fuzz/tests/fuzz. Each round gives each reader S seconds (60 unless told), one after the other, on one core.
What a reader's search keeps lies in FOUND/READER and is where its next one begins; inputs with a finding lie beside it in
FOUND/findings/READER. After each search a row is added to FOUND/searches.csv: reader, executions, seconds of a core, seconds
that passed, inputs kept, and findings (crashes, out of memory, too slow). A search that takes more than L seconds (5 S + 300 unless
told) is ended without a row, and the next one begins. Ends cleanly on Ctrl-C."""

import argparse
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = Path(__file__).resolve().parent / "corpus"
SUPPRESSIONS = Path(__file__).resolve().parents[1] / "support/leaks.supp"
COLUMNS = ("reader", "executions", "cpu_s", "wall_s", "inputs_kept", "crashes", "out_of_memory", "too_slow")
STATUS = re.compile(r"^#(\d+): cov: .* oom/timeout/crash: (\d+)/(\d+)/(\d+)", re.MULTILINE)


def said_by(command, environment, limit_s):
    """What the program and all that it starts said; None where they took longer, and were ended."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
                          process_group=0) as process:  # not a session of its own, which Linux would give a share of the cores
        try:
            return process.communicate(timeout=limit_s)[1]
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def search(program, reader, found, seconds, limit_s, scratch):
    """One search of one reader; returns its row, or None where it did not end in time. `scratch`: for temporary files."""
    kept, findings = found / reader, found / "findings" / reader
    kept.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"TMPDIR": scratch, "ASAN_OPTIONS": "allocator_may_return_null=1", "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}"}
    command = [program, "-fork=1", "-ignore_crashes=1", "-ignore_ooms=1", "-ignore_timeouts=1", f"-max_total_time={seconds}", "-timeout=10",
               "-rss_limit_mb=2048", "-malloc_limit_mb=1024", f"-artifact_prefix={findings}/", kept, SEEDS / reader]
    began, before = time.monotonic(), os.times()
    said = said_by(command, environment, limit_s)
    if said is None:
        return None
    after = os.times()
    statuses = STATUS.findall(said)
    if not statuses:
        sys.exit(f"{program}: no search: {said[-400:]}")
    executions, memory, slow, crashes = statuses[-1]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return dict(zip(COLUMNS, (reader, executions, round(cpu), round(time.monotonic() - began), len(list(kept.iterdir())), crashes, memory, slow)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("found", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--readers", nargs="+")
    parser.add_argument("--limit-s", type=float)
    given = parser.parse_args()
    limit_s = given.limit_s or 5 * given.seconds + 300
    readers = given.readers or sorted(folder.name for folder in SEEDS.iterdir() if folder.is_dir())
    given.found.mkdir(parents=True, exist_ok=True)
    table = given.found / "searches.csv"
    for _ in range(given.rounds):
        for reader in readers:
            program = given.programs / f"fuzz_{reader}"
            if not program.exists():
                sys.exit(f"{program}: not there; cmake --build --preset fuzz builds it")
            with tempfile.TemporaryDirectory(prefix="dtrain-fuzz-") as scratch:  # a search that is killed leaves its files
                row = search(program, reader, given.found, given.seconds, limit_s, scratch)
            if row is None:
                print(f"{reader}: took more than {limit_s:g} s and was ended; the machine was busy, or the search was stopped", flush=True)
                continue
            is_new = not table.exists()
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if is_new:
                    writer.writeheader()
                writer.writerow(row)
            print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
