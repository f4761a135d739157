"""What is wrong with a job on two nodes is said in one sentence, with the right exit code, and no rank stays.

    bad_input_test.py BINARY
"""

import shutil
import sys

import h5py
import numpy as np

from dtrain_run import step_losses
from emulated import SMALL, Cluster, skip_where_impossible

LAUNCHERS = ("srun", "mpirun")


def refused(cluster, job, code, words):
    facts = cluster.wait_for_job(job, "COMPLETED", "FAILED")
    said = cluster.said(job)
    assert facts["ExitCode"] == f"{code}:0" and facts["Restarts"] == "0", (facts["ExitCode"], said)
    sentences = [line for line in said.splitlines() if line.startswith(("dtrain: ", "multinode_vgg11: "))]
    assert len(sentences) == 1 and all(word in sentences[0] for word in words), said
    assert cluster.ranks() == 0


def job_refused(cluster, code, words, launcher="srun", **environment):
    job = cluster.submit("multinode_vgg11.sh", *SMALL, "--epochs", 1, DTRAIN_LAUNCHER=launcher, **environment)
    refused(cluster, job, code, words)


def on_hosts(cluster, hosts, *options, **environment):
    (cluster.folder / "hosts.txt").write_text(hosts)
    return cluster.run("head", "jobs/mpirun_hosts.sh", cluster.folder / "hosts.txt", *options, check=False, **environment)


def hosts_refused(cluster, code, words, hosts, **environment):
    done = on_hosts(cluster, hosts, "--epochs", 1, **environment)
    assert done.returncode == code and all(word in done.stderr for word in words), (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("mpirun_hosts.sh:") == 1 and cluster.ranks() == 0, done.stderr


def what_one_node_lacks(cluster):
    """Where one node has no dataset, or no folder to copy it to, it is named, and the ranks of the other do not wait."""
    own = cluster.folder / "local"  # each node's
    cluster.run("node1", "cp", "-r", cluster.folder / "staged", own / "data")
    for launcher in LAUNCHERS:
        job_refused(cluster, 3, [f"{own}/data", "on node2 (rank 2)", "stage it"], launcher, DATA_ROOT=str(own / "data"))
    cluster.run("node1", "mkdir", own / "only-there")
    job_refused(cluster, 2, [f"NODE_LOCAL={own}/only-there", "on node2"], NODE_LOCAL=str(own / "only-there"))
    done = trained(cluster, "missing", own / "only-there")
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    sentences = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
    assert len(sentences) == 1 and "on node2 (rank 2): there is no such folder" in sentences[0], done.stderr
    assert cluster.run("node2", "test", "-e", own / "only-there", check=False).returncode == 1 and cluster.ranks() == 0


def trained(cluster, name, local):
    return on_hosts(cluster, "node1\nnode2\n", "--model", "vgg11", *SMALL, "--dataset", cluster.folder / "staged/tiny", "--epochs", 2,
                    "--mesh", "data=2,pipe=2", "--staging", f"local={local}", RANKS_PER_NODE="2", NAME=name)


def facts_of(cluster, name):
    with h5py.File(cluster.folder / f"runs/{name}/results.h5") as file:
        events = [(rank, event["detail"].decode()) for rank in file["ranks"] for event in file[f"ranks/{rank}/events"]
                  if event["kind"] == b"read_in_place"]
        return step_losses(file), events


def a_full_disk_is_not_used(cluster):
    """The node without room reads in place and says so, and the run is the one that has room everywhere."""
    own = cluster.folder / "local"
    for node in ("node1", "node2"):
        cluster.run(node, "mkdir", own / "small")
    cluster.run("node2", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", own / "small")
    results = []
    for name, local in (("roomy", own), ("full", own / "small")):
        done = trained(cluster, name, local)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        losses, events = facts_of(cluster, name)
        results.append((cluster.results(name, epochs=2), losses))
        warnings = [line for line in done.stderr.splitlines() if "warning" in line]
        assert len(warnings) == len(events) == (name == "full"), (done.stderr, events)
    assert "rank 2: warning: no copy on this node (node2)" in warnings[0] and "MiB are free" in warnings[0], warnings
    assert events[0][0] == "00002" and "MiB are free" in events[0][1], events
    assert not cluster.run("node2", "ls", "-A", own / "small").stdout.strip()
    assert cluster.run("node1", "find", own / "small", "-path", "*/dtrain-*/tiny-*", "-type", "f").stdout, "no copy on node1"
    assert results[0][0] == results[1][0]
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4)  # each step had the same samples


def another_build_on_one_node(cluster):
    """A program whose build-id differs in one byte, under the same path on the other node."""
    program = cluster.folder / "local/dtrain"
    built = bytearray(open(cluster.environment["DTRAIN"], "rb").read())
    place = built.index(b"GNU\0", built.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"))
    built[place + 4] ^= 1
    other = cluster.folder / "other"
    other.write_bytes(built)
    shutil.copymode(cluster.environment["DTRAIN"], other)
    cluster.run("node1", "cp", cluster.environment["DTRAIN"], program)
    cluster.run("node2", "cp", other, program)
    for launcher in LAUNCHERS:
        job_refused(cluster, 2, ["rank 3 is another build of dtrain than rank 0", "start the same program"], launcher, DTRAIN=str(program))


def slurm_and_mpi_disagree(cluster):
    """Slurm starts four tasks, of which MPI knows nothing: each takes itself for the only rank."""
    job = cluster.submit_srun("--mpi=none", cluster.environment["DTRAIN"], "--limit-steps", 3, "--output", cluster.folder / "runs")
    refused(cluster, job, 2, ["Slurm started 4 tasks but MPI sees 4 jobs of one rank", "srun --mpi=pmix"])
    # The number of tasks is wrong, as a shell inside a step of one task hands it on.
    job = cluster.submit_srun("--mpi=pmix", "env", "SLURM_STEP_NUM_TASKS=1", cluster.environment["DTRAIN"], "--mesh", "data=3", "--output",
                              cluster.folder / "runs")
    refused(cluster, job, 2, ["--mesh data=3", "the job has 4"])


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        for launcher in LAUNCHERS:
            job_refused(cluster, 2, ["data=3,pipe=2", "6 ranks", "4"], launcher, MESH="data=3,pipe=2")
        nowhere = f"{cluster.folder}/nowhere"
        job_refused(cluster, 2, [nowhere], NODE_LOCAL=nowhere)
        job_refused(cluster, 3, [nowhere], DATA_ROOT=nowhere)
        job_refused(cluster, 2, [nowhere, "no such program"], DTRAIN=nowhere)
        job_refused(cluster, 2, ["DTRAIN_LAUNCHER=ssh"], launcher="ssh")
        hosts_refused(cluster, 2, ["the host 'node7' is unknown here"], "node1\nnode7  # no such host\n")
        hosts_refused(cluster, 2, ["names no host"], "# none\n")
        hosts_refused(cluster, 2, ["node2 and node1", "slots", "RANKS_PER_NODE"], "node1 slots=2\nnode2 slots=3\n")
        hosts_refused(cluster, 2, ["slots of node1", "two"], "node1 slots=two\nnode2 slots=two\n")
        done = cluster.run("head", "jobs/mpirun_hosts.sh", nowhere, check=False)
        assert done.returncode == 2 and "no such host file" in done.stderr, done
        what_one_node_lacks(cluster)
        a_full_disk_is_not_used(cluster)
        another_build_on_one_node(cluster)
        slurm_and_mpi_disagree(cluster)


main()
