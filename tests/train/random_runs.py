"""Runs drawn by chance, each compared with the plainest form of itself: one rank, one thread, LibTorch's operators alone, fp64.

What a run computes (model, data, batch, pieces, optimizer, seed) and how (ranks, mesh, schedule, threads, precision, staging,
kernels, a crash and other ranks after it, a rank killed) are drawn from a seed. Losses, gradient norms, weights, scores and the
samples used must be those of the plain run. A run that differs is made as small as it can be and still differ; then both
command lines are printed.

    random_runs.py BINARY [--runs K] [--seed N|dated] [--csv FILE] [--folder FOLDER]     seeds N, N + 1, ...

`--seed dated`: other seeds each day, so that a test that is short tries many in time.
"""

import argparse
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import MPIRUN, checkpoint_tensors
from gaps import largest, largest_of
from random_cases import LIMIT_S, Case, halves, has_batch_norm, ranks_in, stage, valid, without
from random_networks import build, export
from random_strategies import FAMILIES, plain_of, same_bits_of
from recovery import has_ulfm

SHRINKING_S = 20  # and of making one case smaller
FIRST_DATED, DATED_DAYS = 1000, 200  # which seeds the days have
# Largest differences, relative, of losses, gradient norms and weights. fp64: what sums in another order leave, and what some
# steps of training make of that: a unit in the last place is 1e-16, and normalising by a deviation near 0 multiplies it by
# 300 in each layer. fp32: a unit is 6e-8, the first step's numbers are sums of some thousand such; each later step starts from
# weights that differ, and a ReLU whose input moves across 0 changes the gradient by up to a percent where there is BatchNorm.
# In half precision products have 8 bits (bf16) or 11 (fp16), and the plain run has them, too.
TOLERANCES = {"fp64": (1e-10, 1e-9, 1e-9), "fp32": (5e-4, 2e-3, 5e-4), "bf16": (1e-2, 3e-2, 5e-3), "fp16": (3e-3, 1e-2, 2e-3)}
FIRST_STEP = {"fp64": (1e-12, 1e-11), "fp32": (5e-6, 1e-4), "bf16": (5e-3, 2e-2), "fp16": (1e-3, 5e-3)}
IN_ANY_ORDER = {"fp64": 1e-12, "fp32": 1e-4, "bf16": 2e-3}  # of the way that parameters go: what rounding makes of sums
ROUGHER = {"fp64": 30, "fp32": 20, "bf16": 3, "fp16": 3}  # with BatchNorm


class Failed(Exception):
    """A run that is not what it should be. `kind` is what stays the same while the case is made smaller."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {str(text).strip()}")
        self.kind, self.text = kind, text


def environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    return {**kept, "OMPI_MCA_btl": "^ofi", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive"}  # ranks with two threads share cores here


def launch(command, folder, flags=""):
    process = subprocess.Popen(command, cwd=folder, env={**environment(), "DTRAIN_MPIRUN_FLAGS": flags}, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends its ranks
        try:
            _, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
        raise Failed("hangs", f"after {LIMIT_S} s: {err[-2000:]}") from None
    return process.returncode, out + err


class Bench:
    """Where runs are done, with the datasets staged so far and the plain runs done so far."""

    def __init__(self, binary, folder, ulfm):
        self.binary, self.folder, self.ulfm = str(Path(binary).resolve()), folder, ulfm
        self.plain_runs = {}
        (folder / "copies").mkdir(exist_ok=True)

    def command(self, case, name, ranks, extra=()):
        words = [self.binary, *case.words(), "--name", name, "--quiet", *map(str, extra)]
        if ranks > 1 or "KILL" in case.how:
            words = [str(MPIRUN), str(ranks), *words]
        return ["taskset", "-c", first_core(), *words] if "ONE_CORE" in case.how else words

    def starts(self, case, name):
        """Commands, one after another, with the exit codes that each may have."""
        how, ranks = case.how, case.how["RANKS"]
        if "KILL" in how:
            return [(self.command(case, name, ranks, ["--inject", how["KILL"]]), (0,))]
        if "MESH" not in how:
            return [(self.command(case, name, ranks), (0,))]
        then = Case(case.what, {**how, "mesh": how["MESH"]})
        last = (self.command(then, name, ranks_in(how["MESH"])), (0,))
        if "CRASH" in how:
            codes = (0, 1, 5) if "IN_ANY_ORDER" in how else (1, 5)  # a slow copy may have no piece of the step at which it is to fail
            return [(self.command(case, name, ranks, ["--inject", how["CRASH"]]), codes), last]
        stopped = self.command(case, name, ranks, ["--exit-after", "0.001s"])
        return [(stopped, (0, 75))] * how["STOP"] + [last]

    def prepare(self, case):
        """The dataset, and the program that is to be trained."""
        stage(self.binary, environment(), self.folder, case.what["dataset"])
        if "NETWORK" in case.what:
            export(case, self.folder)

    def outcome(self, case, name):
        shutil.rmtree(self.folder / "runs" / name, ignore_errors=True)
        for command, codes in self.starts(case, name):
            code, output = launch(command, self.folder, "--with-ft ulfm" if "KILL" in case.how else "")
            if code not in codes:
                kind = {2: "refused", 5: "lost a rank"}.get(code, "ends with an error")
                raise Failed(kind, f"exit {code}: {output[-2000:]}")
            if code == 0 and codes != (0,):
                break  # stopped after its last step: it is complete
        return read(self.folder / "runs" / name)

    def plain(self, how, what):
        key = json.dumps([how, what])
        if key not in self.plain_runs:
            case = Case(what, how)
            try:
                self.plain_runs[key] = self.outcome(case, "plain")
            except Failed as failure:
                self.plain_runs[key] = Failed("the plain run " + failure.kind, failure.text)
        if isinstance(self.plain_runs[key], Failed):
            raise self.plain_runs[key]
        return self.plain_runs[key]

    def gaps(self, found, case):
        """A plain run is rounded, too, at times more than the drawn one: in half precision against fp64, in fp32 where a ReLU's
        input lies at 0. What agrees with LibTorch's operators in either precision is right."""
        first = plain_of(case)
        other = {**first, "precision": "fp64" if first["precision"] != "fp64" else case.how["precision"]}
        try:
            return differences(found, self.plain(first, case.what), case)
        except Failed as failure:
            if failure.kind != "differs" or other == first:
                raise
            try:
                return differences(found, self.plain(other, case.what), case)
            except Failed:
                raise failure from None

    def compare(self, case):
        """The largest differences of losses, norms and weights, over what is allowed. Throws Failed."""
        self.prepare(case)
        with ThreadPoolExecutor(1) as beside:  # nearly all of a run is its start, which keeps one core per rank busy
            plain = beside.submit(self.plain, plain_of(case), case.what)
            found = self.outcome(case, "drawn")
            plain.exception()
        gaps = self.gaps(found, case)
        alike = same_bits_of(case)
        if alike is not None:
            same_bits(found, self.plain(alike, case.what))
        return gaps


def first_core():
    return str(min(os.sched_getaffinity(0)))


def read(folder):
    """What a run has left."""
    if (folder / "state").read_text() != "completed\n":
        raise Failed("is not complete", (folder / "state").read_text())
    with h5py.File(folder / "results.h5") as file:
        rows = np.concatenate([rank["steps"][:] for rank in file["ranks"].values()])
        samples = [(int(row["epoch"]), int(row["hash"])) for rank in file["ranks"].values() for row in rank["samples"][:]]
        epochs = file["epochs"][:]
        test = file["test"][:] if "test" in file else []
    steps = {}
    for step in np.unique(rows["step"]):
        of = rows[rows["step"] == step]
        used = of[of["weight"] > 0]
        steps[int(step)] = {"weight": float(used["weight"].sum()), "loss": float((used["loss"] * used["weight"]).sum()),
                            "norm": float(of["gradient_norm"].max())}
    hashes = {}
    for epoch, part in samples:
        hashes[epoch] = (hashes.get(epoch, 0) + part) % 2**64
    last = folder / "checkpoints" / f"step-{max(steps):08}"
    if not last.exists():
        raise Failed("has no last checkpoint", last.name)
    return {"steps": steps, "hashes": hashes, "epochs": epochs, "test": test, "tensors": checkpoint_tensors(last, group=None)}


def relative(one, other, floor=1e-6):
    return abs(one - other) / max(abs(other), floor)


def differences_in_any_order(found, plain, case):
    """As differences(): of the parameters alone. Copies that meet a centre differ, but each exchange leaves the sum of all."""
    for one, other in zip(found["epochs"], plain["epochs"], strict=True):
        if one["samples"] != other["samples"]:
            raise Failed("other epochs", f"epoch {other['epoch']} has {one['samples']} samples instead of {other['samples']}")
    network, _ = build(case.what["NETWORK"], case.what["dataset"], 0)
    gaps = []
    for name, value in network.named_parameters():
        begin = value.detach().numpy()
        way, expected = (tensors[f"model/{name}"] - begin for tensors in (found["tensors"], plain["tensors"]))
        copies = [copy - begin for key, copy in found["tensors"].items() if re.fullmatch(rf"optimizer/copy\.copy-\d+/{name}", key)]
        if case.how["strategy"] == "easgd":
            way, expected = way + sum(copies), expected * len(copies)
        gaps.append(np.max(np.abs(way - expected)) / np.max(np.abs(expected)))
    gap = float(np.max(gaps))  # also where it is no number
    if not gap <= IN_ANY_ORDER[case.how["precision"]]:
        raise Failed("differs", f"parameters have moved otherwise by {gap:.3g}")
    return {"weights": gap / IN_ANY_ORDER[case.how["precision"]]}


def differences(found, plain, case):
    """The largest difference of each kind, over what its precision allows. Throws Failed for those above 1."""
    precision = case.how["precision"]
    loss_limit, norm_limit, weight_limit = (
        limit * (ROUGHER[precision] if has_batch_norm(case) else 1) for limit in TOLERANCES[precision])
    first_loss, first_norm = (
        limit * (ROUGHER[precision] if has_batch_norm(case) else 1) for limit in FIRST_STEP[precision])
    if found["hashes"] != plain["hashes"]:
        raise Failed("other samples", f"{found['hashes']} instead of {plain['hashes']}")
    if "IN_ANY_ORDER" in case.how:
        return differences_in_any_order(found, plain, case)
    gaps = {"loss": 0.0, "norm": 0.0}
    lost = "KILL" in case.how  # with a rank what it recorded of its last steps is lost
    if not lost and found["steps"].keys() != plain["steps"].keys():
        raise Failed("other steps", f"{list(found['steps'])} instead of {list(plain['steps'])}")
    for step, expected in plain["steps"].items():
        row = found["steps"].get(step)
        same_weight = row is not None and relative(row["weight"], expected["weight"]) <= 1e-6
        if row is None or (lost and not same_weight):
            continue
        if not same_weight:
            raise Failed("other weights", f"step {step} sums over {row['weight']} instead of {expected['weight']}")
        if np.isnan(expected["norm"]) or np.isinf(expected["norm"]):
            continue  # left out in fp16
        first = step == 1
        gaps["loss"] = largest(gaps["loss"], relative(row["loss"], expected["loss"]) / (first_loss if first else loss_limit))
        gaps["norm"] = largest(gaps["norm"], relative(row["norm"], expected["norm"]) / (first_norm if first else norm_limit))
    for one, other in zip(found["epochs"], plain["epochs"], strict=True):
        for name, limit in (("samples", 0), ("learning_rate", 1e-9)):
            if not relative(one[name], other[name]) <= limit:
                raise Failed("other epochs", f"epoch {other['epoch']} has {name} {one[name]} instead of {other[name]}")
        for name in ("train_loss", "validation_loss"):
            if not np.isnan(other[name]):
                gaps[name] = largest(gaps.get(name, 0.0), relative(one[name], other[name]) / loss_limit)
        for name in ("train_accuracy", "validation_accuracy"):
            if precision == "fp64" and not np.isnan(other[name]):
                gaps[name] = largest(gaps.get(name, 0.0), relative(one[name], other[name]) / 1e-9)
    gaps["weights"] = weight_gap(found["tensors"], plain["tensors"], case) / weight_limit
    for one, other in zip(found["test"], plain["test"], strict=True):
        if one["checkpoint"] == other["checkpoint"]:  # the best may be another one, where two are nearly as good
            gaps["test"] = largest(gaps.get("test", 0.0), relative(one["loss"], other["loss"]) / loss_limit)
    worst = largest_of(gaps)
    if not gaps[worst] <= 1:
        raise Failed("differs", f"{worst} by {gaps[worst]:.3g} times what {precision} may: " +
                     ", ".join(f"{name} {gap:.2g}" for name, gap in gaps.items()))
    return gaps


def weight_gap(found, plain, case):
    """fp64 without Adam: the largest of any element, over the largest of its tensor. Else of all as one vector, over its length:
    Adam makes a step of a gradient that is nothing but rounding, as a convolution's bias before a BatchNorm has it."""
    if found.keys() != plain.keys():
        raise Failed("other tensors", sorted(found.keys() ^ plain.keys())[:5])
    names = [name for name in plain if name.startswith("model/") and plain[name].size and plain[name].dtype.kind == "f"]
    if case.how["precision"] == "fp64" and case.what["optimizer"] == "sgd":
        return largest(*(float(np.max(np.abs(found[name] - plain[name])) / max(np.max(np.abs(plain[name])), 1e-3)) for name in names))
    squares = sum(float(np.square(found[name].astype(float) - plain[name]).sum()) for name in names)
    return float(np.sqrt(squares / sum(float(np.square(plain[name].astype(float)).sum()) for name in names)))


def same_bits(found, plain):
    for name in plain["tensors"]:
        if found["tensors"][name].tobytes() != plain["tensors"][name].tobytes():
            raise Failed("other bits", f"{name} of a reproducible run")


def shrunk(bench, case, failure):
    """The smallest case found that fails in the same way, and how it fails."""
    end = time.monotonic() + SHRINKING_S

    def candidates(of):
        for key in [*of.how, *of.what]:
            smaller = without(of, key)
            if smaller is not None:
                yield smaller
        yield from halves(of)

    again = True
    while again:
        again = False
        for smaller in candidates(case):
            if time.monotonic() > end:
                return case, failure
            if not valid(smaller):
                continue
            try:
                bench.compare(smaller)
            except Failed as other:
                if other.kind == failure.kind:
                    case, failure, again = smaller, other, True
                    break
    return case, failure


def report(bench, seed, case, failure):
    print(f"seed {seed}: {failure}", flush=True)
    case, failure = shrunk(bench, case, failure)
    flags = "DTRAIN_MPIRUN_FLAGS='--with-ft ulfm' " if "KILL" in case.how else ""
    lines = [flags + shlex.join(command) for command, _ in bench.starts(case, "drawn")]
    plain = Case(case.what, plain_of(case))
    lines += [shlex.join(bench.command(plain, "plain", plain.how["RANKS"]))]
    print(f"  smallest, after its data is staged ({case.what['dataset']}): {failure}", *lines, sep="\n  ", flush=True)


def described(case):
    """Options and values to count, those of text and small choice."""
    chosen = {**case.what, **case.how}
    one_run_s = ("global-batch", "micro-batches", "limit-steps", "seed", "learning-rate", "RANKS", "model-option", "NETWORK")
    for name, value in chosen.items():
        if name in ("CRASH", "MESH"):
            yield f"{name.lower()}"
        elif name == "KILL":
            yield f"kill {value.split('phase=')[1].split(',')[0]}"
        elif name not in one_run_s and not str(value).endswith(".pt2"):
            yield f"{name} {value}".lower()


def first_seed(text, runs):
    return FIRST_DATED + int(time.time() // 86400) % DATED_DAYS * runs if text == "dated" else int(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--family", choices=list(FAMILIES), default="lock_step", help="of strategies")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", default="1", help="a number, or dated")
    parser.add_argument("--also", type=int, nargs="*", default=[], help="more seeds: those that have found a fault")
    parser.add_argument("--csv", type=Path, help="where a row of each run goes")
    parser.add_argument("--folder", type=Path, help="where datasets and runs stay; else they are removed")
    parser.add_argument("--limit-s", type=float, default=np.inf, help="begin no run after so long")
    arguments = parser.parse_args()
    begun, rows, seen = time.monotonic(), [], Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments.binary, folder.resolve(), has_ulfm())
        first = first_seed(arguments.seed, arguments.runs)
        print("seeds", *arguments.also, f"{first} to {first + arguments.runs - 1}", flush=True)
        for seed in [*arguments.also, *range(first, first + arguments.runs)]:
            if time.monotonic() > begun + arguments.limit_s:
                break
            case, start_s = FAMILIES[arguments.family](seed, bench.ulfm), time.monotonic()
            seen.update(described(case))
            row = {"seed": seed, "model": case.what["model"], "dataset": case.what["dataset"], "mesh": case.how["mesh"],
                   "precision": case.how["precision"], "outcome": "agrees"}
            gaps = {}
            try:
                gaps = bench.compare(case)
            except Failed as failure:
                row["outcome"] = failure.kind
                report(bench, seed, case, failure)
            row |= {"of_allowed": f"{max(gaps.values(), default=np.nan):.2g}", "seconds": f"{time.monotonic() - start_s:.1f}",
                    "options": shlex.join(case.words() + [f"{key}={value}" for key, value in case.how.items() if key.isupper()])}
            rows.append(row)
            print(*[row[name] for name in row if name != "options"], flush=True)
            bench.plain_runs.clear()  # the next seed's are others
    for name, count in sorted(seen.items()):
        print(f"{count:6} {name}")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    outcomes = Counter(row["outcome"] for row in rows)
    print(f"{len(rows)} runs in {time.monotonic() - begun:.0f} s: {dict(outcomes)}")
    bad = [row["seed"] for row in rows if row["outcome"] != "agrees"]
    if bad:
        sys.exit(f"seeds {bad}: not what the plain run gives; --seed N --runs 1 does one again")


if __name__ == "__main__":
    main()
