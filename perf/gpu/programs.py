"""Other programs, started one at a time or kept at hand, none of which outlives the time that there is."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "perf" / "training"))
import runs  # noqa: E402

WORDS = 2000  # characters that are kept of what a program said last


class Failed(Exception):
    """A program did not do what it was started for; the measurement it belongs to has no figure."""


class OutOfTime(Exception):
    """The time of this call is up: what was being measured is left for the next one."""


class Limits:
    """How long the call may go on, and the case that is being measured."""

    def __init__(self, limit_s, grace_s, case_s):
        """No case begins after `limit_s`; one that runs then has `grace_s` to end. None takes more than `case_s`."""
        now = time.monotonic()
        self.last_start, self.end, self.case_s = now + limit_s, now + limit_s + grace_s, case_s
        self.case_end = self.end

    def spent(self):
        return time.monotonic() >= self.last_start

    def begin_case(self):
        self.case_end = time.monotonic() + self.case_s

    def left_s(self):
        return max(0.0, min(self.end, self.case_end) - time.monotonic())

    def expired(self):
        """Says whose time it was that came to its end."""
        if self.end <= self.case_end:
            raise OutOfTime
        raise Failed(f"took more than the {self.case_s:g} s that a case may")


def environment():
    """Without what a launcher left to its own ranks, and without a limit on threads: options say how many."""
    values = runs.environment()
    del values["OMP_NUM_THREADS"]
    return values


def end(process):
    """It and all that it started. A launcher gets the time to end its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def failure(command, code, words):
    """The folders of this machine are left out of what it said last."""
    words = words.replace(f"{TOP}/", "").replace(f"{sys.prefix}/", "").strip()[-WORDS:]
    return Failed(f"{runs.relative(command)}\nended with {code}\n{words}".strip())


def run(command, limits):
    """What it printed. Throws Failed where it failed or took too long."""
    command = [str(word) for word in command]
    try:
        process = subprocess.Popen(command, cwd=TOP, env=environment(), text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise Failed(f"{runs.relative(command)}\ncannot be started: {error.strerror}") from error
    try:
        output, errors = process.communicate(timeout=limits.left_s())
    except subprocess.TimeoutExpired:
        limits.expired()
    finally:
        end(process)
    if process.returncode != 0:
        raise failure(command, process.returncode, f"{output[-WORDS:]}\n{errors}")
    return output


class Peer:
    """A program that makes its network once, says that it is ready, and measures whenever it is asked to. Each answer is one
    line of JSON."""

    def __init__(self, command, log):
        """`log`: a file for what else it says."""
        self.command, self.log = [str(word) for word in command], pathlib.Path(log)
        with open(self.log, "w", encoding="utf-8") as words:
            self.process = subprocess.Popen(self.command, cwd=TOP, env=environment(), text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=words, start_new_session=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)  # it has ended

    def answer(self, limits):
        try:
            line = self.lines.get(timeout=limits.left_s())
        except queue.Empty:
            limits.expired()
        if line is None:
            self.lines.put(None)  # whoever asks again is told the same
            raise failure(self.command, self.process.wait(), self.log.read_text(errors="replace"))
        return json.loads(line)

    def ask(self, limits):
        try:
            self.process.stdin.write("again\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, as its answer says
        return self.answer(limits)

    def close(self):
        try:
            self.process.stdin.close()  # upon which it ends by itself
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        end(self.process)
        self.process.stdout.close()
