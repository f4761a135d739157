"""What `dtrain doctor` finds between nodes: each fault planted in an emulated cluster, found, and its remedy said.

    doctor_test.py BINARY
"""

import shutil
import sys
import time

import faults
from emulated import Cluster, skip_where_impossible

RATE = "400mbit"
SLOW = "40mbit"


class Doctor:
    """`dtrain doctor` on the nodes of a cluster."""

    def __init__(self, cluster, binary):
        self.cluster, self.binary = cluster, binary
        self.library = faults.fault_library(cluster.folder)

    def look(self, nodes=3, ranks_per_node=1, program=None, output=None):
        """Under mpirun; the finished process."""
        hosts = ",".join(f"node{i + 1}:{ranks_per_node}" for i in range(nodes))
        words = ["mpirun", "--host", hosts, "--map-by", f"ppr:{ranks_per_node}:node", "--bind-to", "none", "-np", nodes * ranks_per_node,
                 program or self.binary, "doctor", "--output", output or self.cluster.folder / "runs"]
        begun = time.monotonic()
        done = self.cluster.run("head", "bash", "-c", '. jobs/env.sh && exec "$@"', "look", *words, check=False, limit_s=120)
        print(f"{time.monotonic() - begun:5.1f} s  {done.stdout.strip().splitlines()[-1:]}", flush=True)
        return done

    def on_one_node(self, node, words):
        """A program that is dtrain, and on one node dtrain begun with these words."""
        script = self.cluster.folder / "dtrain-on-one"
        script.write_text(f'#!/bin/sh\n[ "$(hostname)" = {node} ] && exec {words} "$@"\nexec {self.binary} "$@"\n')
        script.chmod(0o755)
        return script


def found(done, level, words, remedy):
    """Checks that there is a line with all words, its remedy beneath, and the exit code that belongs to it."""
    said = done.stdout + done.stderr
    assert done.returncode == (1 if "PROBLEM" in done.stdout else 0), (done.returncode, said)
    lines = done.stdout.splitlines()
    for line, below in zip(lines, [*lines[1:], ""]):
        if line.startswith(level) and all(word in line for word in words):
            assert remedy in below, (remedy, said)
            return
    raise AssertionError(f"no {level} with {words}:\n{said}")


def a_sound_cluster(doctor):
    done = doctor.look(ranks_per_node=2)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (["launch", "6 ranks on 3 nodes"], ["build", "on all ranks"], ["clocks", "apart"], ["links", "MB/s in the median"],
                  ["output", "the same on 3 nodes"]):
        found(done, "ok", words, "")
    assert not list((doctor.cluster.folder).glob(".dtrain-doctor*"))


def a_slow_link(doctor):
    limit = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "burst", "256kb", "latency", "50ms", "rate"]
    doctor.cluster.run("node3", *limit, SLOW)
    found(doctor.look(), "PROBLEM", ["links", "node3 -> node1", "node3 -> node2", "the median is"], "ethtool) of node3")
    doctor.cluster.run("node3", *limit, RATE)


def a_clock_that_is_off(doctor):
    shifted = f"env LD_PRELOAD={doctor.library} DTRAIN_CLOCK_SHIFT_S=7 {doctor.binary}"
    done = doctor.look(program=doctor.on_one_node("node2", shifted))
    found(done, "PROBLEM", ["clocks", "the clock of node2 is 7.00 s ahead of that of"], "chronyd or ntpd")
    done = doctor.look(program=doctor.on_one_node("node1", shifted))
    found(done, "PROBLEM", ["clocks", "the clock of node1 is 7.00 s ahead of that of"], "chronyd or ntpd")


def another_build_on_a_node(doctor):
    other = faults.other_build(doctor.binary, doctor.cluster.folder / "dtrain-other")
    done = doctor.look(program=doctor.on_one_node("node3", other))
    found(done, "PROBLEM", ["build", "rank 2 (node3) is another build of dtrain than rank 0 (node1)"], "from one shared folder")


def a_folder_that_nodes_do_not_share(doctor):
    local = doctor.cluster.folder / "local"
    done = doctor.look(output=local / "runs")
    found(done, "PROBLEM", ["output", "node2, node3: a file that node1 writes in", "is not seen"], "that all nodes share")


def a_node_without_room(doctor):
    """Little shared memory, and an output folder that only this node cannot use."""
    doctor.cluster.run("node2", "mount", "-o", "remount,size=8m", "/dev/shm")
    done = doctor.look(ranks_per_node=2)
    found(done, "PROBLEM", ["shared memory", "node2: ", "the ranks of a node need"], "--shm-size")
    doctor.cluster.run("node2", "mount", "-o", "remount,size=2g", "/dev/shm")
    without_sync = f"env LD_PRELOAD={doctor.library} DTRAIN_FAULTS=no_sync, {doctor.binary}"
    done = doctor.look(program=doctor.on_one_node("node2", without_sync))
    found(done, "PROBLEM", ["output", "node2: ", "fsync fails"], "another folder")


def what_slurm_says(doctor):
    """Singletons by srun without PMIx, a job step as it should be, and all of mpirun's ranks on one of the job's nodes."""
    run = doctor.cluster.run
    words = [doctor.binary, "doctor", "--output", doctor.cluster.folder / "runs"]
    step = ["srun", "--nodes=2", "--ntasks-per-node=2"]
    done = run("head", *step, "--mpi=none", *words, check=False)
    assert done.stdout.count("PROBLEM") == 1 and done.returncode == 1, done.stdout + done.stderr
    assert "Slurm started 4 tasks but MPI sees 4 jobs of one rank" in done.stdout, done.stdout
    done = run("head", *step, "--mpi=pmix", *words, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found(done, "ok", ["launch", "4 ranks on 2 nodes, started by srun"], "")
    # What a shell outside a job has set for more ranks than cores goes along with sbatch.
    script = doctor.cluster.folder / "crowded.sh"
    script.write_text('#!/bin/bash\n(unset SLURM_JOB_ID; . jobs/env.sh; exec env SLURM_JOB_ID="$SLURM_JOBID" mpirun -np 4 "$@") 2>&1\n')
    done = run("head", "sbatch", "--wait", "--parsable", "--nodes=2", "--ntasks-per-node=2", f"--output={doctor.cluster.folder}/crowded", script,
               *words, check=False)
    done.stdout = (doctor.cluster.folder / "crowded").read_text()
    found(done, "PROBLEM", ["launch", "all 4 ranks are on 1 of the job's 2 nodes"], "ppr:N:node")


def main():
    skip_where_impossible()
    if not shutil.which("gcc"):
        print("skipped: gcc is not installed")
        sys.exit(77)
    with Cluster(sys.argv[1], "--nodes", 3, "--rate", RATE) as cluster:
        doctor = Doctor(cluster, sys.argv[1])
        for part in (a_sound_cluster, a_slow_link, a_clock_that_is_off, another_build_on_a_node, a_folder_that_nodes_do_not_share,
                     a_node_without_room, what_slurm_says):
            print(part.__name__.replace("_", " "), flush=True)
            part(doctor)


main()
