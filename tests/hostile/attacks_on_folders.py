"""Attacks on folders that users share: node-local copies, folders of runs, staged datasets."""

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import threading
from attack import TABLE, TRAIN, attack, content, fifo, link, open_folder, with_a_run
from machine import ATTACKER, LIMIT_S, VICTIM, started_as, stop

# ---- The node-local copy -------------------------------------------------------------------------------------------------
COPY = "node-local copy"


def train_with_copy(machine, **options):
    return machine.dtrain(*TABLE, "--staging", f"local={machine.shared}", **options)


def has_own_copy(machine):
    copies = [path / name for path in machine.own_copies() for name in os.listdir(path) if name.startswith("table-")]
    assert len(copies) == 1, f"copies of the victim's own: {copies}"
    return copies[0]


def guessed(machine):
    return machine.shared / f"dtrain-{VICTIM}-aaaaaa"


def copy_case(does, make):
    @attack(COPY, does, "a folder of the victim's own is made and used", 0)
    def run(machine):
        machine.attack(make(machine))
        before = content(machine.shared)
        outcome = train_with_copy(machine)
        has_own_copy(machine)
        left = content(machine.shared)
        assert {name: left.get(name) for name in before} == before, "what the attacker laid was changed"
        assert not any(name.startswith(f"dtrain-{VICTIM}-aaaaaa/") and name not in before for name in left), "it was written to"
        return outcome


copy_case("lays a link of the copy's name to the victim's data", lambda machine: link(machine.home / "data", guessed(machine)))
copy_case("lays a folder of that name, open to all", lambda machine: open_folder(guessed(machine)))
copy_case("lays a FIFO of that name", lambda machine: fifo(guessed(machine)))
copy_case("lays a file of that name", lambda machine: guessed(machine).touch)


@attack(COPY, "lays a changed copy of the dataset in a folder of that name, closed as it should be", "it is not used", 0)
def changed_copy_of_the_attackers(machine):
    source = machine.home / "data" / "table"
    version = hashlib.sha256((source / "dataset.json").read_bytes()).hexdigest()[:12]
    false = machine.root / "false" / f"table-{version}"
    shutil.copytree(source, false)
    with open(false / "train-00000-of-00001.h5", "r+b") as file:
        file.truncate(1000)
    machine.give(false.parent, ATTACKER)
    false.parent.chmod(0o711)  # the victim may enter
    false.parent.rename(guessed(machine))
    machine.is_public()
    outcome = train_with_copy(machine)
    has_own_copy(machine)
    return outcome


@attack(COPY, "changes a copy that an earlier run has left, through some hole", "it is verified and made again", 0)
def changed_copy_on_reuse(machine):
    assert train_with_copy(machine).code == 0
    shard = has_own_copy(machine) / "train-00000-of-00001.h5"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-8] + b"\xff" * 8)
    os.chown(shard, VICTIM, VICTIM)
    outcome = machine.dtrain(*TABLE, "--overwrite", "--staging", f"local={machine.shared}")
    assert (has_own_copy(machine) / "train-00000-of-00001.h5").read_bytes() == whole, "the changed copy was used"
    return outcome


@attack(COPY, "holds a lock in a folder of that name for ever", "nothing waits for it", 0)
def lock_of_the_attackers(machine):
    def hold():
        os.mkdir(guessed(machine), 0o755)
        file = os.open(guessed(machine) / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.lockf(file, fcntl.LOCK_EX)
    holder = started_as(ATTACKER, hold)
    try:
        outcome = train_with_copy(machine)
    finally:
        stop(holder)
    assert "waits for" not in outcome.errors, outcome.errors
    return outcome


@attack(COPY, "makes a process of the victim's hang that holds the lock", "the wait says for which process, and ends with it", 0)
def lock_of_the_victims(machine):
    own = guessed(machine)

    def hold():
        os.mkdir(own, 0o700)
        file = os.open(own / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(file, fcntl.LOCK_EX)
    holder = started_as(VICTIM, hold)
    process = machine.start([machine.binary, *(word for word in TABLE if word != "--quiet"), "--staging", f"local={machine.shared}"],
                            stderr=subprocess.STDOUT)
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        said = next((line for line in process.stdout if f"waits for process {holder}" in line), "")
    finally:
        stop(holder)
        limit.cancel()
    assert said, f"it did not say that it waits for process {holder}"
    return machine.finish(process)


@attack(COPY, "reads the copy of files that are closed to others, during the run and after it", "nothing can be read", 0)
def reading_of_closed_files(machine):
    process = machine.start([machine.binary, *TABLE, "--staging", f"local={machine.shared}"])
    while process.poll() is None:
        assert not machine.disclosed(), "read during the run"
    outcome = machine.finish(process)
    copy = has_own_copy(machine)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in copy.iterdir()), "the copy is open to others"
    return outcome


@attack(COPY, "owns the sticky folder, and so may rename what lies in it", "refused", 2)
def sticky_folder_of_the_attackers(machine):
    os.chown(machine.shared, ATTACKER, ATTACKER)
    return train_with_copy(machine)


@attack(COPY, "may rename all in a folder without a sticky bit", "refused", 2)
def folder_without_sticky_bit(machine):
    machine.shared.chmod(0o777)
    return train_with_copy(machine)


# ---- Folders of runs -----------------------------------------------------------------------------------------------------
RUN = "run's folder"


def run_case(does, make, *options, promise="refused before anything is read or written there"):
    @attack(RUN, does, promise, 2)
    def run(machine):
        machine.attack(make(machine, machine.shared / "run"))
        before = content(machine.shared)
        outcome = machine.dtrain(*TRAIN, "--output", machine.shared, "--name", "run", *options)
        left = content(machine.shared)
        assert left == before, f"the folder was changed: {sorted(set(left) ^ set(before))}"
        return outcome


def names_of_a_run(machine):
    """All files that a run makes aside, as links to what is precious."""
    names = ("state.partial", "config.toml.partial", "results.h5.partial", "alive", "trace.json.partial", ".seen.partial")
    return [(name, machine.home / "precious.txt") for name in names]


run_case("lays a folder of the run's name", lambda machine, path: open_folder(path))
run_case("lays one with links in it to the victim's files", lambda machine, path: open_folder(path, *names_of_a_run(machine)))
run_case("lays a link of that name to the victim's own run, which is to be overwritten",
         lambda machine, path: link(machine.home / "runs" / "kept", path), "--overwrite")
run_case("lays a link of that name to the victim's data", lambda machine, path: link(machine.home / "data", path))
run_case("lays a FIFO of that name", lambda machine, path: fifo(path))


run_case("lays a whole run, to be overwritten", with_a_run, "--overwrite")
run_case("lays a whole run, to be resumed", with_a_run, "--resume", "auto", "--limit-steps", "4")


@attack(RUN, "lays the folder of all runs, open to all", "refused before anything is written there", 2)
def folder_of_runs(machine):
    machine.attack(open_folder(machine.shared / "runs"))
    outcome = machine.dtrain(*TRAIN, "--output", machine.shared / "runs", "--name", "run")
    assert not any((machine.shared / "runs").iterdir()), "something was written there"
    return outcome


@attack(RUN, "reads a run of a user whose umask is 077", "nothing can be read", 0)
def run_of_a_closed_user(machine):
    outcome = machine.dtrain(*TRAIN, "--dataset", "table", "--data-root", "data", "--output", machine.shared, "--name", "run", umask=0o077)
    assert stat.S_IMODE((machine.shared / "run").stat().st_mode) == 0o700
    return outcome


@attack(RUN, "gives `--name` a path upwards", "refused", 2)
def run_above(machine):
    return machine.dtrain(*TRAIN, "--output", machine.shared, "--name", "../victim/data")


# ---- Staged datasets -----------------------------------------------------------------------------------------------------
STAGE = "staged dataset"


def stage_case(does, make, *options):
    @attack(STAGE, does, "refused, and left as it is", 3)
    def run(machine):
        machine.attack(make(machine))
        before = content(machine.shared)
        outcome = machine.dtrain("stage", "set", "--from", "data/rows.csv", "--data-root", machine.shared / "staged", *options)
        assert content(machine.shared) == before, "the folder was changed"
        return outcome


def sticky_root(machine, action):
    """A data root as /tmp is, in which the attacker does something."""
    root = machine.shared / "staged"
    root.mkdir()
    root.chmod(0o1777)
    return lambda: action(root)()


stage_case("lays the data root, open to all", lambda machine: open_folder(machine.shared / "staged"))
stage_case("lays a link as data root to the victim's data", lambda machine: link(machine.home / "data", machine.shared / "staged"))
stage_case("lays a link of the dataset's name", lambda machine: sticky_root(machine, lambda root: link(machine.home / "data" / "table", root / "set")),
           "--overwrite")
stage_case("lays a folder of the dataset's name with files of its own, to be overwritten",
           lambda machine: sticky_root(machine, lambda root: open_folder(root / "set", ("dataset.json", machine.home / "precious.txt"))), "--overwrite")
stage_case("lays a link where the dataset is written",
           lambda machine: sticky_root(machine, lambda root: link(machine.home / "data", root / "set.partial")))
stage_case("lays a folder where the dataset is written", lambda machine: sticky_root(machine, lambda root: open_folder(root / "set.partial")))
stage_case("lays a FIFO where the dataset is written", lambda machine: sticky_root(machine, lambda root: fifo(root / "set.partial")))


@attack(STAGE, "gives the dataset a name that is a path upwards", "refused", 2)
def dataset_above(machine):
    return machine.dtrain("stage", "../victim/data/new", "--from", "data/rows.csv", "--data-root", machine.shared)


@attack(STAGE, "offers a dataset whose shard is a link to the victim's own", "refused: no link leads out of a dataset", 3)
def shard_that_is_a_link(machine):
    machine.attack(open_folder(machine.shared / "table"))
    for path in (machine.home / "data" / "table").iterdir():
        target = machine.shared / "table" / path.name
        if path.suffix == ".h5":
            machine.attack(link(path, target))
        else:
            shutil.copyfile(path, target)
    machine.is_public()
    return machine.dtrain(*TRAIN, "--dataset", "table", "--data-root", machine.shared, "--output", "new", "--name", "run")
