"""What all_reduces send over the link between two nodes of two ranks: link_bytes_test.py DTRAIN ALL_REDUCE_BENCH."""

import json
import os
import sys

from emulated import Cluster, skip_where_impossible

BYTES = 16 << 20


def link_bytes(cluster):
    """Sent and received by node 1."""
    stats = json.loads(cluster.run("node1", "ip", "-json", "-statistics", "link", "show", "eth0").stdout)[0]["stats64"]
    return stats["tx"]["bytes"], stats["rx"]["bytes"]


def per_byte(cluster, bench, mapping, order, contender):
    """Bytes over the link per operation and byte of the buffer: sent, received."""
    root = {f"{who}_ALLOW_RUN_AS_ROOT{how}": "1" for who in ("OMPI", "PRTE") for how in ("", "_CONFIRM")}
    before = link_bytes(cluster)
    said = cluster.run("head", "mpirun", "-np", 4, "--host", "node1:2,node2:2", "--map-by", mapping, "--bind-to", "none", bench,
                       "--nodes", 0, "--rounds", 1, "--seconds", 0, "--sizes", BYTES, "--only", contender, "--rank-order", order,
                       limit_s=100, **root).stdout
    after = link_bytes(cluster)
    operations = int(next(line for line in said.splitlines() if " operations of " in line).split()[-1])
    return [(b - a) / operations / BYTES for a, b in zip(before, after)]


def main():
    skip_where_impossible()
    with Cluster(sys.argv[1]) as cluster:
        bench = os.path.abspath(sys.argv[2])
        # What there is to send: the sum of a node, once in each direction. 5 % for headers, acknowledgements and the start.
        for mapping in ("ppr:2:node", "node"):
            sent, received = per_byte(cluster, bench, mapping, "placed", "hierarchical")
            assert 0.99 < sent < 1.05 and 0.99 < received < 1.05, (mapping, sent, received)
        # A ring of four ranks passes 2 x 3/4 of the buffer from rank to rank: over the link once where neighbours share a
        # node, from both ranks of a node where they do not.
        for mapping, order, times in [("ppr:2:node", "launched", 1.5), ("node", "placed", 1.5), ("node", "launched", 3.0)]:
            for found in per_byte(cluster, bench, mapping, order, "ring"):
                assert times * 0.99 < found < times * 1.05, (mapping, order, found)


main()
