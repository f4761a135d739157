"""Jobs that end early on two nodes: cancelled, and with a node powered off. The full test takes the first node too.

    losses_test.py BINARY [--full]
"""

import sys
import time

from emulated import SMALL, Cluster, skip_where_impossible

LAUNCHERS = ("srun", "mpirun")


def a_cancelled_job_leaves_no_process(cluster):
    jobs = [cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 500, DTRAIN_LAUNCHER=launcher) for launcher in LAUNCHERS]
    for job in jobs:
        cluster.wait_for_steps(job, f"vgg11-{job}", 2)
    assert cluster.ranks() == 4 * len(jobs)
    cluster.run("head", "scancel", *jobs)
    cluster.wait(lambda: cluster.ranks() == 0, 20, lambda: f"{cluster.ranks()} ranks\n{cluster.said(jobs[0])}")
    cluster.wait(lambda: not cluster.run("head", "squeue", "--noheader").stdout.strip(), 30, lambda: cluster.said(jobs[0]))
    for job in jobs:
        assert cluster.facts(job)["JobState"] == "CANCELLED", cluster.said(job)


def a_lost_node_sends_jobs_back_to_the_queue(cluster, node):
    """No rank outlives the job, and on the node that is back each run ends with every sample used once an epoch."""
    jobs = [cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 4, DTRAIN_LAUNCHER=launcher, CHECKPOINT_EVERY="5steps")
            for launcher in LAUNCHERS]
    for job in jobs:
        cluster.wait_for_steps(job, f"vgg11-{job}", 7)
    off = time.monotonic()
    cluster.power(node, "off")
    for job in jobs:
        cluster.wait(lambda: cluster.facts(job)["JobState"] != "RUNNING", 60, lambda: cluster.said(job))
    noticed = time.monotonic()
    cluster.wait(lambda: cluster.ranks() == 0, 10, lambda: f"{cluster.ranks()} ranks 10 s later\n{cluster.said(jobs[0])}")
    print(f"{node} off: Slurm took the jobs back after {noticed - off:.1f} s, no rank {time.monotonic() - noticed:.1f} s later")
    cluster.power(node, "on")
    for job in jobs:
        cluster.wait(lambda: int(cluster.facts(job)["Restarts"]) >= 1, 60, lambda: f"{cluster.facts(job)}\n{cluster.said(job)}")
        facts = cluster.wait_for_job(job, "COMPLETED", "FAILED", limit_s=90)
        assert facts["JobState"] == "COMPLETED", cluster.said(job)
        try:
            cluster.results(f"vgg11-{job}", epochs=4)
        except AssertionError:
            print(cluster.said(job))
            raise


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        a_cancelled_job_leaves_no_process(cluster)
        for node in ("node2", "node1") if "--full" in sys.argv else ("node2",):
            a_lost_node_sends_jobs_back_to_the_queue(cluster, node)


main()
