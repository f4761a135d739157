"""The weights at the end of a run have the bits that an earlier version of the program gave them.

Each case trains a few steps and hashes all tensors of the last checkpoint: weights, buffers and the optimizer's state.
Cases with --reproducible are of all models on meshes with data, pipe and tensor axes. One hash serves all meshes over
data and pipe, another one all meshes with tensor=2: --reproducible promises that their bits are the same. Cases of the
fast mode run on two ranks, whose sums have one order, and cover what --reproducible leaves out: buckets, updates by
rows, mixed precision.

same_bits.json has an entry for each machine on which hashes were made: its processor, its LibTorch and the hashes. The
bits of a matrix product depend on both. On any other machine the test compares the meshes with one another only, and ends
with 77: skipped.

    same_bits.py BINARY [--full] [--write]     --write puts what BINARY computes into this machine's entry
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from dtrain_run import checkpoint_tensors, ranks_of, run

STORED = Path(__file__).with_name("same_bits.json")
STEPS = 6
COMMON = ["--limit-steps", STEPS, "--epochs", 2, "--threads", 1, "--quiet", "--grad-clip", 0.5, "--micro-batches", 8]
MODELS = {  # what keeps a model to a second
    "mlp": ["--global-batch", 1700],  # of 8192 samples: step 5 is a small one, step 6 begins the second epoch
    "cnn": ["--global-batch", 100],
    "vgg11": ["--global-batch", 24, "--model-option", "width=4", "--model-option", "hidden=32"],
    "resnet18": ["--global-batch", 24, "--model-option", "width=4"],
    "nbow": ["--global-batch", 100],
    "seq2seq": ["--global-batch", 50, "--model-option", "embedding=16", "--model-option", "hidden=24"],
    "conv_autoencoder": ["--global-batch", 40],
    "gpt": ["--global-batch", 20, "--model-option", "layers=2", "--model-option", "heads=2", "--model-option", "width=16"],
}
MESHES = ["data=2", "pipe=2", "tensor=2", "data=2,pipe=2", "data=2,tensor=2"]
# Without --full: each model over the data axis and on another mesh, each mesh at least once.
SAMPLE = {"mlp": ["data=2", "tensor=2", "data=2,tensor=2"], "cnn": ["data=2", "pipe=2"], "vgg11": ["pipe=2"],
          "resnet18": ["data=2"], "nbow": ["data=2", "pipe=2"], "seq2seq": ["pipe=2"], "conv_autoencoder": ["tensor=2"],
          "gpt": ["data=2", "tensor=2", "data=2,pipe=2"]}
FAST = {  # name: model, mesh, more options; the first ones run without --full
    "nbow by rows": ("nbow", "data=2", ["--global-batch", 12]),
    "gpt in fp16": ("gpt", "data=2", ["--precision", "fp16"]),
    "gpt on a pipeline": ("gpt", "pipe=2", ["--recompute", "full"]),
    "resnet18 in bf16": ("resnet18", "data=2", ["--precision", "bf16"]),
    "mlp in fp64": ("mlp", "data=2", ["--precision", "fp64", "--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.1]),
    "cnn with sgd": ("cnn", "data=2", []),
    "vgg11 on slices": ("vgg11", "tensor=2", []),
    "seq2seq": ("seq2seq", "data=2", []),
}
FAST_SAMPLE = 3


def family_of(mesh):
    """Meshes whose bits are the same."""
    return "tensor=2" if "tensor=2" in mesh else "data and pipe"


def processor():
    """What the bits of a matrix product depend on: the libraries choose their kernels by it."""
    facts = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = " ".join(sorted(flag for flag in facts.get("flags", "").split() if flag.startswith(("avx", "amx", "fma", "sse"))))
    return f"{facts.get('vendor_id')} family {facts.get('cpu family')} model {facts.get('model')}: {flags}"


def hash_of(binary, folder, name, model, mesh, options):
    """The SHA-256 of the last checkpoint's tensors, in the order of their names; and what the run says of its bits."""
    name = name.replace(" ", "-").replace(",", "-")
    done = run(binary, ranks_of(mesh), "--model", model, *COMMON, *MODELS[model], *options, "--mesh", mesh, "--name", name,
               cwd=folder)
    tensors = checkpoint_tensors(folder / "runs" / name / "checkpoints" / f"step-{STEPS:08}", group=None)
    assert any(key.startswith("model/") for key in tensors) and any(key.startswith("optimizer/") for key in tensors), tensors.keys()
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(key.encode())
        digest.update(str(tensors[key].dtype).encode())
        digest.update(tensors[key].tobytes())
    return digest.hexdigest(), done.stdout


def libtorch_of(binary, folder):
    """As the program names it: instruction set and version."""
    said = run(binary, 1, "--model", "mlp", "--limit-steps", 1, "--reproducible", "--name", "version", cwd=folder).stdout
    line = next(line for line in said.splitlines() if line.startswith("bits "))
    return ", ".join(line.split(", ")[-2:])


def cases(full):
    """(key of the stored hash, name, model, mesh, options)"""
    for model, meshes in SAMPLE.items():
        for mesh in MESHES if full else meshes:
            yield f"{model}, {family_of(mesh)}", f"{model} {mesh}", model, mesh, ["--reproducible"]
    for name, (model, mesh, options) in list(FAST.items())[:None if full else FAST_SAMPLE]:
        yield f"fast: {name}", name, model, mesh, options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    entries = json.loads(STORED.read_text())
    found, wrong = {}, []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        here = {"processor": processor(), "libtorch": libtorch_of(arguments.binary, folder)}
        stored = next((entry["hashes"] for entry in entries if entry["made_with"] == here), None)
        comparable = stored is not None and not arguments.write
        expected = dict(stored) if comparable else {}
        chosen = list(cases(arguments.full or arguments.write))
        if not comparable and not arguments.write:  # a run beside which no other has the same bits would be compared with itself
            meshes_of = Counter(key for key, *_ in chosen)
            chosen = [case for case in chosen if meshes_of[case[0]] > 1]
        for key, name, model, mesh, options in chosen:
            found[key], _ = hash_of(arguments.binary, folder, name, model, mesh, options)
            same = found[key] == expected.setdefault(key, found[key])
            print(f"{name}: {found[key][:16]}{'' if same else f', not {expected[key][:16]}'}", flush=True)
            if not same:
                wrong.append(name)
        if comparable:
            unknown = sorted(found.keys() - stored.keys())
            assert not unknown, f"{STORED.name} lacks {unknown}; make it with a program whose bits are right: --write"
    if wrong:
        sys.exit(f"not the bits of the earlier program, or not those of another mesh: {', '.join(wrong)}")
    if arguments.write:
        others = [entry for entry in entries if entry["made_with"] != here]
        STORED.write_text(json.dumps([*others, {"made_with": here, "hashes": found}], indent=1) + "\n")
    elif not comparable:
        print(f"skipped: the {len(chosen)} runs agree with one another, but {STORED.name} has no hashes made with {here}; "
              "a program whose bits are right makes them: --write")
        sys.exit(77)


if __name__ == "__main__":
    main()
