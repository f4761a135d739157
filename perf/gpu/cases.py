"""What perf/gpu/speed.py measures: a list of cases, each of which gives the figures that speed.json keeps of it."""

import dataclasses
import fnmatch
import functools
import json
import os
import pathlib
import statistics
import sys
from typing import Callable, NamedTuple

import arithmetic
import dtrain_steps
import links
import programs
from dtrain_steps import Plan
from random_data import RandomData

HERE = pathlib.Path(__file__).resolve().parent
LOADER = programs.TOP / "build" / "release" / "perf" / "data" / "dtrain_perf_data"


@dataclasses.dataclass
class Bench:
    """What all cases have in common."""

    program: pathlib.Path
    device: str  # cuda or cpu
    gpus: int
    quick: bool
    compiled: bool  # also torch.compile
    sides: list[str]  # of SIDES, these; * stands for anything
    rounds: int
    scratch: pathlib.Path
    data: RandomData
    limits: programs.Limits

    def measures(self, side):
        return any(fnmatch.fnmatch(side, pattern) for pattern in self.sides)

    def threads(self):
        """Of one process; 0: as many as it takes by itself. A quick run is short however busy the cores are."""
        return 1 if self.quick else 0


# Of the cases beside PyTorch.
SIDES = ("dtrain, fused", "dtrain, own", "dtrain, own, no graphs", "eager", "torch.compile", "reduce-overhead")


class Case(NamedTuple):
    name: str
    kind: str  # images, text, study, loader or links: its table
    measure: Callable[[Bench], dict]


def in_turn(bench, sides):
    """Each side's figures of every round, one side after the other within a round; what a side that failed said instead."""
    found, errors = {}, {}
    for _ in range(bench.rounds):
        for side, measure in sides.items():
            if side in errors:
                continue
            try:
                for figure, value in measure().items():
                    found.setdefault(figure, []).append(value)
            except programs.Failed as error:
                errors[side] = str(error)
    return found, errors


def start_peers(bench, words, peers):
    """PyTorch's programs into `peers`, one after the other so that none disturbs what another tries out; what one that did not
    get ready said, and the facts that they tell."""
    errors, facts = {}, {}
    compiled = {"torch.compile": ["--compile", "default"], "reduce-overhead": ["--compile", "reduce-overhead"]}
    for mode, flags in {"eager": [], **(compiled if bench.compiled else {})}.items():
        if not bench.measures(mode):
            continue
        peers[mode] = programs.Peer([sys.executable, HERE / "peer.py", *words, *flags], bench.scratch / f"{mode}.log")
        try:
            facts = peers[mode].answer(bench.limits)
        except programs.Failed as error:
            errors[mode] = str(error)
    return errors, facts


def against_pytorch(bench, plan, options, words, units):
    """dtrain, with its kernels that join operations and with its others, and PyTorch in turn. `options` of dtrain, `words` of
    peer.py; `units`: samples or tokens of a step."""
    place = ["--device", bench.device, "--threads", bench.threads()]
    words = [*words, *place, "--warm-up", plan.warm_up, "--stretches", plan.stretches, "--steps", plan.steps]
    peers = {}

    def ours(side, *further):
        folder = dtrain_steps.run(bench.program, bench.scratch, plan, [*options, *place, *further], bench.limits)
        return {side: dtrain_steps.times_of(folder, plan)["time_s"]}

    def theirs(mode):
        answer = peers[mode].ask(bench.limits)
        return {mode: answer["copied"], f"{mode}, resident": answer["resident"]}

    try:
        errors, facts = start_peers(bench, words, peers)
        ready = {mode: functools.partial(theirs, mode) for mode in peers if mode not in errors}
        sides = {f"dtrain, {kernels}": functools.partial(ours, f"dtrain, {kernels}", "--kernels", kernels) for kernels in ("fused", "own")}
        if bench.device == "cuda":
            sides["dtrain, own, no graphs"] = functools.partial(ours, "dtrain, own, no graphs", "--kernels", "own", "--device-graphs", "off")
        sides = {side: measure for side, measure in sides.items() if bench.measures(side)}
        found, failed = in_turn(bench, {**sides, **ready})
    finally:
        for peer in peers.values():
            peer.close()
    return {"figures": figures_of(found, units), "units_per_step": units, "pytorch": facts, "errors": {**failed, **errors}}


def figures_of(found, units):
    """With the rate at the median."""
    return {side: {"step_s": seconds, "per_s": units / statistics.median(seconds)} for side, seconds in found.items()}


def of_images(bench, model, batch, precision):
    """dtrain's options of a case, and the sizes of its network that are not the model's own."""
    sizes = {}
    if bench.quick:
        # With fewer channels oneDNN's strided pointwise convolutions end PyTorch: see perf/results/random/README.md.
        sizes = {"width": 16, **({"hidden": 16} if model == "vgg11" else {})}
    options = [*dtrain_steps.options_of(model, sizes), "--dataset", bench.data.images((3, 32, 32)), "--global-batch", batch,
               "--precision", precision]
    return options, sizes


def images(bench, model, batch, precision):
    plan = Plan(20, 5, 10) if batch < 2048 else Plan(12, 5, 5)
    if bench.quick:
        plan = Plan(2, 2, 2)
    options, sizes = of_images(bench, model, batch, precision)
    words = ["--model", model, "--sizes", json.dumps(sizes), "--batch", batch, "--precision", precision]
    return {"model": model, "batch": batch, "precision": precision,
            **against_pytorch(bench, plan, options, words, batch)}


# dtrain's presets char and gpt2; the vocabularies are Tiny Shakespeare's and GPT-2's, the batch is in blocks.
GPT = {"gpt-char": {"batch": 64, "sizes": {"layers": 6, "heads": 6, "width": 384, "block": 256, "vocabulary": 65, "dropout": 0.2}},
       "gpt2-124M": {"batch": 16, "sizes": {"layers": 12, "heads": 12, "width": 768, "block": 1024, "vocabulary": 50257,
                                            "dropout": 0.0}}}


# What a first half hour with a GPU is to say.
FIRST_TEXT = "gpt2-124M"
FIRST_IMAGES = (("resnet18", 128), ("resnet18", 2048), ("vgg11", 512))


def of_text(bench, name, precision):
    """dtrain's options of a case, the sizes of its network and its batch."""
    batch, sizes = GPT[name]["batch"], GPT[name]["sizes"]
    if bench.quick:
        batch, sizes = 2, {**sizes, "layers": 1, "heads": 2, "width": 16, "block": 16, "vocabulary": 65}
    ours = {key: value for key, value in sizes.items() if key != "vocabulary"}  # which is the dataset's
    options = [*dtrain_steps.options_of("gpt", ours), "--dataset", bench.data.blocks(sizes["vocabulary"], sizes["block"]),
               "--global-batch", batch, "--precision", precision]
    return options, sizes, batch


def text(bench, name, precision):
    plan = Plan(20, 5, 10) if name == "gpt-char" else Plan(6, 5, 4)
    if bench.quick:
        plan = Plan(2, 2, 2)
    options, sizes, batch = of_text(bench, name, precision)
    words = ["--model", "gpt", "--sizes", json.dumps(sizes), "--batch", batch, "--precision", precision]
    return {"model": name, "batch": batch, "precision": precision, "sizes": sizes,
            **against_pytorch(bench, plan, options, words, batch * sizes["block"])}


def layouts(bench, batch):
    """Ranks, threads of each and device: all CPU cores in two ways, and the device."""
    cores = len(os.sched_getaffinity(0))
    ranks = max(1, min(cores, batch // 4))
    found = {f"1 rank x {bench.threads() or cores}": (1, bench.threads() or cores, "cpu")}
    if ranks > 1:
        found[f"{ranks} ranks x {cores // ranks}"] = (ranks, cores // ranks, "cpu")
    return {**{f"CPU, {layout}": how for layout, how in found.items()}, "device": (1, bench.threads(), bench.device)}


def study(bench, model):
    """One of the study's models on all CPU cores and on the device, and what its batches take to get there."""
    batch = 16 if bench.quick else arithmetic.STUDY[model]["batch"]
    plan = Plan(5, 5, 4) if model in ("vgg11", "seq2seq") else Plan(50, 5, 30)
    sizes = {}
    if bench.quick:
        plan, sizes = Plan(2, 2, 2), {"vgg11": {"width": 4, "hidden": 16}, "seq2seq": {"embedding": 8, "hidden": 8}}.get(model, {})
    shape = arithmetic.STUDY[model].get("shape")
    options = [*dtrain_steps.options_of(model, sizes), "--global-batch", batch, "--dataset",
               bench.data.images(shape) if shape else bench.data.text(model)]

    def measure(layout, ranks, threads, device):
        folder = dtrain_steps.run(bench.program, bench.scratch, plan, [*options, "--threads", threads, "--device", device],
                                  bench.limits, ranks)
        times = dtrain_steps.times_of(folder, plan)
        noted = {"transfer_s": times["transfer_time_s"]} if layout == "device" else {}
        return {layout: times["time_s"], **noted}

    sides = {layout: functools.partial(measure, layout, *how) for layout, how in layouts(bench, batch).items()}
    found, errors = in_turn(bench, sides)
    transfer_s = found.pop("transfer_s", [])
    travelling = arithmetic.travelling_bytes(model, batch)
    copies = {}
    try:
        copies = json.loads(programs.run([sys.executable, HERE / "copies.py", "--device", bench.device, "--bytes",
                                          *travelling.values()], bench.limits))
    except programs.Failed as error:
        errors["copies"] = str(error)
    return {"model": model, "batch": batch, "figures": figures_of(found, batch), "bytes": travelling, "copies_s": copies, "errors": errors,
            "noted_transfer_s": transfer_s, "steps_per_epoch": arithmetic.steps_per_epoch(model, batch)}


def loader(bench):
    """What perf/data/reading.cpp prints of images of CIFAR-10's shape, as it is: its table is the result."""
    if not LOADER.exists():
        raise programs.Failed(f"{LOADER.name} is not built: run perf/gpu_check.sh build")
    return links.loader_figures(programs.run([LOADER, bench.data.images((3, 32, 32))], bench.limits))


def all_cases(quick):
    """Those of the most interest first: a call may end before the last."""
    batches = [8] if quick else [128, 512, 2048]

    def all_images(precision):
        return [Case(f"{model}-{batch}-{precision}", "images", functools.partial(images, model=model, batch=batch, precision=precision))
                for model in ("vgg11", "resnet18") for batch in batches]

    def all_text(precision):
        return [Case(f"{name}-{precision}", "text", functools.partial(text, name=name, precision=precision)) for name in GPT]

    of_study = [Case(f"study-{model}", "study", functools.partial(study, model=model)) for model in arithmetic.STUDY]
    others = [Case("loader", "loader", loader), Case("links", "links", links.measure)]
    found = [*all_images("bf16"), *all_text("bf16"), *of_study, *others, *all_images("fp32"), *all_text("fp32")]
    first = [f"{FIRST_TEXT}-bf16", *(f"{model}-{batch}-bf16" for model, batch in FIRST_IMAGES)]
    return sorted(found, key=lambda case: first.index(case.name) if case.name in first else len(first))
