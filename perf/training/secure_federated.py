"""What secure sums cost in a federated run: CPU seconds of the server's rank and of a client in a round of 100 clients with the mlp
(222,360 values), on four ranks, beside the same whole numbers without masks and beside plain sums. A long run less a short one:
the start is not in the figures. The validation after each round, which all ranks make together, is. A waiting rank polls, so that figures of busy
machines are too large.

    . jobs/env.sh && python3 perf/training/secure_federated.py
"""

import argparse
import tempfile
from pathlib import Path

import runs

TOP = Path(__file__).resolve().parents[2]
MPIRUN = TOP / "tests/support/mpirun.sh"
RANKS = 4
CLIENTS = 100
SHORT, LONG = 2, 7  # rounds
OPTIONS = ["--model", "mlp", "--strategy", "fedavg", "--clients", CLIENTS, "--partition", "iid", "--local-batch", 10, "--optimizer", "sgd", "--momentum", 0,
           "--schedule", "constant", "--threads", 1, "--quiet", "--overwrite", "--name", "cost", "--checkpoint-every", "1000epochs", "--on-failure", "abort"]
METHODS = {
    "plain": [],
    "unmasked": ["--secure-aggregation", "unmasked", "--secure-ring", 32],
    "masked": ["--secure-aggregation", "on", "--secure-ring", 32, "--secure-threshold", 70],
    "masked, 30 lost": ["--secure-aggregation", "on", "--secure-ring", 32, "--secure-threshold", 60, "--drop-rate", 0.3],
}
# Runs a rank, and writes the CPU seconds that it took.
WRAPPER = """#!/usr/bin/env python3
import os, resource, subprocess, sys
code = subprocess.call([os.environ["DTRAIN_BINARY"], *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(os.path.join(os.environ["CPU_FOLDER"], os.environ["OMPI_COMM_WORLD_RANK"]), "w") as file:
    file.write(str(used.ru_utime + used.ru_stime))
sys.exit(code)
"""


def cpu_of_ranks(folder, *options):
    """[ranks] CPU seconds of each rank of a run."""
    wrapper = folder / "wrapped.py"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    runs.run([str(MPIRUN), str(RANKS), str(wrapper), *map(str, OPTIONS), *map(str, options)], cwd=folder, limit_s=3600,
             CPU_FOLDER=str(folder), DTRAIN_BINARY=runs.program())
    return [float((folder / str(rank)).read_text()) for rank in range(RANKS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "perf/results/secure_aggregation")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for method, options in METHODS.items():
            short = cpu_of_ranks(folder, "--rounds", SHORT, *options)
            long = cpu_of_ranks(folder, "--rounds", LONG, *options)
            each = [(one - other) / (LONG - SHORT) for one, other in zip(long, short)]
            # With plain sums all ranks simulate clients.
            server, clients = (0.0, each) if method == "plain" else (each[0], each[1:])
            rows.append({"method": method, "clients": CLIENTS, "ranks": RANKS, "server_cpu_s": round(server, 3), "client_cpu_ms": round(1000 * sum(clients) / CLIENTS, 1),
                         "all_cpu_s": round(sum(each), 2)})
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    runs.write_rows(f"{runs.free_stem(arguments.out, 'federated')}.csv", rows)


if __name__ == "__main__":
    main()
