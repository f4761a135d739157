"""Runs a case and says what was wrong: how it ended, how long it took, its memory, its sentence, and what it touched."""

import hashlib
import os
import re
import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 15
LARGEST_BYTES = 1 << 30
LONGEST_SENTENCE = 800  # 300 of what others wrote, and our own words

KINDS = ("signal", "hang", "memory", "wrong data", "accepted", "refused", "exit code", "sentence")

SENTENCE = re.compile(r"dtrain: (rank \d+: )?\S.*: \S.*; \S.*")
RAW = re.compile(r"std::|c10::|at::|nlohmann|json\.exception|basic_string|vector::|bad_alloc|stoll|stoi|what\(\)|terminate called|"
                 r"HDF5-DIAG|H5[A-Z]{1,2}[a-z]\w+\(|Exception raised from|filesystem error|frame #|\(core dumped\)|Sanitizer")


@dataclass
class Outcome:
    """How a process ended."""

    code: int  # negative: a signal, as subprocess has it
    seconds: float
    peak_bytes: int
    hung: bool
    output: bytes
    errors: bytes


@dataclass
class Fault:
    kind: str
    text: str


def _peak(pid):
    """The most memory of a process so far."""
    try:
        return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


def _own_peak(usage):
    """What the kernel has counted to the end; the memory of this Python, which the child was for a moment, counts there, too."""
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage.ru_maxrss * 1024 if usage.ru_maxrss > ours else 0


def _end(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def execute(command, folder, environment, limit_s=LIMIT_S):
    """Runs `command` in `folder`; what runs too long, or takes twice the memory that is allowed, is killed."""
    with open(folder.parent / "output", "w+b") as output, open(folder.parent / "errors", "w+b") as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                   start_new_session=True)
        hung, peak, pause = False, 0, 0.005
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, _peak(process.pid))
            hung = time.monotonic() - begin > limit_s
            if hung or peak > 2 * LARGEST_BYTES:
                _end(process.pid)
                _, status, usage = os.wait4(process.pid, 0)
                break
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        _end(process.pid)  # of those it has started none may stay
        return Outcome(process.returncode, seconds, max(peak, _own_peak(usage)), hung, _read(output), _read(errors))


def _read(file):
    file.seek(0)
    return file.read(1 << 20)


def fingerprint(folder):
    """Of all names and contents below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        digest.update(f"{path.relative_to(folder)} {facts.st_mode} {facts.st_size} {facts.st_mtime_ns}\n".encode())
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def control_characters(text):
    """The first of them, as Python writes it; tab and line feed are layout. Empty: there is none."""
    try:
        letters = text.decode()
    except UnicodeDecodeError as error:
        return f"byte {text[error.start]:#x}, which is not UTF-8"
    for letter in letters:
        if (ord(letter) < 32 and letter not in "\n\t") or 0x7F <= ord(letter) < 0xA0:
            return ascii(letter)
    return ""


def _unsaid(case, text):
    missing = [word for word in case.says if word not in text]
    return f"does not say {missing[0]!r}" if missing else ""


def _about_sentence(case, outcome):
    """What is wrong with the words of a refusal."""
    found = control_characters(outcome.errors)
    if found:
        return f"the control character {found} is not escaped"
    text = outcome.errors.decode()
    if RAW.search(text):
        return f"the raw text of a library: {RAW.search(text).group()}"
    sentences = [line for line in text.splitlines() if line.startswith("dtrain:")]
    if len(sentences) != 1:
        return f"{len(sentences)} sentences instead of one"
    if not SENTENCE.fullmatch(sentences[0]):
        return "subject, problem or remedy is missing"
    if len(sentences[0]) > LONGEST_SENTENCE:
        return f"{len(sentences[0])} characters"
    return _unsaid(case, sentences[0])


def _left_behind(case, folder):
    """A dataset that was refused must not lie there, not even in part."""
    if case.arguments[:1] != ("stage",) or 0 in case.codes:
        return ""
    staged = folder / "data" / "staged"
    left = sorted(path.name for path in staged.iterdir() if path.name.endswith(".partial") or (path / "dataset.json").exists()
                  or any(path.glob("*.h5"))) if staged.is_dir() else []
    return f"left data/staged/{left[0]}" if left else ""


def judge(case, outcome, folder, given):
    """The faults of one case, gravest first; usually none."""
    faults = []
    if outcome.hung:
        return [Fault("hang", f"still ran after {outcome.seconds:.0f} s")]
    if outcome.peak_bytes > LARGEST_BYTES:
        faults.append(Fault("memory", f"{outcome.peak_bytes / 2**20:.0f} MiB"))
        if outcome.peak_bytes > 2 * LARGEST_BYTES:
            return faults
    if outcome.code < 0:
        return faults + [Fault("signal", signal.Signals(-outcome.code).name)]
    if outcome.code >= 128:
        return faults + [Fault("signal", f"exit code {outcome.code}")]
    if outcome.code not in case.codes:
        wanted = " or ".join(map(str, sorted(case.codes)))
        kind = "accepted" if outcome.code == 0 else "refused" if 0 in case.codes else "exit code"
        faults.append(Fault(kind, f"exit code {outcome.code} instead of {wanted}"))
    output = outcome.output.decode(errors="replace")
    checks = [case.after] if case.after else []
    if outcome.code == 0 and 0 in case.codes:
        checks += [case.check] if case.check else []
        missing = _unsaid(case, output + outcome.errors.decode(errors="replace")) if case.codes == {0} else ""
        if missing:
            faults.append(Fault("sentence", missing))
    faults += [Fault("wrong data", wrong) for check in checks if (wrong := check(folder, given, output))]
    if outcome.code != 0:
        wrong = _about_sentence(case, outcome)
        if wrong:
            faults.append(Fault("sentence", wrong))
        wrong = _left_behind(case, folder)
        if wrong:
            faults.append(Fault("wrong data", wrong))
    found = control_characters(outcome.output)
    if found:
        faults.append(Fault("sentence", f"prints the control character {found}"))
    return faults
