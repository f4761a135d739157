"""second_user.py DTRAIN [--only PART]... [--out FOLDER] [--faults FILE]: what another user of the machine tries, and what holds.

Needs root, which becomes both users; else it ends with 77. After each attack no file of the victim's is changed, none can be
read that was closed, dtrain has ended in time with the promised exit code, and a refusal is one sentence with a remedy. --out
keeps second_user.txt and second_user.csv."""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

import fixtures
import judge

if os.geteuid() != 0:
    print("skipped: only root can act as two other users")
    sys.exit(77)

import attack as attacks  # noqa: E402
import attacks_on_folders  # noqa: E402,F401  # their cases
import attacks_on_files  # noqa: E402,F401
from machine import MARKER, SENTENCE, Machine  # noqa: E402


@dataclass
class Result:
    attack: object
    outcome: object
    fault: str


def make_given(folder, binary):
    """What each victim has: closed data with a mark, rows to stage, and a run."""
    random = np.random.default_rng(1)
    data = folder / "data"
    data.mkdir()
    fixtures.write_dataset(data / "table", "table", "table_classification", [4],
                           lambda n: {"inputs": random.normal(size=(n, 4)).astype(np.float32), "targets": random.integers(0, 3, n).astype(np.int64)},
                           classes=[MARKER.decode(), "second", "third"])
    np.save(data / "new.npy", random.normal(size=(5, 4)).astype(np.float32))
    (data / "rows.csv").write_text("a,b,class\n" + "".join(f"{i},{i * i % 7},{'yes' if i % 3 else 'no'}\n" for i in range(40)))
    command = [binary, *attacks.TRAIN, "--dataset", "table", "--data-root", data, "--output", folder / "runs", "--name", "kept"]
    subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL, env=os.environ | {"OMPI_MCA_btl": "^ofi"})


def fault_of(attack, machine):
    """How dtrain ended, and what does not hold; empty: nothing."""
    before = machine.belongings()
    outcome = None
    try:
        outcome = attack.run(machine)
    except AssertionError as error:
        return outcome, str(error)
    except Exception:
        return outcome, traceback.format_exc()
    closed = machine.disclosed()
    if machine.belongings() not in (before, with_new(machine, before)):
        return outcome, "the victim's files were changed"
    if closed:
        return outcome, f"another user can read {closed[0]}"
    if outcome.code not in attack.codes:
        return outcome, f"exit code {outcome.code}: {outcome.errors[-300:]}"
    if outcome.code != 0:
        own = [line for line in outcome.errors.splitlines() if line.startswith("dtrain:")]
        if len(own) != 1 or not SENTENCE.fullmatch(own[0]) or judge.RAW.search(outcome.errors):
            return outcome, f"not one sentence: {outcome.errors[-300:]}"
    return outcome, ""


def with_new(machine, before):
    """The same with `new`, the folder in which the victim's trials put their runs."""
    names = before[before.index("["):]
    listed = sorted([*(name.strip("'") for name in names.strip("[]").split(", ")), "new"])
    return before.replace(names, str(listed))


def table(results):
    groups = list(dict.fromkeys(result.attack.group for result in results))
    lines = [f"{len(results)} attacks by a second user, {date.today()}: {sum(bool(result.fault) for result in results)} with a fault", ""]
    for group in groups:
        lines.append(group)
        for result in results:
            if result.attack.group == group:
                code = "-" if result.outcome is None else result.outcome.code
                lines.append(f"  {'FAULT' if result.fault else 'holds'}  exit code {code}  {result.attack.does}: {result.attack.promise}")
    return "\n".join(lines)


def keep(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "second_user.txt").write_text(table(results) + "\n")
    with open(folder / "second_user.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "attack", "promise", "promised_codes", "exit_code", "seconds", "said", "fault"])
        for result in results:
            outcome = result.outcome
            seen = ("", "", "") if outcome is None else (outcome.code, f"{outcome.seconds:.1f}", without_places(outcome.sentence))
            writer.writerow([result.attack.group, result.attack.does, result.attack.promise, " ".join(map(str, result.attack.codes)), *seen, result.fault])


def without_places(sentence):
    """Scratch folders have another name each time."""
    words = (word if tempfile.gettempdir() + "/dtrain-second-user" not in word else ".../" + word.split("/", 4)[-1] for word in sentence.split(" "))
    return " ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    binary = str(Path(arguments.binary).resolve())
    if not attacks.can_start(binary):
        print("skipped: other users cannot execute the program where it lies")
        return 77
    chosen = [attack for attack in attacks.ALL if not arguments.only or any(part in f"{attack.group}: {attack.does}" for part in arguments.only)]
    root = Path(tempfile.mkdtemp(prefix="dtrain-second-user-"))
    root.chmod(0o755)
    try:
        given = root / "given"
        given.mkdir()
        make_given(given, binary)
        results = []
        for number, attack in enumerate(chosen):
            machine = Machine(root / f"{number}", binary, given)
            results.append(Result(attack, *fault_of(attack, machine)))
            shutil.rmtree(machine.root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(table(results))
    for result in results:
        if result.fault:
            print(f"{result.attack.group}: {result.attack.does}: {result.fault}")
    if arguments.out:
        keep(arguments.out, results)
    return 1 if any(result.fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
