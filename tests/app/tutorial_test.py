"""The commands of docs/tutorial.md, as they stand there.

    tutorial_test.py DTRAIN laptop     all but the two nodes, in one shell
    tutorial_test.py DTRAIN nodes      the two nodes, emulated under a real Slurm; exit code 77 where that is not possible
"""
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import h5py

TOP = pathlib.Path(__file__).resolve().parents[2]
DTRAIN = pathlib.Path(sys.argv[1])
BLOCKS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections():
    """Commands by the number in the heading above them; what stands before the first one is under 0."""
    parts = re.split(r"^## (?:(\d+)\. )?.*\n", (TOP / "docs/tutorial.md").read_text(), flags=re.MULTILINE)
    found = {int(number or 0): "".join(BLOCKS.findall(text)) for number, text in zip([0, *parts[1::2]], parts[::2])
             if BLOCKS.search(text)}
    assert list(found) == [0, 1, 2, 3, 4, 5, 6], list(found)
    return found


def make_checkout(folder):
    """A checkout as the reader has it, whose data and runs are the test's own."""
    for name in "jobs", "tests", ".deps":
        (folder / name).symlink_to(TOP / name)
    (folder / "dtrain").symlink_to(DTRAIN)


def clean_environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_", "PMIX_", "PRTE_", "OUTPUT", "NAME"))}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run(commands, folder):
    done = subprocess.run(["bash", "-ec", commands], cwd=folder, env=clean_environment(), text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    assert done.returncode == 0, done.stdout
    return done.stdout


def losses(folder, name):
    assert (folder / "runs" / name / "state").read_text() == "completed\n", name
    with h5py.File(folder / "runs" / name / "results.h5") as file:
        return [float(row["train_loss"]) for row in file["epochs"]], dict(file.attrs)


def laptop(folder):
    steps = sections()
    said = run(steps[0] + steps[1], folder)
    assert "soil" in said and "2 labels: clay, sand" in said and "3 in train" in said, said
    said = run("\n".join([steps[0], steps[2], steps[3], steps[4]]), folder)
    assert "resumed" in said, said
    trained, facts = losses(folder, "flowers")
    assert len(trained) == 8 and facts["world_size"] == 2, (trained, facts)
    with open(folder / "said.csv") as file:
        rows = list(csv.DictReader(file))
    named = [next(value for value in row.values() if value in ("aster", "rose", "tulip")) for row in rows]
    assert named == ["aster", "rose", "tulip"], rows
    said = run(steps[0] + steps[5], folder)
    (cut, cut_facts), (whole, _) = losses(folder, "cut"), losses(folder, "whole")
    assert cut_facts["world_size"] == 4 and b"pipe=2" in bytes(cut_facts["mesh"]), cut_facts
    # fp32 sums of another order; five epochs of 11 steps let 1e-7 grow to 1e-5 at most.
    assert all(abs(a - b) <= 1e-4 * b for a, b in zip(cut, whole)), (cut, whole)
    assert "pipe=2" in said and "data=4" in said, said  # plan's list


def nodes(folder):
    sys.path.insert(0, str(TOP / "tests/cluster"))
    from emulated import Cluster, skip_where_impossible
    skip_where_impossible()
    steps = sections()
    run(steps[0] + steps[1], folder)
    with Cluster(DTRAIN) as cluster:
        for name in "OUTPUT", "DATA_ROOT", "DATASET", "DTRAIN":  # what other tests of the cluster want; a reader has none
            cluster.environment.pop(name, None)
        cluster.run("head", "bash", "-ec", f"cd {folder}\n" + steps[0] + steps[6], limit_s=150)
    said = (folder / "doctor.txt").read_text()
    assert "4 ranks on 2 nodes, started by srun" in said, said
    trained, facts = losses(folder, "two-nodes")
    assert len(trained) == 5 and facts["world_size"] == 4, (trained, facts)
    with h5py.File(folder / "runs/two-nodes/results.h5") as file:
        assert len(set(file["topology"]["node"])) == 2


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_checkout(folder)
        {"laptop": laptop, "nodes": nodes}[sys.argv[2]](folder)


main()
