"""A rank of the other node is killed, and the ranks that are left of both nodes go on in the same processes: with the bits of an
undisturbed run, each sample used once an epoch.

    recovery_test.py BINARY [--full]
"""

import sys

import h5py

from emulated import Cluster, skip_where_impossible
from recovery import COMMON, Case, check_records, facts, has_ulfm

SAMPLE = [
    Case("data=2,pipe=2", "kill:rank=3,phase=optimizer,step=8", left="data=3"),
    Case("data=3", "kill:rank=0,phase=all_reduce,step=8", spares=1, left="data=3"),  # the spare is on the other node
]
OTHERS = [
    Case("data=4", "kill:rank=2,phase=backward,step=8", left="data=3"),
    Case("data=4", "kill:rank=2,phase=forward,step=8;kill:rank=3,phase=forward,step=12", resumed=(7, 11), left="data=2"),  # a node is empty
    Case("data=1,pipe=4", "kill:rank=2,phase=backward,step=8", ("--replicate", 1), left="data=3"),  # its copy is on the other node
]
RANKS = 4


def started(cluster, name, mesh, *options):
    (cluster.folder / "hosts.txt").write_text("node1\nnode2\n")
    return cluster.run("head", "jobs/mpirun_hosts.sh", cluster.folder / "hosts.txt", *COMMON, "--mesh", mesh, *options, check=False,
                       limit_s=90, NAME=name, RANKS_PER_NODE="2", ATTEMPTS="1", MPIRUN_OPTIONS="--with-ft ulfm")


def main():
    skip_where_impossible()
    if not has_ulfm():
        print("skipped: this MPI cannot go on without a rank")
        sys.exit(77)
    with Cluster(sys.argv[1]) as cluster:
        done = started(cluster, "undisturbed", "data=4")
        assert done.returncode == 0, (done.stdout, done.stderr)
        expected = facts(cluster.folder / "runs/undisturbed")
        for number, case in enumerate(SAMPLE + OTHERS if "--full" in sys.argv else SAMPLE):
            name = f"killed-{number}"
            done = started(cluster, name, case.mesh, "--inject", case.fault, "--spares", case.spares, *case.options)
            folder = cluster.folder / "runs" / name
            assert done.returncode == 0, (case, done.returncode, done.stdout, done.stderr)
            assert (folder / "state").read_text() == "completed\n", case
            found, hashes = facts(folder)
            others = [tensor for tensor in expected[0] if expected[0][tensor].tobytes() != found[tensor].tobytes()]
            assert not others and hashes == expected[1], (case, others[:5], hashes)
            with h5py.File(folder / "results.h5") as file:
                seconds = check_records(file, case, RANKS)
                assert len({row["node"] for row in file["topology"][:]}) == 2, case
            assert cluster.ranks() == 0, case
            print(f"{case.mesh} {case.fault}: recovered in {', '.join(f'{s:.2f}' for s in seconds)} s", flush=True)


main()
