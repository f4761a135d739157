"""A node's network goes down under a run on two nodes: for a while, and nothing is lost; for good, and the watchdog says so.

    link_down_test.py BINARY
"""

import subprocess
import sys
import time

from emulated import SCRIPT, SMALL, TOP, Cluster, skip_where_impossible

WATCHDOG_S = 12
OPTIONS = ["--model", "vgg11", *SMALL, "--threads", 1, "--watchdog", WATCHDOG_S, "--checkpoint-every", "10steps", "--quiet"]


def started(cluster, name, fault, epochs):
    hosts = cluster.folder / "hosts.txt"
    hosts.write_text("node1\nnode2\n")
    command = [SCRIPT, "run", cluster.folder, "head", "jobs/mpirun_hosts.sh", hosts, *OPTIONS, "--dataset", cluster.folder / "staged/tiny",
               "--epochs", epochs, "--inject", fault]
    environment = {**cluster.environment, "NAME": name, "RANKS_PER_NODE": "2", "ATTEMPTS": "1"}
    # To a file: the daemon of the node that cannot be reached lives on, and holds what the launcher's output goes to.
    with open(cluster.folder / f"said-{name}", "w", encoding="utf-8") as said:
        return subprocess.Popen([str(word) for word in command], cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=said,
                                stderr=subprocess.STDOUT)


def said_by(cluster, name):
    return (cluster.folder / f"said-{name}").read_text()


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        cluster.stage_tiny()
        begun = time.monotonic()
        process = started(cluster, "short", "link_down:rank=2,step=8,seconds=5", 2)
        assert process.wait(timeout=90) == 0, said_by(cluster, "short")
        cluster.results("short", epochs=2)
        print(f"down for 5 s: completed after {time.monotonic() - begun:.1f} s", flush=True)

        process = started(cluster, "long", "link_down:rank=2,step=8", 40)
        cluster.wait(lambda: cluster.steps("long") >= 6, 60, lambda: "no step 6")
        begun = time.monotonic()
        cluster.wait(lambda: cluster.ranks() == 0, WATCHDOG_S + 20, lambda: f"{cluster.ranks()} ranks are left")
        ranks_s = time.monotonic() - begun
        code = process.wait(timeout=60)  # the script ends the launcher, which waits for the node
        said = said_by(cluster, "long")
        assert code == 5, (code, said)
        assert "node 1 does not answer (ranks 2, 3): it or the link to it is down" in said, said
        assert (cluster.folder / "runs/long/state").read_text() == "failed\n"
        print(f"down for good: no rank left after {ranks_s:.1f} s, exit 5 after {time.monotonic() - begun:.1f} s", flush=True)


main()
