"""How mpirun is to bind is heard on each node of a job of two ranks: binding_test.py DTRAIN."""

import os
import re
import sys

from emulated import Cluster, skip_where_impossible

# Where ranks may share cores, as set-up has it, mpirun binds them only if it is told to.
ONE_EACH = "PRTE_MCA_rmaps_default_mapping_policy=:nooversubscribe"
MPIRUN = ["mpirun", "-np", 2, "--map-by", "ppr:1:node"]
ROOT = {f"{who}_ALLOW_RUN_AS_ROOT{how}": "1" for who in ("OMPI", "PRTE") for how in ("", "_CONFIRM")}


def cores_of_ranks(said):
    """For each of two ranks, on a node each, 1 where it has one core, and else more."""
    rows = [line.split() for line in said.splitlines() if line.split()[:1] in (["0"], ["1"]) and "node" in line]
    assert len(rows) == 2, said
    return [len(re.findall(r"\d+", row[-1])) for row in rows]  # `0`, `0-1` or `0,4`: whether it is more than one


def from_a_job(cluster, *options):
    """mpirun is beside rank 0, and Slurm starts its daemon on the other node."""
    script = cluster.folder / "binding.sh"
    script.write_text(f'#!/bin/bash\n. jobs/env.sh\nexport {ONE_EACH}\nexec "$@"\n')
    said = cluster.folder / "said"
    cluster.run("head", "sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", "--exclusive", f"--output={said}", script, *MPIRUN, *options,
                sys.argv[1], "topology", **ROOT)
    return cores_of_ranks(said.read_text())


def from_elsewhere(cluster, *options):
    """mpirun is beside no rank."""
    return cluster.run("head", "env", ONE_EACH, *MPIRUN, "--host", "node1:1,node2:1", *options, sys.argv[1], "topology", **ROOT)


def main():
    skip_where_impossible()
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: the machine has one core")
        sys.exit(77)
    with Cluster(sys.argv[1], "--nodes", 2) as cluster:
        wide = from_a_job(cluster)
        assert min(wide) > 1, wide
        found = from_a_job(cluster, "--bind-to", "core")
        assert found == [1, 1], found
        unseen = from_elsewhere(cluster, "--bind-to", "core")
        assert cores_of_ranks(unseen.stdout) == [1, 1] and unseen.stderr.count("warning: each rank has one core") == 1, unseen


main()
