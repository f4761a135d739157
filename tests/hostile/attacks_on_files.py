"""Attacks on files that dtrain writes or reads, on memory that ranks share, and on TMPDIR."""

import os
import shutil
import time
from pathlib import Path

from attack import CHECKOUT, TABLE, TRAIN, attack, can_start, content, fifo, link, open_folder, with_a_run
from machine import ATTACKER, LIMIT_S, VICTIM

# ---- Files that the user names ---------------------------------------------------------------------------------------------
FILE = "file to be written"


def file_case(does, ending, make, codes, *command):
    """`command` writes shared/out.ENDING; what lies there or at its .partial was laid in advance."""
    promise = "the link is not written through" if 0 not in codes else "it is replaced, and not written through"

    @attack(FILE, f"{does} ({command[0]}, {ending})", promise, *codes)
    def run(machine):
        out = machine.shared / f"out.{ending}"
        make(machine, out)
        outcome = machine.dtrain(*(out if word == "OUT" else word for word in command))
        if outcome.code == 0:
            assert out.is_file() and not out.is_symlink() and out.lstat().st_uid == VICTIM, "the file is not the victim's"
            machine.is_public()
        return outcome


def aside(path):
    return path.with_name(path.name + ".partial")


def hard_link(machine, out):
    os.link(machine.home / "precious.txt", aside(out))  # as kernels without protected_hardlinks let the attacker do it


LAID = (("lays a link where the file is written", lambda machine, out: machine.attack(link(machine.home / "precious.txt", aside(out))), None),
        ("lays a link of the file's name", lambda machine, out: machine.attack(link(machine.home / "precious.txt", out)), 2),
        ("lays a FIFO where the file is written", lambda machine, out: machine.attack(fifo(aside(out))), None),
        ("lays a hard link where the file is written", hard_link, 0))
for does_, make_, code_ in LAID:
    for ending_, command_, code in (("h5", ("export", "runs/kept/checkpoints/best", "OUT"), 4),
                                    ("safetensors", ("export", "runs/kept/checkpoints/best", "OUT"), 4),
                                    ("h5", ("evaluate", "runs/kept/checkpoints/best", "--data-root", "data", "--threads", "1",
                                            "--predictions", "OUT"), 1),
                                    ("csv", ("predict", "runs/kept/checkpoints/best", "--from", "data/new.npy", "--threads", "1", "--output", "OUT"), 1)):
        file_case(does_, ending_, make_, (code if code_ is None else code_,), *command_)


# ---- Reports and checkpoints of others -------------------------------------------------------------------------------------
READ = "files of others"


@attack(READ, "reports a run of the victim's that it may read", "it is shown, and nothing is written", 0)
def report_of_the_victims(machine):
    shutil.copytree(machine.home / "runs" / "kept", machine.shared / "run", symlinks=True)
    for path in (machine.shared / "run", *(machine.shared / "run").rglob("*")):
        os.lchown(path, VICTIM, VICTIM)
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o644)  # even where it could write
    machine.is_public()
    before = content(machine.shared)
    outcome = machine.dtrain("report", machine.shared / "run", user=ATTACKER)
    assert content(machine.shared) == before, "report has written"
    return outcome


def report_case(does, change, codes, *options):
    @attack(READ, does, "only what the run itself says is shown, and nothing is written", *codes)
    def run(machine):
        with_a_run(machine, machine.shared / "run")
        change(machine, machine.shared / "run")
        before = content(machine.shared)
        outcome = machine.dtrain("report", machine.shared / "run", *options)
        assert content(machine.shared) == before, "report has written"
        assert "secret" not in outcome.output + outcome.errors
        return outcome


def dead(machine, run, *links):
    """As a run that was killed: nothing gathered, and links where a file is written."""
    def change():
        (run / "state").write_text("running\n")
        for name, target in links:
            os.symlink(target, run / name)
    machine.attack(change)


def rank_file(machine, run, make):
    def change():
        for path in (run / "ranks").iterdir():
            path.unlink()
            make(path)
    machine.attack(change)
    dead(machine, run)


report_case("lays a FIFO as a rank's file", lambda machine, run: rank_file(machine, run, lambda path: os.mkfifo(path, 0o666)), (0, 3))
report_case("lays a link as a rank's file to what is precious",
            lambda machine, run: rank_file(machine, run, lambda path: os.symlink(machine.home / "precious.txt", path)), (0, 3))
report_case("lays a link where `report --gather` writes",
            lambda machine, run: dead(machine, run, ("results.h5.partial", machine.home / "precious.txt")), (0, 1, 2), "--gather")


@attack(READ, "offers a checkpoint whose part is a link to the victim's own weights", "refused: no link leads out of a checkpoint", 4)
def part_that_is_a_link(machine):
    source = (machine.home / "runs" / "kept" / "checkpoints" / "best").resolve()
    bait = machine.shared / "checkpoint"
    machine.attack(open_folder(bait))
    for path in source.iterdir():
        if path.suffix == ".h5":
            machine.attack(link(path, bait / path.name))
        else:
            shutil.copyfile(path, bait / path.name)
    machine.is_public()
    return machine.dtrain("export", bait, machine.shared / "out.h5")


# ---- Memory that ranks share, MPI's folder, notebooks ----------------------------------------------------------------------
SHARED = "memory and TMPDIR"


@attack(SHARED, "makes objects of likely names in /dev/shm, and tries to open all that come", "none is used, none can be opened", 0)
def shared_memory(machine):
    names = [Path("/dev/shm", f"dtrain-{os.getpid() + ahead}-{'0' * 16}") for ahead in range(1, 300)]

    def lay():
        os.umask(0)
        for name in names:
            with open(name, "wb") as file:
                file.write(b"laid")
    machine.attack(lay)
    try:
        launch = [CHECKOUT / "tests" / "support" / "mpirun.sh", 2, machine.binary, *TABLE, "--staging", "memory"]
        # Its wrapper takes a folder of the process's number in TMPDIR away, and mpirun makes folders of its own.
        process = machine.start(launch, variables={"TMPDIR": str(machine.home / ".mpi")})
        opened = set()
        while process.poll() is None:
            for path in Path("/dev/shm").iterdir():
                try:
                    facts = path.stat()
                except OSError:
                    continue
                if facts.st_uid == VICTIM and facts.st_mode & 0o077:
                    opened.add(path.name)
            time.sleep(0.005)
        outcome = machine.finish(process)
        assert not opened, f"open to others: {sorted(opened)[:3]}"
        assert all(name.read_bytes() == b"laid" for name in names), "what was laid was changed"
        return outcome
    finally:
        for name in names:
            name.unlink(missing_ok=True)


def session_case(does, make):
    @attack(SHARED, does, "Open MPI gets another folder, of the victim's own", 0)
    def run(machine):
        name = machine.shared / f"ompi.{os.uname().nodename.split('.')[0]}.{VICTIM}"
        machine.attack(make(machine, name))
        before = content(machine.shared)
        outcome = machine.dtrain(*TABLE)
        left = content(machine.shared)
        assert {path: left.get(path) for path in before} == before, "what the attacker laid was changed"
        assert not any(path.startswith(name.name + "/") and path not in before for path in left), "it was written to"
        return outcome


session_case("lays a link of the name that Open MPI takes in TMPDIR", lambda machine, name: link(machine.home / "data", name))
session_case("lays a folder of that name, open to all", lambda machine, name: open_folder(name, ("jf.0", machine.home / "data")))
session_case("lays a folder of that name, closed to others", lambda machine, name: lambda: os.mkdir(name, 0o700))
session_case("lays a FIFO of that name", lambda machine, name: fifo(name))


@attack(SHARED, "lays start-up files of IPython, Jupyter and matplotlib in TMPDIR, where jobs/scaling.sh runs a notebook", "none is run", 0)
def notebook(machine):
    checkout = machine.home / ".checkout"
    for name in ("perf/notebooks", "runs"):
        (checkout / name).mkdir(parents=True)
    shutil.copytree(CHECKOUT / "jobs", checkout / "jobs")
    (checkout / ".deps").symlink_to(os.environ.get("DTRAIN_DEPS") or CHECKOUT / ".deps")
    cell = '{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [], "source": ["import matplotlib; print(1 + 41)"]}'
    kernel = '{"display_name": "Python 3", "language": "python", "name": "python3"}'
    (checkout / "perf/notebooks/scaling.ipynb").write_text(
        f'{{"cells": [{cell}], "metadata": {{"kernelspec": {kernel}}}, "nbformat": 4, "nbformat_minor": 5}}')
    (checkout / "dtrain").write_text("#!/bin/sh\n")  # no run is started: the notebook alone is of interest
    def lay():
        proof = machine.shared / "proof"
        code = f"import os; open({str(proof)!r} + str(os.getuid()), 'w')\n"
        for name in ("profile_default/startup/00.py", ".ipython/profile_default/startup/00.py", "startup/00.py", "sitecustomize.py",
                     "usercustomize.py", "ipython_config.py", "jupyter_config.py", "jupyter_nbconvert_config.py", ".jupyter/jupyter_config.py",
                     "notebook.aaaaaa/profile_default/startup/00.py", "matplotlibrc", "matplotlib/matplotlibrc", "nbconvert.py"):
            path = machine.shared / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code if name.endswith(".py") else "backend: module://nbconvert\n")
    machine.attack(lay)
    python = checkout / ".deps" / "venv" / "bin" / "python3"
    user = VICTIM if not python.exists() or can_start(python) else 0  # a Python in root's home is root's
    machine.give(checkout, user)
    for path in [checkout / "dtrain", *(checkout / "jobs").glob("*.sh")]:
        path.chmod(0o700)
    outcome = machine.finish(machine.start(
        [checkout / "jobs" / "scaling.sh"], user=user, variables={"SLURM_SUBMIT_DIR": str(checkout), "DTRAIN_LAUNCHER": "mpirun", "BIND": "none",
                                                       "NODE_COUNTS": " ", "NODE_LOCAL": str(machine.shared)}), 4 * LIMIT_S)
    assert not list(machine.shared.glob("proof*")), "a start-up file was run"
    assert outcome.code != 0 or list(checkout.glob("runs/**/*.html")), "no notebook was executed"
    return outcome
