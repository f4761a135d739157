"""Whole runs with everything in a device's memory, beside the same on the CPU.

    device_memory.py BINARY            linked with tests/support/guarded_device.cpp: a device whose memory ends a program that
                                       touches it by hand; and guarded_transport.cpp, which stands in for NCCL
    device_memory.py BINARY cuda       on the machine's GPUs, which several ranks share where there are too few
    device_memory.py BINARY DEVICE PART...
                                       only these functions of main(); trains_as_on_the_cpu:MODEL is one model of it
    --done FILE                        leaves out the parts that FILE names, line by line, and adds those that pass
    --limit-s N                        begins no part after so many seconds, and ends with 3 where some are left
    --at-once N                        so many parts beside each other [1]. A part that fails stops no other one
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from drawn import drawn
from dtrain_run import checkpoint_tensors, ranks_of, refused, run, step_losses
from small_data import stage_small

COMMON = ["--threads", 1, "--quiet", "--verify-every", 3]
# With the small dataset of each, which use_small_data adds.
SMALL_GPT = ["--model-option", "layers=2", "--model-option", "heads=2", "--model-option", "width=16", "--global-batch", 32]
MODELS = {"mlp": ["--limit-steps", 12], "cnn": ["--limit-steps", 6], "nbow": ["--limit-steps", 6],
          "gpt": [*SMALL_GPT, "--limit-steps", 4],
          "resnet18": ["--model-option", "width=4", "--global-batch", 32, "--limit-steps", 4],
          "vgg11": ["--model-option", "width=4", "--model-option", "hidden=16", "--global-batch", 32, "--limit-steps", 4],
          "conv_autoencoder": ["--limit-steps", 4], "seq2seq": ["--model-option", "hidden=16", "--limit-steps", 4]}
MESHES = {"mlp": ["data=2", "data=2,pipe=2"], "cnn": ["tensor=2"], "nbow": ["data=2"], "gpt": ["tensor=2", "pipe=2"],
          "resnet18": ["data=2"], "seq2seq": ["pipe=2"]}
# The same sums in another order; a ReLU or a maximum may then go the other way, and that adds up over steps.
ROUNDING = 2e-4
HALF_ROUNDING = 2e-2  # bf16 has 8 bits; several roundings in a row, over a few steps

# Meshes whose messages are also sent through the CPU's memory.
THROUGH_THE_CPU = {"mlp": ["data=2,pipe=2"], "gpt": ["tensor=2", "pipe=2"], "resnet18": ["data=2"]}



def taken(name):
    """The value behind `name` in the arguments, which then have neither."""
    if name not in sys.argv[:-1]:
        return None
    place = sys.argv.index(name)
    value = sys.argv[place + 1]
    del sys.argv[place:place + 2]
    return value


DONE = taken("--done")
LIMIT_S = float(taken("--limit-s") or "inf")
AT_ONCE = int(taken("--at-once") or 1)
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "guarded"
PARTS = sys.argv[3:]


def use_small_data(binary, folder):
    for model, options in stage_small(binary, folder, MODELS).items():
        MODELS[model][:0] = options
        if model == "gpt":
            SMALL_GPT[:0] = options


def gpus():
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60)
    return len(listed.stdout.splitlines())


# Two ranks that share a GPU exchange from device to device only by NCCL 2.30 and newer; else through the CPU's memory.
DIRECT = DEVICE != "cuda" or gpus() > 1


def train(binary, folder, name, mesh, *options):
    run(binary, ranks_of(mesh), *COMMON, *options, "--mesh", mesh, "--name", name, cwd=folder)
    with h5py.File(folder / "runs" / name / "results.h5") as file:
        assert file.attrs["status"] in ("completed", b"completed")
        if "--device" in options and options[options.index("--device") + 1] == DEVICE:
            recorded(file)
        return step_losses(file), file["epochs"]["validation_loss"][-1]


def recorded(file):
    """What the device did, and the most it held, on every rank."""
    for rank, tables in file["ranks"].items():
        assert (tables["epochs"]["device_peak_memory_bytes"] > 0).all(), rank
        told = [event["detail"].decode() for event in tables["events"][:] if event["kind"] == b"device_time"]
        seconds = re.fullmatch(r"epoch 1: forward ([\d.]+) s, backward ([\d.]+) s, optimizer ([\d.]+) s", told[0])
        assert seconds and all(float(value) > 0 for value in seconds.groups()), (rank, told)
        assert float(seconds[2]) <= tables["epochs"]["train_time_s"][0], (rank, told)


def gap(found, expected):
    return float(np.max(np.abs(np.asarray(found) - np.asarray(expected)) / np.abs(expected)))


def trains_as_on_the_cpu(binary, folder, model):
    """One rank on the CPU, one on the device, and several on it: the same losses, in training and after it."""
    options = ["--model", model, "--epochs", 1, "--micro-batches", 4, *MODELS[model]]
    expected, validated = train(binary, folder, f"{model}-cpu", "data=1", *options, "--device", "cpu")
    cases = [(mesh, "auto") for mesh in ["data=1", *MESHES.get(model, [])]]
    for mesh, backend in cases + [(mesh, "mpi") for mesh in THROUGH_THE_CPU.get(model, [])]:
        losses, validation = train(binary, folder, f"{model}-{mesh}-{backend}", mesh, *options, "--device", DEVICE,
                                   "--comm-backend", backend)
        assert gap(losses, expected) < ROUNDING, (model, mesh, backend, losses, expected)
        assert gap(validation, validated) < 10 * ROUNDING, (model, mesh, backend, validation, validated)
        print(f"{model} {mesh} {backend}: {gap(losses, expected):.1e}, validation {gap(validation, validated):.1e}", flush=True)


def told_of_graphs(folder, name):
    with h5py.File(folder / "runs" / name / "results.h5") as file:
        return [{event["detail"].decode() for event in tables["events"][:] if event["kind"] == b"graphs"}
                for tables in file["ranks"].values()]


def replays_what_it_computes(binary, folder):
    """Steps that are captured and replayed, of two sizes, with dropout, with sums over ranks that leave in between: the same
    losses as of steps whose operations are given to the device one by one."""
    cases = {"two sizes": ("data=1", ["--model", "mlp", "--micro-batches", 2, "--global-batch", 3000, "--epochs", 5]),
             "dropout": ("data=1", ["--model", "gpt", *SMALL_GPT, "--limit-steps", 8, "--recompute", "full"]),
             "clipped": ("data=1", ["--model", "vgg11", *MODELS["vgg11"][:-1], 8, "--grad-clip", 0.5]),
             "buckets": ("data=2", ["--model", "resnet18", *MODELS["resnet18"][:-1], 8, "--micro-batches", 4, "--bucket-mb", 0.01,
                                    "--learning-rate", 0.002])}  # a GPU's sums have their own order: 0.6 % of the loss in 8 steps with 0.1
    for name, (mesh, options) in cases.items():
        losses = {graphs: train(binary, folder, f"{name}-{graphs}", mesh, *options, "--device", DEVICE, "--device-graphs", graphs)[0]
                  for graphs in ("auto", "off")}
        for told in told_of_graphs(folder, f"{name}-auto"):
            assert told and all(re.fullmatch(r"a step of \d micro-batch(es)? is replayed in \d+ parts", line) for line in told), told
            assert name != "buckets" or max(int(line.split()[-2]) for line in told) > 4, told  # more than forward and backward
        assert not any(told_of_graphs(folder, f"{name}-off"))
        assert gap(losses["auto"], losses["off"]) <= (0 if DEVICE == "guarded" else ROUNDING), (name, losses)


def has_the_same_bits_on_every_mesh(binary, folder):
    """With --reproducible, whether ranks' devices reach each other or not."""
    for model, meshes in {"mlp": ["data=1", "data=2", "data=2,pipe=2"], "gpt": ["data=1", "pipe=2"],
                          "resnet18": ["data=1", "data=2"]}.items():
        options = ["--model", model, "--epochs", 1, *MODELS[model][:-1], 6, "--reproducible", "--grad-clip", 0.5, "--device", DEVICE]
        bits = {}
        for mesh, backend in [*((mesh, "auto") for mesh in meshes), (meshes[-1], "mpi")]:
            name = f"same-{model}-{mesh}-{backend}"
            train(binary, folder, name, mesh, *options, "--comm-backend", backend)
            bits[mesh, backend] = checkpoint_tensors(folder / f"runs/{name}/checkpoints/best", group=None)
        expected = bits.pop((meshes[0], "auto"))
        for how, found in bits.items():
            assert found.keys() == expected.keys() and any(name.startswith("model/") for name in found), how
            differ = [name for name in found if found[name].tobytes() != expected[name].tobytes()]
            assert not differ, (model, how, differ[:5])
        print(f"{model}: the same bits on {', '.join(meshes)}", flush=True)


def does_without_graphs(binary, folder):
    """And says why: where nothing can be captured, and where that shows only when it is tried."""
    said = run(binary, 1, "--model", "seq2seq", *MODELS["seq2seq"], "--threads", 1, "--device", DEVICE, "--name", "texts",
               cwd=folder).stdout
    assert "graphs     none: samples have different shapes" in said, said
    gpt = ["--model", "gpt", *SMALL_GPT, "--limit-steps", 8, "--precision", "fp64"]  # whose masks are made on the CPU
    losses = {graphs: train(binary, folder, f"fp64-{graphs}", "data=1", *gpt, "--device", DEVICE, "--device-graphs", graphs)[0]
              for graphs in ("auto", "off")}
    (told,) = told_of_graphs(folder, "fp64-auto")
    assert told == {line for line in told if line.startswith("not captured: ")} and len(told) == 1, told
    assert gap(losses["auto"], losses["off"]) <= (0 if DEVICE == "guarded" else ROUNDING), losses


UPDATE_REPLAYED = "the update is replayed in 1 part"


def assert_same_state(folder, *names):
    """The last checkpoints of two runs are the same to the bit: weights, statistics and the optimizer's state."""
    one, other = (checkpoint_tensors(newest(folder / f"runs/{name}/checkpoints"), group=None) for name in names)
    assert one.keys() == other.keys() and any(name.startswith("optimizer/") for name in one), (names, one.keys() ^ other.keys())
    differ = [name for name in one if one[name].tobytes() != other[name].tobytes()]
    assert not differ or DEVICE != "guarded", (names, differ[:5])  # a GPU's sums have their own order


def newest(checkpoints):
    return max(checkpoints.glob("step-*"), key=lambda folder: int(folder.name.split("-")[1]))


def joins_operations(binary, folder):
    """With --kernels fused: the losses of operations one by one, replayed or not, cut or not, and the same bits with updates that
    are replayed; a checkpoint has the vocabulary without what pads it in memory, and the run goes on from it. On the CPU also with
    weights copied in bf16."""
    options = ["--model", "gpt", *SMALL_GPT, "--micro-batches", 4, "--epochs", 1, "--schedule", "constant", "--warmup-steps", 0]
    fused = [*options, "--kernels", "fused", "--limit-steps", 6]
    expected, _ = train(binary, folder, "one-by-one", "data=1", *options, "--limit-steps", 9, "--device", "cpu")
    for name, mesh, graphs in ("replayed", "data=1", "auto"), ("copies", "data=2", "auto"), ("tensor", "tensor=2", "auto"), ("pipe", "pipe=2", "off"):
        losses, _ = train(binary, folder, name, mesh, *fused, "--device", DEVICE, "--device-graphs", graphs)
        assert gap(losses, expected[:6]) < ROUNDING, (name, losses, expected)
    (told,) = told_of_graphs(folder, "replayed")
    assert UPDATE_REPLAYED in told and all("is replayed in" in line for line in told), told
    train(binary, folder, "given", "data=1", *fused, "--device", DEVICE, "--device-graphs", "off")
    assert_same_state(folder, "replayed", "given")
    saved, plain = (checkpoint_tensors(folder / f"runs/{name}/checkpoints/best", group=None) for name in ("replayed", "one-by-one"))
    assert {name: value.shape for name, value in saved.items()} == {name: value.shape for name, value in plain.items()}
    residuals = ["--model", "resnet18", "--epochs", 1, "--micro-batches", 2, *MODELS["resnet18"][:-1], 6]
    norms, validated = train(binary, folder, "norms", "data=1", *residuals, "--device", "cpu")
    for mesh, graphs in ("data=1", "auto"), ("data=2", "auto"), ("data=2", "off"):
        found = train(binary, folder, f"norms-{mesh}-{graphs}", mesh, *residuals, "--device", DEVICE, "--kernels", "fused", "--device-graphs", graphs)
        assert gap(found[0], norms) < ROUNDING and gap(found[1], validated) < 10 * ROUNDING, (mesh, found, norms, validated)
    assert all(UPDATE_REPLAYED in told for told in told_of_graphs(folder, "norms-data=2-auto"))
    assert_same_state(folder, "norms-data=2-auto", "norms-data=2-off")
    rest, _ = train(binary, folder, "rest", "data=1", *fused[:-1], 9, "--device", DEVICE, "--resume", "runs/replayed/checkpoints/best")
    assert gap(rest, expected[6:]) < ROUNDING, (rest, expected)
    for mesh, *more in ("data=1", "--checkpoint-every", "2steps"), ("data=2",), ("tensor=2",), ("data=2", "--strategy", "zero3"):
        losses, _ = train(binary, folder, f"bf16-{mesh}-{len(more)}", mesh, *fused, *more, "--device", "cpu", "--precision", "bf16")
        assert gap(losses, expected[:6]) < HALF_ROUNDING, (mesh, more, losses, expected)


def trains_networks_of_the_users(binary, folder):
    """Exported from PyTorch: the CPU's losses, also with --kernels fused."""
    import device_networks  # needs PyTorch

    for name in device_networks.NETWORKS:
        device_networks.export(name, folder / f"{name}.pt2")
        options = ["--model", f"{name}.pt2", "--dataset", "synthetic", "--epochs", 1, "--limit-steps", 6, "--global-batch", 64, "--micro-batches", 2]
        expected, validated = train(binary, folder, f"{name}-cpu", "data=1", *options, "--device", "cpu")
        for mesh, kernels in ("data=1", "auto"), ("data=1", "fused"), ("data=2", "fused"):
            losses, validation = train(binary, folder, f"{name}-{mesh}-{kernels}", mesh, *options, "--device", DEVICE, "--kernels", kernels)
            assert gap(losses, expected) < ROUNDING, (name, mesh, kernels, losses, expected)
            assert gap(validation, validated) < 10 * ROUNDING, (name, mesh, kernels, validation, validated)


def waits_of(binary, folder, options, steps):
    """Of each rank, in a run of so many steps: how often it waited for its device."""
    file = folder / f"waits-{steps}"
    file.unlink(missing_ok=True)
    counted = binary.parents[1] / "tests/support/counted_waits.so"  # the guarded device counts by itself
    how = {"DTRAIN_DEVICE_WAITS": str(file), **({"LD_PRELOAD": str(counted)} if DEVICE == "cuda" else {})}
    os.environ.update(how)
    try:
        run(binary, *options, "--limit-steps", steps, cwd=folder)
    finally:
        for name in how:
            del os.environ[name]
    return sorted(int(line) for line in file.read_text().split())


def waits_for_the_device(binary, folder):
    """How often in a step: for its losses and the gradient's norm together, before it is decided whether to update.
    Where the device decides, only for an event
    of the step before, which the guarded device does not count: it has none that is still to come."""
    late = 0 if DEVICE == "guarded" else 1
    cases = [(1, "data=1", ["mlp", "--micro-batches", 4]), (1, "data=2", ["mlp"]), (1, "data=2", ["mlp", "--device-graphs", "off"]),
             (1, "data=1", ["gpt", *SMALL_GPT]), (late, "data=1", ["gpt", *SMALL_GPT, "--kernels", "fused"]), (1, "data=1", ["resnet18", *MODELS["resnet18"][:-2]]),
             (1, "data=2", ["resnet18", *MODELS["resnet18"][:-2]]),
             (late, "data=2", ["resnet18", *MODELS["resnet18"][:-2], "--kernels", "fused"])]
    if not DIRECT:
        cases = [case for case in cases if case[1] == "data=1"]
        print("waits of two ranks: not counted, as they share a GPU", flush=True)
    for expected, mesh, model in cases:
        options = [ranks_of(mesh), "--threads", 1, "--quiet", "--epochs", 1, "--mesh", mesh, "--device", DEVICE, "--name", "waits",
                   "--overwrite", "--model", *model]
        early, late = (waits_of(binary, folder, options, steps) for steps in (6, 12))
        per_step = [(after - before) / 6 for before, after in zip(early, late, strict=True)]
        assert per_step == [expected] * ranks_of(mesh), (model, mesh, early, late)


def in_half_precision(binary, folder):
    """On a GPU and on the CPU the same weights and sums in full, and products in bf16, whose roundings fall differently."""
    for model in ("mlp", "resnet18", "gpt"):
        options = ["--model", model, "--epochs", 1, *MODELS[model], "--precision", "bf16"]
        expected, _ = train(binary, folder, f"{model}-bf16-cpu", "data=1", *options, "--device", "cpu")
        losses, _ = train(binary, folder, f"{model}-bf16", "data=1", *options, "--device", DEVICE)
        assert gap(losses, expected) < HALF_ROUNDING, (model, losses, expected)
        print(f"{model} bf16: {gap(losses, expected):.1e}", flush=True)


def goes_on_from_a_checkpoint(binary, folder):
    """Saved from the device and read into it: the run goes on as if it had not stopped, also on the CPU."""
    mesh = "data=2"
    options = ["--model", "mlp", "--epochs", 1, "--optimizer", "sgd", "--momentum", 0.9]
    whole, _ = train(binary, folder, "whole", mesh, *options, "--limit-steps", 12, "--device", DEVICE)
    train(binary, folder, "part", mesh, *options, "--limit-steps", 6, "--device", DEVICE)
    for device in (DEVICE, "cpu"):
        rest, _ = train(binary, folder, f"rest-{device}", mesh, *options, "--limit-steps", 12, "--device", device, "--resume",
                        "runs/part/checkpoints/best")
        assert gap(rest, whole[6:]) < ROUNDING, (device, rest, whole)
    saved = checkpoint_tensors(folder / "runs/part/checkpoints/best", group=None)
    assert any(name.startswith("optimizer/momentum_buffer/") for name in saved)


def keeps_state_on_the_host(binary, folder):
    """The optimizer's state comes for each update and goes back: the same bits as of state that stays, less memory, and checkpoints
    that either reads."""
    peaks = {}
    for name, options in (("adam", ["--optimizer", "adamw", "--weight-decay", 0.01]), ("sgd", ["--optimizer", "sgd", "--momentum", 0.9])):
        options = ["--model", "mlp", "--epochs", 1, "--model-option", "hidden=512", "--device", DEVICE, *options]
        there, _ = train(binary, folder, f"{name}-there", "data=2", *options, "--limit-steps", 8)
        here, _ = train(binary, folder, f"{name}-here", "data=2", *options, "--limit-steps", 8, "--offload", "optimizer")
        np.testing.assert_array_equal(here, there)
        for place in ("here", "there"):
            with h5py.File(folder / f"runs/{name}-{place}/results.h5") as file:
                peaks[name, place] = int(file["ranks/00000/epochs"]["device_peak_memory_bytes"][-1])
        saved = [checkpoint_tensors(folder / f"runs/{name}-{place}/checkpoints/best", group=None) for place in ("here", "there")]
        assert saved[0].keys() == saved[1].keys() and any(key.startswith("optimizer/") for key in saved[0])
        assert all(np.array_equal(saved[0][key], saved[1][key]) for key in saved[0])
        for goes_on, place in (([], "here"), (["--offload", "optimizer"], "there")):
            train(binary, folder, f"{name}-{place}-on", "data=2", *options, "--limit-steps", 12, *goes_on, "--resume", f"runs/{name}-{place}/checkpoints/best")
        ends = [checkpoint_tensors(folder / f"runs/{name}-{place}-on/checkpoints/best", group=None) for place in ("here", "there")]
        assert all(np.array_equal(ends[0][key], ends[1][key]) for key in ends[0])
    print("peaks of the device's memory:", peaks, flush=True)
    assert peaks["adam", "here"] < peaks["adam", "there"], peaks
    refused(binary, 1, 2, ["--offload optimizer", "the CPU computes", "zero1"], "--model", "mlp", "--device", "cpu", "--offload", "optimizer", cwd=folder)
    for options, words in ((["--optimizer", "sgd", "--momentum", 0], "no state"), (["--strategy", "zero1"], "--strategy ddp"), (["--optimizer-state-bits", 8], "8")):
        refused(binary, 1, 2, ["--offload", words] if words != "8" else ["8 bits"], "--model", "mlp", "--device", DEVICE, "--offload", "optimizer", *options, cwd=folder)


def measures_layers_there(binary, folder):
    """With --balance dynamic, before the stages are cut."""
    options = ["--model", "mlp", "--epochs", 1, "--limit-steps", 4, "--balance", "dynamic"]
    expected, _ = train(binary, folder, "balanced-cpu", "data=1", *options[:-2], "--device", "cpu")
    losses, _ = train(binary, folder, "balanced", "pipe=2", *options, "--device", DEVICE)
    assert gap(losses, expected) < ROUNDING, (losses, expected)


def says_how_messages_go(binary, folder):
    """And shows in the trace what the device did, and the copies to it."""
    by_device = "nccl" if DEVICE == "cuda" else "guarded devices"
    by_memory = "mpi, through the CPU's memory"
    for backend, words in ("auto", [by_device] if DIRECT else [by_device, by_memory]), ("mpi", [by_memory]):
        said = run(binary, 2, "--model", "mlp", "--limit-steps", 2, "--threads", 1, "--device", DEVICE, "--comm-backend", backend,
                   "--trace", "--name", f"trace-{backend}", cwd=folder).stdout
        assert any(word in said for word in words) and f"device     {DEVICE}" in said, said
        assert "fp32 in all its bits; with --tf32" in said, said
        with h5py.File(folder / f"runs/trace-{backend}/results.h5") as file:
            assert file.attrs["tf32"] in ("off", b"off")
    spans = json.loads((folder / "runs/trace-auto/trace.json").read_text())["traceEvents"]
    spans = [span for span in spans if span["ph"] == "X"]
    assert {"forward", "backward", "optimizer"} <= {span["cat"] for span in spans if span["tid"] == 3}
    assert [span for span in spans if span["tid"] == 2 and span["name"] == "copy"]


def measures_between_devices(binary, folder):
    run(binary, 2, "topology", "--benchmark", "--device", DEVICE, "--sizes", "4KiB", cwd=folder)
    with h5py.File(folder / "topology.h5") as file:
        found = {(row["group"].decode(), row["operation"].decode()) for row in file["measurements"][:] if row["median_s"] > 0}
    on_device = {operation for group, operation in found if group.startswith("data on ")}
    if not DIRECT and not on_device:
        print("collectives between devices: not measured, as two ranks share a GPU", flush=True)
        return
    assert on_device == {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"}, found


def evaluates(binary, folder):
    train(binary, folder, "trained", "data=1", "--model", "mlp", "--epochs", 1, "--limit-steps", 2, "--device", DEVICE, "--tf32")
    with h5py.File(folder / "runs/trained/results.h5") as file:
        assert file.attrs["tf32"] in ("on", b"on")
    out = run(binary, 2, "evaluate", "runs/trained/checkpoints/best", "--device", DEVICE, "--threads", 1,
              "--predictions", "predictions.h5", cwd=folder).stdout
    assert "loss" in out, out
    with h5py.File(folder / "predictions.h5") as file:
        assert np.isfinite(file["outputs"][:]).all()


def refuses(binary, folder):
    """What only the guarded device can be made to do."""
    mlp = ["--model", "mlp", "--device", "guarded"]
    refused(binary, 1, 2, ["half precision", "guarded", "fp32"], *mlp, "--precision", "bf16", cwd=folder)
    refused(binary, 1, 2, ["there is no device tpu", "cuda"], "--model", "mlp", "--device", "tpu", cwd=folder)
    os.environ["DTRAIN_GUARDED_BYTES"] = "1000000"
    refused(binary, 2, 1, ["out of memory", "Tried to allocate", "--recompute full"], *mlp, "--name", "small", cwd=folder)
    del os.environ["DTRAIN_GUARDED_BYTES"]


def main(binary):
    parts = [replays_what_it_computes, joins_operations, trains_networks_of_the_users, does_without_graphs, has_the_same_bits_on_every_mesh, goes_on_from_a_checkpoint, keeps_state_on_the_host,
             measures_layers_there, says_how_messages_go, measures_between_devices, evaluates, waits_for_the_device,
             refuses if DEVICE == "guarded" else in_half_precision]
    named = {f"trains_as_on_the_cpu:{model}": partial(trains_as_on_the_cpu, model=model) for model in MODELS}
    named |= {part.__name__: part for part in parts}
    wanted = PARTS or drawn(named, share=1 / 3)
    unknown = [name for name in wanted if name not in named]
    if unknown:
        sys.exit(f"device_memory.py: there is no part {', '.join(unknown)}; there are {', '.join(named)}")
    done = Path(DONE).read_text().splitlines() if DONE and Path(DONE).exists() else []
    wanted = [name for name in wanted if name not in done]
    with tempfile.TemporaryDirectory() as data:
        if wanted and LIMIT_S >= 0:
            use_small_data(binary, Path(data))
        sys.exit(go_through({name: partial(named[name], binary) for name in wanted}))


def in_a_folder(part):
    """In a process of its own, as parts set variables of the environment."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        part(Path(folder))
    return time.monotonic() - begin


def go_through(parts):
    """Runs them by name, AT_ONCE beside each other. The exit code: 1 where one failed, 3 where the time was up before the last."""
    last_start = time.monotonic() + LIMIT_S
    waiting, running, failed = list(parts), {}, []
    with concurrent.futures.ProcessPoolExecutor(AT_ONCE) as pool:
        while running or (waiting and time.monotonic() < last_start):
            while waiting and len(running) < AT_ONCE and time.monotonic() < last_start:
                name = waiting.pop(0)
                running[pool.submit(in_a_folder, parts[name])] = name
            for ended in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                name = running.pop(ended)
                if ended.exception():
                    failed.append(name)
                    print(f"{name} FAILED:", *traceback.format_exception(ended.exception()), flush=True)
                    continue
                print(f"{name}: passed in {ended.result():.0f} s", flush=True)
                if DONE:
                    with open(DONE, "a", encoding="utf-8") as file:
                        file.write(name + "\n")
    if failed:
        print("FAILED:", *failed)
    if waiting:
        print(f"the time is up before {waiting[0]}: run it again to go on")
    return 1 if failed else 3 if waiting else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
