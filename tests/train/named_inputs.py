"""A program with several inputs takes them by name from a staged dataset, on every mesh, as PyTorch does; what does not fit is
refused in one sentence.

    named_inputs.py BINARY
"""

import json
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))
from array_files import write_arrays  # noqa: E402
from dtrain_run import ranks_of, refused, run, step_losses  # noqa: E402
from export_model import export_model  # noqa: E402

SAMPLES, CLASSES, WORDS = 60, 3, 9


class Joint(nn.Module):
    def __init__(self, words=WORDS):
        super().__init__()
        torch.manual_seed(4)
        self.conv = nn.Conv2d(2, 3, 3)
        self.embedding = nn.Embedding(words, 5)
        self.out = nn.Linear(3 * 16 + 5 + 4, CLASSES)

    def forward(self, words, picture, extra):  # [N, T] ids, [N, 2, 6, 6], [N, 4]
        seen = torch.relu(self.conv(picture)).flatten(1)
        return self.out(torch.cat([seen, self.embedding(words).mean(1), extra], 1))


class JointLoss(Joint):
    def forward(self, words, picture, extra, target):
        return nn.functional.cross_entropy(super().forward(words, picture, extra), target)


def example():
    generator = torch.Generator().manual_seed(5)
    return (torch.randint(WORDS, (4, 7), generator=generator), torch.rand(4, 2, 6, 6, generator=generator),
            torch.randn(4, 4, generator=generator))


def arrays():
    rng = np.random.default_rng(1)
    return {"p": rng.integers(0, 256, (SAMPLES, 2, 6, 6), np.uint8), "w": rng.integers(0, WORDS, (SAMPLES, 7)),
            "e": rng.standard_normal((SAMPLES, 4)).astype(np.float32), "y": np.arange(SAMPLES) % CLASSES,
            "one_real": rng.random((SAMPLES, 7), np.float32), "large": np.full((SAMPLES, 7), WORDS),
            "unscaled": rng.integers(0, 256, (SAMPLES, 2, 6, 6)).astype(np.float32), "negative": rng.integers(-2, 3, (SAMPLES, 7)), "short": np.zeros((SAMPLES - 1, 2), np.float32)}


def staged(folder, name):
    """The training split's inputs by name and its targets, taken apart as dataset.json says."""
    facts = json.loads((folder / "data/staged" / name / "dataset.json").read_text())
    (shard,) = facts["splits"]["train"]["shards"]
    with h5py.File(folder / "data/staged" / name / shard["file"]) as file:
        rows, targets = file["inputs"][:], file["targets"][:]
    inputs, begin = {}, 0
    for entry in facts["inputs"]:
        count = int(np.prod(entry["shape"]))
        inputs[entry["name"]] = rows[:, begin:begin + count].reshape(-1, *entry["shape"])
        begin += count
    assert begin == rows.shape[1]
    return inputs, targets


def stages_all_kinds(binary, folder, values):
    for name, source, suffix, prefix in (("joint", "set.h5", "", "/"), ("zipped", "set.npz", "", ""), ("files", "npy", ".npy", "")):
        named = ",".join(f"{key}={prefix}{array}{suffix}" for key, array in (("picture", "p"), ("words", "w"), ("extra", "e")))
        run(binary, 1, "stage", name, "--from", source, "--inputs", named, "--targets", f"{prefix}y{suffix}", cwd=folder)
    inputs, targets = staged(folder, "joint")
    # The split has moved the rows: `extra` tells which one each was.
    origin = [int(np.flatnonzero((values["e"] == row).all(1))[0]) for row in inputs["extra"]]
    assert len(set(origin)) == len(origin) > SAMPLES / 2
    assert np.array_equal(inputs["words"], values["w"][origin]) and np.array_equal(targets, values["y"][origin])
    assert np.array_equal(inputs["picture"], values["p"][origin].astype(np.float32) / np.float32(255))
    for other in ("zipped", "files"):
        theirs, _ = staged(folder, other)
        assert all(np.array_equal(theirs[key], value) for key, value in inputs.items()), other


def trains(binary, folder):
    export_model(Joint(), example(), folder / "joint.pt2")
    export_model(JointLoss(), (*example(), torch.tensor([0, 1, 2, 0])), folder / "joint_loss.pt2", loss="model")
    inputs, targets = staged(folder, "joint")
    module = Joint().double()
    expected = nn.functional.cross_entropy(module(torch.from_numpy(inputs["words"]).long(), torch.from_numpy(inputs["picture"]).double(),
                                                  torch.from_numpy(inputs["extra"]).double()), torch.from_numpy(targets)).item()
    common = ("--dataset", "joint", "--global-batch", len(targets), "--micro-batches", 4, "--limit-steps", 3, "--epochs", 3,
              "--precision", "fp64", "--threads", 1, "--quiet", "--optimizer", "sgd", "--learning-rate", 0.1)
    found = {}
    for name, mesh, program, *options in (("one", "data=1", "joint"), ("data", "data=2", "joint"), ("pipe", "pipe=2", "joint"),
                                          ("again", "data=1", "joint", "--recompute", "full"),
                                          ("own", "pipe=2", "joint_loss", "--loss", "model")):
        run(binary, ranks_of(mesh), "--model", f"{program}.pt2", "--mesh", mesh, "--name", name, *common, *options, cwd=folder)
        with h5py.File(folder / "runs" / name / "results.h5") as results:
            found[name] = step_losses(results)
        assert np.allclose(found[name], found["one"], rtol=1e-12), (name, found)
    assert abs(found["one"][0] - expected) < 1e-12, (found, expected)
    assert "accuracy" in run(binary, 2, "evaluate", "runs/one/checkpoints/last", cwd=folder).stdout


class Alone(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, CLASSES)

    def forward(self, extra):
        return self.out(extra)


def says_what_it_does_not_take(binary, folder):
    export_model(Alone(), torch.randn(4, 4), folder / "alone.pt2")
    done = run(binary, 1, "--model", "alone.pt2", "--dataset", "joint", "--dry-run", cwd=folder)
    assert "does not take the dataset's inputs picture, words" in done.stdout + done.stderr, done
    done = run(binary, 1, "--model", "joint.pt2", "--dataset", "joint", "--dry-run", cwd=folder)
    assert "does not take" not in done.stdout + done.stderr, done


def predicts(binary, folder, values):
    """New samples by name, from each kind of file: what the weights say in PyTorch."""
    run(binary, 1, "export", "runs/one/checkpoints/last", "weights.h5", cwd=folder)
    module = Joint().double()
    with h5py.File(folder / "weights.h5") as file:
        module.load_state_dict({name: torch.from_numpy(np.asarray(value[()])) for name, value in file["model"].items()}, strict=True)
    with torch.no_grad():
        expected = module(torch.from_numpy(values["w"]), torch.from_numpy(values["p"]).double() / 255, torch.from_numpy(values["e"]).double())
    np.savez(folder / "named.npz", words=values["w"], picture=values["p"], extra=values["e"])
    odd = values["e"].astype(np.float32)
    odd[3, ...] = np.nan
    np.savez(folder / "odd.npz", words=values["w"], picture=values["p"], extra=odd)
    by_name = "words=/w,picture=/p,extra=/e"
    for source, *options in (("set.h5", "--inputs", by_name), ("named.npz",), ("npy", "--inputs", "words=w.npy,picture=p.npy,extra=e.npy")):
        run(binary, 2, "predict", "runs/one/checkpoints/last", "--from", source, "--output", "said.h5", *options, cwd=folder)
        with h5py.File(folder / "said.h5") as file:
            assert np.allclose(file["outputs"][:], expected.numpy(), rtol=1e-5, atol=1e-6), source
    for source, code, words, *options in (
            ("set.h5", 2, ["leaves out the input extra"], "--inputs", "words=/w,picture=/p"),
            ("set.h5", 2, ["an input sound", "words"], "--inputs", by_name + ",sound=/e"),
            ("set.h5", 2, ["names one array"], "--inputs", "/w"),
            ("set.h5", 3, ["/w", "[n, 7]", "[n, 4]"], "--inputs", "words=/w,picture=/p,extra=/w"),
            ("set.h5", 3, ["/one_real", "real numbers"], "--inputs", "words=/one_real,picture=/p,extra=/e"),
            ("set.h5", 3, ["/large", f"id {WORDS}", f"below {WORDS}"], "--inputs", "words=/large,picture=/p,extra=/e"),
            ("set.h5", 3, ["/unscaled", "numbers up to 255", "divided by 255"], "--inputs", "words=/w,picture=/unscaled,extra=/e"),
            ("set.h5", 3, ["/short", "59 samples"], "--inputs", "words=/w,picture=/p,extra=/short"),
            ("odd.npz", 3, ["odd.npz", "has nan as the input of sample 3"]),
            ("set.npz", 3, ["no array picture"]), ("npy", 3, ["picture.npy"])):
        refused(binary, 1, code, words, "predict", "runs/one/checkpoints/last", "--from", source, "--output", "said.h5", *options, cwd=folder)


def refuses(binary, folder):
    def stage(code, words, named, source="set.h5"):
        refused(binary, 1, code, words, "stage", "wrong", "--from", source, "--inputs", named, "--targets", "/y", cwd=folder)

    stage(2, ["\"/e\", which is no pair", "NAME=ARRAY"], "a=/p,/e")
    stage(2, ["no pair"], "a=")
    stage(2, ["names the input a twice"], "a=/p,a=/e")
    stage(3, ["/missing"], "a=/p,b=/missing")
    stage(3, ["id -", "sample", "/negative"], "a=/p,b=/negative")
    stage(3, ["/short", "59 samples", "60"], "a=/p,b=/short")
    refused(binary, 1, 3, ["no array q", "e, "], "stage", "wrong", "--from", "set.npz", "--inputs", "a=p,b=q", "--targets", "y", cwd=folder)
    for name, inputs, code, words in (("lacks", "picture=/p,words=/w", 2, ["takes an input extra", "has picture, words"]),
                                      ("turned", "picture=/p,words=/w,extra=/w", 2, ["input extra", "[2, 7]"]),
                                      ("numbers", "picture=/p,words=/e,extra=/e", 2, ["input words", "[2, 4]"])):
        run(binary, 1, "stage", name, "--from", "set.h5", "--inputs", inputs, "--targets", "/y", cwd=folder)
        refused(binary, 2, code, ["joint.pt2", *words], "--model", "joint.pt2", "--dataset", name, cwd=folder)
    export_model(Joint(words=WORDS - 1), tuple(value % (WORDS - 1) if value.dtype == torch.int64 else value for value in example()),
                 folder / "few.pt2", golden=False)
    refused(binary, 1, 2, [f"has {WORDS - 1} rows for the ids of its input words", f"below {WORDS}"], "--model", "few.pt2", "--dataset",
            "joint", cwd=folder)
    shard = next((folder / "data/staged/lacks").glob("train-*.h5"))
    kept = shard.read_bytes()
    for odd in (1.5, -1.0, 1e6, np.float32(WORDS)):
        with h5py.File(shard, "r+") as file:
            file["inputs"][3, 2 * 6 * 6 + 1] = odd  # behind the picture
        refused(binary, 1, 3, ["train-", f"has {odd:.8g} in the input words of sample 3", "0 to"], "--dataset", "lacks", cwd=folder)
        shard.write_bytes(kept)
    facts = folder / "data/staged/lacks/dataset.json"
    whole = json.loads(facts.read_text())
    for key, value in (("shape", [5]), ("shape", [0, 7]), ("shape", [2 ** 62]), ("ids", -1), ("ids", "many")):
        broken = json.loads(json.dumps(whole))
        broken["inputs"][1][key] = value
        facts.write_text(json.dumps(broken))
        refused(binary, 1, 3, ["dataset.json", "input"], "--dataset", "lacks", cwd=folder)


def main():
    binary = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        values = arrays()
        write_arrays(folder, values)
        stages_all_kinds(binary, folder, values)
        trains(binary, folder)
        says_what_it_does_not_take(binary, folder)
        predicts(binary, folder, values)
        refuses(binary, folder)


if __name__ == "__main__":
    main()
