"""What an attack of a second user is, and what attacks have in common. Each says what the attacker does and what is promised;
its function does it and returns how dtrain ended. What does not hold it says by an AssertionError."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from machine import ATTACKER, LIMIT_S, VICTIM

CHECKOUT = Path(__file__).resolve().parents[2]
TRAIN = ("--model", "mlp", "--model-option", "hidden=8", "--global-batch", "8", "--threads", "1", "--limit-steps", "2", "--quiet")
TABLE = (*TRAIN, "--dataset", "table", "--data-root", "data", "--output", "new", "--name", "run")


@dataclass(frozen=True)
class Attack:
    group: str
    does: str
    promise: str
    codes: tuple
    run: object


ALL = []


def attack(group, does, promise, *codes):
    def add(function):
        ALL.append(Attack(group, does, promise, codes, function))
        return function
    return add


def link(target, path):
    return lambda: os.symlink(target, path)


def open_folder(path, *links):
    """One that all may write to, with links (NAME, TARGET) in it."""
    def make():
        os.umask(0)
        os.makedirs(path, 0o777)
        for name, target in links:
            os.symlink(target, Path(path, name))
    return make


def fifo(path):
    def make():
        os.umask(0)
        os.mkfifo(path, 0o666)
    return make


def content(folder):
    """What lies there, without the folders of the victim's own."""
    own = {path.name for path in folder.glob(f"dtrain-{VICTIM}-*") if path.lstat().st_uid == VICTIM}
    paths = {path.relative_to(folder): path.lstat() for path in folder.rglob("*")}
    return {str(path): (facts.st_mode, facts.st_size) for path, facts in paths.items() if path.parts[0] not in own}


def with_a_run(machine, path):
    copy = machine.root / "bait"
    shutil.copytree(machine.home / "runs" / "kept", copy, symlinks=True)
    for place in (copy, *copy.rglob("*")):
        os.lchown(place, ATTACKER, ATTACKER)
        if not place.is_symlink():
            place.chmod(0o777 if place.is_dir() else 0o666)
    copy.rename(path)
    machine.is_public()
    return lambda: None


def can_start(binary):
    """Whether the victim may execute the program and read its libraries."""
    as_victim = {"user": VICTIM, "group": VICTIM, "extra_groups": []}
    try:
        return subprocess.run([binary, "--version"], capture_output=True, check=False, timeout=LIMIT_S, **as_victim).returncode == 0
    except PermissionError:
        return False
