"""The other job scripts on two nodes, each to its end.

    scripts_test.py BINARY
"""

import subprocess
import sys

import h5py

from emulated import SCRIPT, SMALL, TOP, Cluster, skip_where_impossible

MLP = ["--model", "mlp", "--dataset", "synthetic", "--limit-steps", 20]


def completed(cluster, job, limit_s=90):
    facts = cluster.wait_for_job(job, "COMPLETED", "FAILED", limit_s=limit_s)
    assert facts["JobState"] == "COMPLETED", cluster.said(job)


def single_node(cluster):
    job = cluster.submit("singlenode.sh", *MLP)
    completed(cluster, job)
    with h5py.File(cluster.folder / f"runs/singlenode-{job}/results.h5") as file:
        assert file.attrs["world_size"] == 2 and len(set(file["topology"]["node"])) == 1


def a_sweep_of_node_counts(cluster):
    job = cluster.submit("scaling.sh", *SMALL, "--epochs", 1, sbatch=["--nodes=2"])
    completed(cluster, job)
    folder = cluster.folder / f"runs/scaling-{job}"
    for nodes in (1, 2):
        with h5py.File(folder / f"nodes-{nodes}/results.h5") as file:
            assert file.attrs["world_size"] == 2 * nodes
    assert (folder / "scaling.html").stat().st_size > 10000 and (folder / "scaling.png").exists()


def a_study_as_an_array(cluster):
    job = cluster.submit("array_study.sh", "--quick", sbatch=["--array=0,6", f"--output={cluster.folder}/study-%a"])
    cluster.wait(lambda: not cluster.run("head", "squeue", "--noheader").stdout.strip(), 90, lambda: f"job {job} goes on")
    said = [(cluster.folder / f"study-{number}").read_text() for number in (0, 6)]
    assert said[0].count(" took ") == 4 and "the study has 6 models" in said[1], said
    assert len(list((cluster.folder / "runs/study-quick").glob("mlp-*/results.h5"))) == 4


def hosts_without_slurm(cluster):
    """To the end; a signal to the script ends it with a checkpoint, and the same command goes on; a lost rank too."""
    hosts = cluster.folder / "hosts.txt"
    hosts.write_text("node1 slots=2\n\nnode2:2  # the other one\n")
    options = [*SMALL, "--model", "vgg11", "--dataset", cluster.folder / "staged/tiny", "--mesh", "data=2,pipe=2",
               "--epochs", 5, "--checkpoint-every", "5steps"]
    command = [SCRIPT, "run", cluster.folder, "head", "jobs/mpirun_hosts.sh", hosts, *options]
    environment = {**cluster.environment, "NAME": "hosts", "PAUSE_S": "1"}
    started = dict(cwd=TOP, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with subprocess.Popen([str(word) for word in command], **started) as process:
        cluster.wait(lambda: cluster.steps("hosts") >= 15, 60, lambda: f"no step 15: {process.poll()}")
        cluster.run("head", "pkill", "-USR1", "--oldest", "--full", "^bash .*/jobs/mpirun_hosts.sh")
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and "the same command goes on" in said, (process.returncode, said)
    with h5py.File(cluster.folder / "runs/hosts/results.h5") as file:
        stopped = len(file["ranks/00000/steps"])
    with subprocess.Popen([str(word) for word in command], **started) as process:
        cluster.wait(lambda: cluster.steps("hosts") >= stopped + 5, 60, lambda: f"no further step: {process.poll()}")
        cluster.run("node2", "pkill", "-KILL", "--newest", "--exact", "dtrain")
        said, _ = process.communicate(timeout=90)
    assert process.returncode == 0 and "resumed" in said and "attempt 2 of 10" in said, (process.returncode, said)
    cluster.results("hosts", epochs=5)
    assert cluster.ranks() == 0


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        hosts_without_slurm(cluster)
        single_node(cluster)
        a_sweep_of_node_counts(cluster)
        a_study_as_an_array(cluster)


main()
