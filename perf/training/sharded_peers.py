"""Sharded and compressed training beside PyTorch's: time of a step, CPU time of the whole run, and most memory of a rank, on two ranks of
one thread each. dtrain's CPU time has the validation and the test at the end in it, which the peer does not make. dtrain's zero3 stands
beside FSDP2, its PowerSGD and fp16 beside DDP with these hooks; each pair runs one after the other.

Goes on where it stopped: a pair that peers.csv has is not run again.

dtrain's ranks are on emulated nodes of their own, so that they share no memory, as PyTorch's do not.
"""

import argparse
import csv
import pathlib
import re
import resource
import statistics
import sys
import tempfile

import h5py
import random_text
import runs

WAYS = {"ddp": ("ddp", []), "zero3": ("fsdp2", ["--strategy", "zero3"]), "powersgd": ("ddp-powersgd", ["--compression", "powersgd=2"]),
        "fp16": ("ddp-fp16", ["--compression", "fp16"])}


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(command, cwd):
    before = cpu_of_children()
    output, _ = runs.run(command, cwd=cwd)
    return output, cpu_of_children() - before


def of_dtrain(model, options, steps, batch, folder):
    machine = folder / "apart.toml"
    machine.write_text("[[node]]\nranks = [0]\n[[node]]\nranks = [1]\n")
    command = [str(runs.TOP / "tests/support/mpirun.sh"), "2", runs.program(), "--model", model, "--global-batch", str(batch), "--limit-steps", str(steps),
               "--threads", "1", "--quiet", "--optimizer", "adam", "--schedule", "constant", "--augment", "off", "--emulate", str(machine),
               "--checkpoint-every", "end", "--name", "run", "--overwrite", *options]
    if model in random_text.BATCH:  # blocks as long as the peer's
        if not (folder / model).exists():
            random_text.stage(folder / model, model, steps * batch)
        command += ["--dataset", str(folder / model)]
    _, cpu_s = timed(command, folder)
    with h5py.File(folder / "runs/run/results.h5") as file:
        ranks = [file[f"ranks/{rank:05}"] for rank in range(2)]
        step_s = max(statistics.median(float(value) for value in rank["steps"]["time_s"]) for rank in ranks)
        return step_s, cpu_s, max(int(rank["epochs"]["peak_memory_bytes"].max()) for rank in ranks)


def of_peer(model, way, steps, batch, folder):
    output, cpu_s = timed(runs.peer_command("sharded.py", 2, "--model", model, "--way", way, "--steps", steps, "--batch", batch), folder)
    numbers = [[float(value) for value in re.findall(rf"{name}=([0-9.]+)", output)] for name in ("step_s", "peak_bytes")]
    return max(numbers[0]), cpu_s, int(max(numbers[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["resnet18", "mlp"])
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="over all ranks")
    parser.add_argument("--quick", action="store_true", help="one pair of two steps, kept nowhere: only to see that both sides run")
    parser.add_argument("--output", type=pathlib.Path, default=runs.TOP / "perf/results/sharding")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.models, arguments.pairs, arguments.steps, arguments.batch = ["mlp"], 1, 3, 8
    kept = arguments.output / "peers.csv"
    rows = [] if arguments.quick or not kept.exists() else list(csv.DictReader(kept.open()))
    measured = {(int(row["pair"]), row["model"], row["program"], row["way"]) for row in rows}
    print(runs.machine(), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for pair in range(1, arguments.pairs + 1):
            for model in arguments.models:
                for way in arguments.ways:
                    peer, options = WAYS[way]
                    if (pair, model, "pytorch", peer) in measured:
                        continue
                    ours = of_dtrain(model, options, arguments.steps, arguments.batch, folder)
                    theirs = of_peer(model, peer, arguments.steps, arguments.batch, folder)
                    for program, (step_s, cpu_s, peak) in (("dtrain", ours), ("pytorch", theirs)):
                        rows.append({"pair": pair, "model": model, "way": way if program == "dtrain" else peer, "program": program,
                                     "step_s": round(step_s, 4), "run_cpu_s": round(cpu_s, 2), "peak_bytes": peak})
                        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
                    if not arguments.quick:
                        runs.write_rows(kept, rows)


if __name__ == "__main__":
    sys.exit(main())
