"""The job scripts on two nodes: with srun and with mpirun to the end, bound to cores, and by Slurm's warning back to the queue. The
full test waits for the warning that Slurm itself sends before a job's time is up, which it looks at each half minute.

    jobs_test.py BINARY [--full]
"""

import os
import sys
import time

import h5py

from emulated import SMALL, Cluster, skip_where_impossible

LAUNCHERS = ("srun", "mpirun")


def completes(cluster, launcher):
    """Two ranks on each of two nodes, shards copied to each node, results copied back."""
    copies = cluster.folder / "copies"
    job = cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 2, DTRAIN_LAUNCHER=launcher, RESULTS=str(copies))
    facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
    said = cluster.said(job)
    assert facts["JobState"] == "COMPLETED" and facts["ExitCode"] == "0:0", said
    assert "mesh data=2,pipe=2,tensor=1" in said and f"2 nodes x 2 ranks by {launcher}" in said, said
    assert (copies / f"vgg11-{job}" / "results.h5").exists() and not (copies / f"vgg11-{job}" / "checkpoints").exists()
    assert cluster.ranks() == 0
    return cluster.results(f"vgg11-{job}", epochs=2)


def go_back_to_the_queue_when_warned(cluster, samples):
    """Slurm's signal comes to the script alone; the script hands it on, and the second attempt uses no sample again."""
    epochs = 15  # both jobs train at once, and the second one is not to be done when the first has been signalled
    jobs = [cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", epochs, DTRAIN_LAUNCHER=launcher)
            for launcher in LAUNCHERS]
    for job in jobs:
        cluster.wait_for_steps(job, f"vgg11-{job}", 15)
        cluster.run("head", "scancel", "--batch", "--signal=USR1", job)
    for job in jobs:
        cluster.wait(lambda: int(cluster.facts(job)["Restarts"]) == 1, 30, lambda: cluster.said(job))
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
        said = cluster.said(job)
        assert facts["JobState"] == "COMPLETED", said
        assert "the run's state is preempted" in said and said.count("attempt 1 of 10") == 2, "one that was stopped on request is not lost"
        assert cluster.results(f"vgg11-{job}", epochs=epochs) == samples


def are_warned_before_their_time_is_up(cluster):
    """Of a minute that each attempt has, Slurm warns half a minute before the end; the last attempt needs no more."""
    epochs = 40
    begun = time.monotonic()
    jobs = [cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", epochs, sbatch=["--time=1", "--signal=B:USR1@30"],
                           DTRAIN_LAUNCHER=launcher) for launcher in LAUNCHERS]
    for job in jobs:
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", limit_s=400)
        said = cluster.said(job)
        assert facts["JobState"] == "COMPLETED" and int(facts["Restarts"]) >= 1, (facts, said)
        assert said.count("the run's state is preempted") == said.count("asked to stop") == int(facts["Restarts"]), said
        cluster.results(f"vgg11-{job}", epochs=epochs)
        print(f"job {job}: {facts['Restarts']} warnings, completed after {time.monotonic() - begun:.0f} s", flush=True)


def start_a_rank_for_each_gpu(cluster):
    """Of nodes whose GPUs exist for Slurm only: dtrain is started with as many ranks, and says that there is no driver."""
    mlp = ["--model", "mlp", "--dataset", "synthetic"]
    fits = cluster.submit("nodes.sh", *mlp, sbatch=["--ntasks-per-node=2", "--gpus-per-node=2"])
    fewer_tasks = cluster.submit("nodes.sh", *mlp, sbatch=["--ntasks-per-node=1", "--gpus-per-node=2"])
    for job, words in ((fits, ["2 nodes x 2 ranks by srun", "--device cuda", "no CUDA driver"]),
                       (fewer_tasks, ["2 ranks per node, one for each of 2 GPUs, are more than the job's 1 tasks per node"])):
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
        said = cluster.said(job)
        assert facts["ExitCode"] == "2:0" and all(word in said for word in words), (facts["ExitCode"], said)


def run_bound_to_cores(cluster):
    """As on nodes whose cores are a job's own. Here two ranks of a node find a core each, the other node's the same ones."""
    if len(os.sched_getaffinity(0)) < 2:
        print("not checked: BIND=cores wants a core for each rank of a node")
        return
    for launcher in LAUNCHERS:
        job = cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 1, BIND="cores", DTRAIN_LAUNCHER=launcher)
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED", limit_s=90)
        assert facts["JobState"] == "COMPLETED", cluster.said(job)
        cluster.results(f"vgg11-{job}", epochs=1)
        with h5py.File(cluster.folder / f"runs/vgg11-{job}/results.h5") as file:
            masks = [row["cpus"].decode() for row in file["topology"][:]]
        print(f"{launcher}: cores {masks}", flush=True)
        # Slurm binds nobody under TaskPlugin=task/none, which these nodes have.
        assert launcher == "srun" or (masks[0] != masks[1] and masks[:2] == masks[2:]), masks


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        if "--full" in sys.argv:
            are_warned_before_their_time_is_up(cluster)
            return
        samples = completes(cluster, "srun")
        assert completes(cluster, "mpirun") == samples
        run_bound_to_cores(cluster)
        start_a_rank_for_each_gpu(cluster)
        go_back_to_the_queue_when_warned(cluster, samples)


main()
