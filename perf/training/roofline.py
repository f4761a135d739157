"""How close a training step comes to what the machine can do (the roofline of Williams, Waterman and Patterson, 2009).

Measures, for one core and for two at once, the rate of fp32 matrix products and of copies in memory, and what two ranks pay to meet
and to exchange a model's gradients. For each model it states the least time of a step from that: the operations as dtrain counts
them (`--dry-run`; convolutions that Winograd's way takes with 2.25 to 4 times fewer, no gradient of the inputs), the bytes that must
move (weights read forward and back, gradients, the optimizer's pass, activations written and read), whichever takes longer. Then it
trains on one and on two ranks, in turn, and says which share of that the step reached and where its time went.
Written to perf/results/roofline: every run as CSV, the tables as Markdown.
"""

import argparse
import multiprocessing
import pathlib
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import h5py
import random_images
import random_text
import runs

sys.path.insert(0, str(runs.PEERS))
import networks  # noqa: E402

import torch  # noqa: E402

MODELS = (*networks.RECIPES, *random_text.BATCH)
# About half a minute on one core: three epochs of so many samples.
SAMPLES = {"mlp": 54000, "cnn": 15000, "vgg11": 768, "resnet18": 384, "conv_autoencoder": 4096, "nbow": 22500, "seq2seq": 1280, "gpt": 48}
WINOGRAD_LEAST_CHANNELS = 32  # lib/models/layers/convolution/winograd_conv.cpp
PHASES = ("data", "forward", "backward", "exposed_communication", "optimizer", "other")
PRODUCT, COPY_BYTES = 1024, 1 << 28


def parse():
    parser = argparse.ArgumentParser(prog="perf/roofline.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default all")
    parser.add_argument("--rounds", type=int, default=3, help="of each model on one and on two ranks, in turn [3]")
    parser.add_argument("--quick", action="store_true", help="two batches, one round, a moment of each measurement: does it run? No figures")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "roofline")
    given = parser.parse_args()
    given.models = given.models or list(MODELS)
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"there is no model {min(unknown)}; use {', '.join(MODELS)}")
    if given.rounds < 1:
        parser.error("at least one round is needed")
    given.rounds = 1 if given.quick else given.rounds
    return given


# ---- the machine -----------------------------------------------------------------------------------------------------
def best_rate(act, amount, seconds):
    """The most of `amount` per second that one call of `act` reached within the time."""
    act()
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        act()
        best = max(best, amount / (time.perf_counter() - start))
    return best


def one_core(seconds, barrier, results):
    torch.set_num_threads(1)
    a, b = torch.rand(PRODUCT, PRODUCT), torch.rand(PRODUCT, PRODUCT)
    product = torch.empty(PRODUCT, PRODUCT)
    source, copy = torch.rand(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    for act, amount in ((lambda: torch.mm(a, b, out=product), 2 * PRODUCT ** 3), (lambda: copy.copy_(source), 2 * COPY_BYTES)):
        barrier.wait(timeout=120)
        results.put((amount == 2 * COPY_BYTES, best_rate(act, amount, seconds)))


def rates_of(cores, seconds):
    """FLOP/s and bytes/s of so many processes at once, added up."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(cores), context.Queue()
    processes = [context.Process(target=one_core, args=(seconds, barrier, results)) for _ in range(cores)]
    for process in processes:
        process.start()
    found = [results.get(timeout=300) for _ in range(2 * cores)]
    for process in processes:
        process.join(timeout=60)
    return {"flops": sum(rate for is_copy, rate in found if not is_copy), "bytes": sum(rate for is_copy, rate in found if is_copy)}


# ---- the models ------------------------------------------------------------------------------------------------------
@dataclass
class Work:
    """Of a step over all ranks."""

    flops: float
    spared_flops: float  # by Winograd's way
    parameter_bytes: float
    optimizer_bytes: float  # its state
    activation_bytes: float

    def bytes_of_ranks(self, ranks):
        """Each rank reads all weights twice, writes its gradients, and its optimizer reads these, and reads and writes weights and
        state; activations are shared out."""
        return ranks * (6 * self.parameter_bytes + 2 * self.optimizer_bytes) + 2 * self.activation_bytes

    def least_s(self, ranks, machine):
        rates = machine[ranks]
        return (self.flops - self.spared_flops) / rates["flops"], self.bytes_of_ranks(ranks) / rates["bytes"]


def winograd_saves(height, width):
    """The share of a convolution's multiplications that tiles of 2 x 2 or 4 x 4 outputs save, whichever need fewer."""
    return 1 - min((-(-height // m)) * (-(-width // m)) * (m + 2) ** 2 for m in (2, 4)) / (9 * height * width)


def spared_by_winograd(model):
    """FLOPs of a sample's forward pass that need not be done."""
    if model not in networks.RECIPES:
        return 0.0
    recipe, spared = networks.RECIPES[model], []

    def look(module, inputs, output):
        fits = (module.kernel_size == (3, 3) and module.stride == (1, 1) and module.padding == (1, 1)
                and min(module.in_channels, module.out_channels) >= WINOGRAD_LEAST_CHANNELS)
        spared.append(2 * 9 * module.in_channels * output[0].numel() * winograd_saves(*output.shape[2:]) if fits else 0)

    network = recipe["network"]().eval()
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(look)
    with torch.no_grad():
        network(torch.rand(2, *recipe["shape"]))
    return sum(spared)


def bytes_said(said):
    """Bytes of a rank by what holds them, as a dry run lists them in brackets: `without activations`, which ends the list, is a sum."""
    return {name: float(value.replace(",", "")) * 2 ** 20
            for name, value in re.findall(r"[(,] ?(parameters|gradients|optimizer|activations) ([\d.,]+) MiB", said)}


def work_of(model, common, batch):
    said = runs.run([runs.program(), "--model", model, *map(str, common), "--dry-run"])[0]
    held = bytes_said(said)
    rows = re.findall(r"^\S+ +\[.*\] +([\d.]+) +\d+$", said, re.MULTILINE)
    flops = [1e6 * float(value) for value in rows]
    if not flops or not {"parameters", "activations"} <= set(held):
        sys.exit(f"perf: the dry run of {model} says neither operations nor memory:\n{said}")
    first = next(value for value in flops if value > 0)
    return Work(flops=3 * sum(flops) - first, spared_flops=3 * spared_by_winograd(model) * batch,
                parameter_bytes=held["parameters"], optimizer_bytes=held.get("optimizer", 0.0),
                activation_bytes=held["activations"])


def stage(model, scratch, quick):
    folder = scratch / "data"
    batch = random_text.BATCH.get(model) or networks.RECIPES[model]["batch"]
    samples = 2 * batch if quick else SAMPLES[model]
    if model in random_text.BATCH:
        random_text.stage(folder, model, samples)
    else:
        random_images.stage(folder, networks.RECIPES[model]["shape"], train_samples=samples)
    return folder, batch


def step_of(folder):
    """Median seconds of a step after the first epoch, and the share of each phase in the sum of these steps, of rank 0."""
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        steps = file["ranks/00000/steps"][:]
    steps = steps[steps["epoch"] > 1]
    whole = float(steps["time_s"].sum())
    return statistics.median(map(float, steps["time_s"])), {phase: float(steps[f"{phase}_time_s"].sum()) / whole for phase in PHASES}


def measure(model, given, scratch, machine):
    folder, batch = stage(model, scratch, given.quick)
    common = ["--dataset", folder, "--global-batch", batch]
    work = work_of(model, common, batch)
    rows = []
    for number in range(given.rounds):
        for ranks in (1, 2) if number % 2 == 0 else (2, 1):
            runs.run(runs.dtrain_command(ranks, scratch, "run", "--model", model, *common, "--epochs", 3, "--record-steps", "all"))
            step_s, shares = step_of(scratch / "run")
            compute_s, memory_s = work.least_s(ranks, machine)
            rows.append({"model": model, "round": number + 1, "ranks": ranks, "step_s": step_s, "compute_s": compute_s, "memory_s": memory_s,
                         "share": max(compute_s, memory_s) / step_s, "flops": work.flops, "spared_flops": work.spared_flops,
                         "bytes": work.bytes_of_ranks(ranks), **{phase: round(value, 4) for phase, value in shares.items()}})
    return rows


def line_of(rows, ranks):
    of = [row for row in rows if row["ranks"] == ranks]
    milliseconds = [f"{1e3 * statistics.median(row[name] for row in of):.2f}" for name in ("compute_s", "memory_s", "step_s")]
    phases = [f"{100 * statistics.median(row[phase] for row in of):.0f}" for phase in PHASES]
    return f"| {of[0]['model']} | {ranks} | {' | '.join(milliseconds)} | {runs.median_and_range([row['share'] for row in of])} | {' | '.join(phases)} |"


def page_of(rows, given, machine, exchange):
    heads = ["model", "ranks", "computing, ms", "moving bytes, ms", "step, ms", "share reached: median (range)",
             *(f"{phase.replace('_', ' ')}, %" for phase in PHASES)]
    lines = ["# The machine's limit", "", f"`perf/roofline.sh {' '.join(sys.argv[1:])}`, fp32, a thread per rank, {given.rounds} rounds in turn.",
             f"Machine: {runs.machine()}.", ""]
    for cores, rates in machine.items():
        lines.append(f"- {cores} core{'s' * (cores > 1)}: {rates['flops'] / 1e9:.1f} GFLOP/s in products of {PRODUCT} x {PRODUCT}, "
                     f"{rates['bytes'] / 1e9:.1f} GB/s read and written in copies of {COPY_BYTES >> 20} MiB")
    lines += [f"- all_reduce of two ranks: {', '.join(f'{size:,} bytes {1e6 * seconds:.1f} us' for size, seconds in exchange.items())}", "",
              f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for model in given.models:
        lines += [line_of([row for row in rows if row["model"] == model], ranks) for ranks in (1, 2)]
    return "\n".join(lines)


def main():
    given = parse()
    seconds = 0.1 if given.quick else 3.0
    machine = {cores: rates_of(cores, seconds) for cores in (1, 2)}
    rows = []
    with tempfile.TemporaryDirectory(prefix="dtrain-roofline-") as scratch:
        exchange = runs.exchange_s(pathlib.Path(scratch), [8, 4096] if given.quick else [8, 4096, 1 << 20, 1 << 25])
    for model in given.models:
        with tempfile.TemporaryDirectory(prefix="dtrain-roofline-") as scratch:
            rows += measure(model, given, pathlib.Path(scratch), machine)
        print(line_of([row for row in rows if row["model"] == model], 2) if not given.quick else f"{model} runs", flush=True)
    if not given.quick:
        runs.write_results(given.out, "roofline", rows, page_of(rows, given, machine, exchange), [f"machine: {runs.machine()}"])


if __name__ == "__main__":
    main()
