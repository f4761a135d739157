"""What crosses between two emulated nodes of two ranks each, and what a step takes on a virtual clock with links of 1 Gb/s: of each
sharded strategy and each compression, beside what the formulas say.

The clock lets computing and sums not overlap, so its times are upper bounds. Bytes are those that the ranks of the first node have
really sent to those of the second, in a step.
"""

import argparse
import pathlib
import sys
import tempfile

import h5py
import numpy as np

import runs

NODES, RANKS_OF_NODE = 2, 2
RANKS = NODES * RANKS_OF_NODE
GBIT_PER_S = 1.0
COMPUTE_US = 25
ENCODE_US = 0  # of the table of bytes; what --auto takes is an option
PROBED_MB = 2 * 2 * 2048 * 4e-6  # auto measures rounding twice, in two forms, on 2048 values: the clock does not count that
BATCH = 64
HIDDEN = [1024, 1024]
WIDTHS = [784, *HIDDEN, 10]
LAYERS = [inputs * outputs + outputs for inputs, outputs in zip(WIDTHS, WIDTHS[1:])]
PARAMETERS = sum(LAYERS)
BYTES = 4 * PARAMETERS


def factors(rank):
    """Bytes of PowerSGD's factors, and of what travels beside them."""
    return 4 * (sum(rank * (inputs + outputs) for inputs, outputs in zip(WIDTHS, WIDTHS[1:])) + sum(WIDTHS[1:]))


# Options, and what a node sends: each of two nodes sends half of what a ring passes round, in each direction.
HALF = (NODES - 1) / NODES
CASES = {
    "ddp": ([], 2 * HALF * BYTES),
    "zero1": (["--strategy", "zero1"], 2 * HALF * BYTES),
    "zero2": (["--strategy", "zero2"], 2 * HALF * BYTES),
    # Forward and back, but for the last layer, which is there when backward begins.
    "zero3": (["--strategy", "zero3"], 3 * HALF * BYTES - HALF * 4 * LAYERS[-1]),
    "zero2 within nodes": (["--strategy", "zero2", "--shard-within", "node"], 2 * HALF * BYTES),
    "zero3 within nodes": (["--strategy", "zero3", "--shard-within", "node"], 2 * HALF * BYTES),
    "ddp, bf16": (["--compression", "bf16"], 2 * HALF * BYTES / 2),
    "ddp, fp16": (["--compression", "fp16"], 2 * HALF * BYTES * (2 + 1 / 64) / 4),
    "ddp, int8": (["--compression", "int8"], 2 * HALF * BYTES * (1 + 1 / 64) / 4),
    "ddp, powersgd=2": (["--compression", "powersgd=2"], 2 * HALF * factors(2)),
    "ddp, topk=0.01": (["--compression", "topk=0.01"], (NODES - 1) * 8 * 0.01 * PARAMETERS),
    "zero1, int8": (["--strategy", "zero1", "--compression", "int8"], 2 * HALF * BYTES * (1 + 1 / 64) / 4 + HALF * BYTES),
}


def machine(folder, gbit_per_s=GBIT_PER_S):
    path = folder / f"machine-{gbit_per_s}.toml"
    nodes = "".join(f"[[node]]\nranks = {list(range(RANKS_OF_NODE * node, RANKS_OF_NODE * (node + 1)))}\n" for node in range(NODES))
    link = f"[[link]]\ngbit_per_s = {gbit_per_s}\n" if gbit_per_s else ""
    path.write_text(f'clock = "virtual"\ncompute_us_per_sample = {COMPUTE_US}\nencode_us_per_mb = {ENCODE_US}\n{nodes}{link}')
    return path


def measured(folder):
    """Bytes over the link and seconds of the clock, for a step: from the second on, the first one agrees on more."""
    with h5py.File(folder / "results.h5") as file:
        sent = 0
        for rank in range(RANKS_OF_NODE):
            rows = file[f"ranks/{rank:05}/traffic"][:]
            sent += int(rows["bytes_sent"][rows["peer"] >= RANKS_OF_NODE].sum())
        times = file["ranks/00000/virtual_times"][:]["virtual_time_s"]
    return sent / len(times), float(np.median(np.diff(times)))


def train(folder, name, steps, machine_file, options):
    command = [str(runs.TOP / "tests/support/mpirun.sh"), str(RANKS), runs.program(), "--model", "mlp", "--model-option",
               "hidden=" + ",".join(map(str, HIDDEN)), "--global-batch", str(BATCH), "--threads", "1", "--quiet", "--limit-steps", str(steps),
               "--emulate", str(machine_file), "--name", name, "--checkpoint-every", "end", *options]
    runs.run(command, cwd=folder)
    return folder / "runs" / name


def auto_rows(folder, encode_us, steps):
    """`auto` beside no compression, on links of three kinds: a step after the choice, and all steps with what the choice takes."""
    global ENCODE_US
    ENCODE_US = encode_us
    for gbit_per_s in (1, 10, None):
        taken = {}
        for form in ("none", "auto"):
            results = train(folder, f"{gbit_per_s}-{form}", steps, machine(folder, gbit_per_s), ["--compression", form])
            with h5py.File(results / "results.h5") as file:
                times = file["ranks/00000/virtual_times"][:]["virtual_time_s"]
                chosen = [event["detail"].decode() for event in file["ranks/00000/events"][:] if event["kind"] == b"compression"]
            taken[form] = times
        last, first = ({form: value(times) for form, times in taken.items()}
                       for value in (lambda times: float(np.median(np.diff(times)[-4:])), lambda times: float(times[-1])))
        first["auto"] += PROBED_MB * encode_us * 1e-6
        yield {"gbit_per_s": gbit_per_s or "no limit", "encode_us_per_mb": encode_us, "steps": steps,
               "ms_of_step_none": round(1000 * last["none"], 3), "ms_of_step_auto": round(1000 * last["auto"], 3),
               "ratio": round(last["auto"] / last["none"], 4), "s_of_all_none": round(first["none"], 4), "s_of_all_auto": round(first["auto"], 4),
               "ratio_of_all": round(first["auto"] / first["none"], 4), "chosen": chosen[0] if chosen else ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps of three cases, kept nowhere")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--auto", action="store_true", help="auto beside no compression on links of 1 and 10 Gb/s and without limit: auto.csv")
    parser.add_argument("--encode-us", type=float, nargs="+", default=[300, 3000], help="what rounding and reading back a MB of gradients takes")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--output", type=pathlib.Path, default=runs.TOP / "perf/results/sharding")
    arguments = parser.parse_args()
    if arguments.auto:
        rows = []
        for encode_us in arguments.encode_us:
            with tempfile.TemporaryDirectory() as scratch:
                for row in auto_rows(pathlib.Path(scratch), encode_us, arguments.steps):
                    rows.append(row)
                    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        return runs.write_rows(arguments.output / "auto.csv", rows)
    cases = ["ddp", "zero3", "ddp, int8"] if arguments.quick else arguments.cases
    steps = 4 if arguments.quick else arguments.steps
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for number, name in enumerate(cases):
            options, expected = CASES[name]
            sent, seconds = measured(train(folder, str(number), steps, machine(folder), options))
            expected_s = BATCH / RANKS * COMPUTE_US * 1e-6 + expected * 8 / (GBIT_PER_S * 1e9)
            rows.append({"name": name, "bytes_between_nodes": round(sent), "formula_bytes": round(expected),
                         "virtual_ms": round(1000 * seconds, 3), "formula_ms": round(1000 * expected_s, 3), "steps": steps})
            print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    if arguments.quick:
        return
    runs.write_rows(arguments.output / "two-nodes.csv", rows)


if __name__ == "__main__":
    sys.exit(main())
