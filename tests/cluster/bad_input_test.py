"""What is wrong with a job on two nodes is said in one sentence, with the right exit code, and no rank stays.

    bad_input_test.py BINARY
"""

import sys

from emulated import SMALL, Cluster, skip_where_impossible


def job_refused(cluster, code, words, launcher="srun", **environment):
    job = cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 1, DTRAIN_LAUNCHER=launcher, **environment)
    facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
    said = cluster.said(job)
    assert facts["ExitCode"] == f"{code}:0" and facts["Restarts"] == "0", (facts["ExitCode"], said)
    sentences = [line for line in said.splitlines() if line.startswith(("dtrain: ", "multinode_vgg11: "))]
    assert len(sentences) == 1 and all(word in sentences[0] for word in words), said
    assert cluster.ranks() == 0


def hosts_refused(cluster, code, words, hosts, **environment):
    (cluster.folder / "hosts.txt").write_text(hosts)
    done = cluster.run("head", "jobs/mpirun_hosts.sh", cluster.folder / "hosts.txt", "--epochs", 1, check=False, **environment)
    assert done.returncode == code and all(word in done.stderr for word in words), (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("mpirun_hosts.sh:") == 1 and cluster.ranks() == 0, done.stderr


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        for launcher in ("srun", "mpirun"):
            job_refused(cluster, 2, ["data=3,pipe=2", "6 ranks", "4"], launcher, MESH="data=3,pipe=2")
        nowhere = f"{cluster.folder}/nowhere"
        job_refused(cluster, 2, [nowhere], NODE_LOCAL=nowhere)
        job_refused(cluster, 3, [nowhere], DATA_ROOT=nowhere)
        job_refused(cluster, 2, [nowhere, "no such program"], DTRAIN=nowhere)
        job_refused(cluster, 2, ["DTRAIN_LAUNCHER=ssh"], launcher="ssh")
        hosts_refused(cluster, 2, ["the host 'node7' is unknown here"], "node1\nnode7  # no such host\n")
        hosts_refused(cluster, 2, ["names no host"], "# none\n")
        done = cluster.run("head", "jobs/mpirun_hosts.sh", nowhere, check=False)
        assert done.returncode == 2 and "no such host file" in done.stderr, done


main()
