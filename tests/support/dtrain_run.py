"""Runs the dtrain binary on several ranks of this machine, with a limit on its time, and reads what it leaves."""

import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import h5py
import numpy as np

MPIRUN = Path(__file__).parent / "mpirun.sh"


def children(pid):
    """Of a process: the numbers of those that it has started, as of mpirun its ranks."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def process_state(pid):
    """The letter of proc(5), such as T for a stopped process; empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def session(leader):
    """The living processes of a session. mpirun gives each rank a process group of its own, but no session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_session_folder(launcher):
    """What Open MPI's mpirun leaves where it was killed."""
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{launcher}", ignore_errors=True)


@contextmanager
def started(command, **how):
    """A process in a session of its own. All of the session is killed when the block is left: a failed assertion waits for no run."""
    with subprocess.Popen(list(map(str, command)), start_new_session=True, **how) as process:
        try:
            yield process
        finally:
            kill_all(session(process.pid))
            if process.wait() == -signal.SIGKILL:
                remove_session_folder(process.pid)


def run(binary, ranks, *options, cwd, limit_s=300, check=True):
    """The finished process of `mpirun -np RANKS BINARY OPTIONS`, its output as text."""
    command = [str(MPIRUN), str(ranks), str(binary), *map(str, options)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, timeout=limit_s,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def refused(binary, ranks, code, words, *options, cwd):
    """What the program says when it ends with `code`: one sentence of its own, with all `words`."""
    done = run(binary, ranks, *options, cwd=cwd, check=False)
    assert done.returncode == code, (done.returncode, code, done.stderr)
    for word in words:
        assert word in done.stderr, (word, done.stderr)
    assert done.stderr.count("dtrain:") == 1, done.stderr


def ranks_of(mesh):
    """How many ranks a mesh such as data=2,pipe=2 has."""
    return int(np.prod([int(part.split("=")[1]) for part in mesh.split(",")]))


def step_losses(results):
    """The mean loss of each step over all ranks, of an open results.h5."""
    rows = np.concatenate([rank["steps"][:] for rank in results["ranks"].values()])
    numbers, place = np.unique(rows["step"], return_inverse=True)
    total, weight = np.zeros(len(numbers)), np.zeros(len(numbers))
    np.add.at(total, place, np.where(rows["weight"] > 0, rows["loss"], 0.0) * rows["weight"])
    np.add.at(weight, place, rows["weight"])
    return total / weight


def sample_hash(results):
    """Of all samples that all ranks used in the first epoch, in any order."""
    return sum(int(rank["samples"][0]["hash"]) % 2**64 for rank in results["ranks"].values()) % 2**64


def checkpoint_tensors(folder, group="model"):
    """The tensors of a checkpoint by name, put together from all its parts: the model's; with None all, GROUP/NAME."""
    tensors = {}
    for entry in json.loads((folder / "manifest.json").read_text())["tensors"]:
        of, name = entry["name"].split("/", 1)
        if group not in (None, of):
            continue
        whole, filled = np.empty(entry["shape"], entry["dtype"]), np.zeros(entry["shape"], bool)
        for part in entry["slices"]:
            with h5py.File(folder / part["file"]) as file:
                place = tuple(slice(begin, begin + extent) for begin, extent in zip(part["offset"], part["shape"]))
                assert not filled[place].any(), f"{folder}: two slices of {entry['name']} hold the same elements"
                whole[place], filled[place] = file[part.get("dataset", entry["name"])][()], True
        assert filled.all(), f"{folder}: the slices of {entry['name']} leave {filled.size - filled.sum()} of {filled.size} elements out"
        tensors[name if group else entry["name"]] = whole
    return tensors


def without_facts(folder, checkpoint, name, *keys):
    """A copy of a checkpoint as it was written before it kept `keys`; its name."""
    shutil.copytree(folder / checkpoint, folder / name)
    manifest = json.loads((folder / name / "manifest.json").read_text())
    text = json.dumps({key: value for key, value in manifest.items() if key not in keys})
    (folder / name / "manifest.json").write_text(text)
    (folder / name / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "  manifest.json\n")
    return name


def write_rows(rows, folder, name):
    """Leaves rows, dictionaries with the same keys, as FOLDER/NAME-DATE.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}-{date.today()}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
