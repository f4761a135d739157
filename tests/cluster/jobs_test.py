"""The job scripts on two nodes: with srun and with mpirun to the end, and by Slurm's warning back to the queue.

    jobs_test.py BINARY
"""

import sys

from emulated import SMALL, Cluster, skip_where_impossible


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
    jobs = [cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 5, DTRAIN_LAUNCHER=launcher)
            for launcher in ("srun", "mpirun")]
    for job in jobs:
        cluster.wait_for_steps(job, f"vgg11-{job}", 15)
        cluster.run("head", "scancel", "--batch", "--signal=USR1", job)
    for job in jobs:
        cluster.wait(lambda: int(cluster.facts(job)["Restarts"]) == 1, 30, lambda: cluster.said(job))
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
        said = cluster.said(job)
        assert facts["JobState"] == "COMPLETED", said
        assert "the run's state is preempted" in said and "attempt 2 of 10" in said, said
        assert cluster.results(f"vgg11-{job}", epochs=5) == samples


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        samples = completes(cluster, "srun")
        assert completes(cluster, "mpirun") == samples
        go_back_to_the_queue_when_warned(cluster, samples)


main()
