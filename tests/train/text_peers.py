"""The peers of perf/ that read text are the networks that dtrain trains: they load what `dtrain export` writes with strict
names and, reading the same files, give the same validation loss, in both of their styles."""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

from dtrain_run import run

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "perf" / "peers"), str(TOP / "perf" / "training")]
import random_text  # noqa: E402
import text_networks  # noqa: E402
from staged_text import Text  # noqa: E402

TOLERANCE = 1e-5
SAMPLES = {"nbow": 4, "seq2seq": 4, "gpt": 1}
# What the models come to with the words of perf/training/random_text.py: Multi30k's, IMDB's and tinyshakespeare's numbers.
PARAMETERS = {"nbow": 7_500_602, "seq2seq": 13_898_501, "gpt": 10_770_816}


def of_validation(folder):
    """A copy of a staged dataset whose training samples are the other's validation samples, as the peers read no others."""
    copy = folder.with_name(f"{folder.name}-validation")
    shutil.copytree(folder, copy)
    facts = json.loads((copy / "dataset.json").read_text())
    facts["splits"]["train"] = facts["splits"]["validation"]
    (copy / "dataset.json").write_text(json.dumps(facts))
    return copy


def mean_loss(model, network, text):
    """Over samples or target words. One sample at a time: the peers' encoder would read padding, which dtrain's does not."""
    total, weight = 0.0, 0
    for row in range(len(text)):
        batch = text.batch(torch.tensor([row]))
        words = (batch[1][1:] != 0).sum().item() if model == "seq2seq" else 1  # classes, or as many letters in each block
        total, weight = total + words * text_networks.loss_of(model, network, batch).item(), weight + words
    return total / weight


def check(binary, folder, model):
    random_text.stage(folder / "text", model, SAMPLES[model])
    dropout = [] if model == "nbow" else ["--model-option", "dropout=0"]
    run(binary, 1, "--model", model, *dropout, "--dataset", folder / "text", "--name", model, "--precision", "fp64",
        "--limit-steps", 1, "--learning-rate", 1e-300, "--global-batch", SAMPLES[model], "--quiet", cwd=folder, limit_s=300)
    run(binary, 1, "export", folder / "runs" / model / "checkpoints" / "best", folder / f"{model}.h5", cwd=folder)
    with h5py.File(folder / f"{model}.h5") as file:
        weights = {key: torch.from_numpy(np.asarray(item[()])) for key, item in file["model"].items()}
    with h5py.File(folder / "runs" / model / "results.h5") as results:
        ours = float(results["epochs"][0]["validation_loss"])

    text = Text(of_validation(folder / "text"))
    elements = sum(value.numel() for value in weights.values())
    assert elements == PARAMETERS[model], (model, elements)
    random.random = lambda: 0.0  # seq2seq's coin always shows the target's words, as in validation
    for style in ("tuned", "tutorial"):
        network = text_networks.make_network(model, text, style).double().eval()
        network.load_state_dict(weights, strict=True)
        for module in network.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0  # the tutorial-like gpt's, which asks for no mode
        with torch.no_grad():
            theirs = mean_loss(model, network, text)
        print(f"{model}, {style}: {elements} parameters, loss {ours:.6f} and {theirs:.6f}", flush=True)
        assert abs(ours - theirs) <= TOLERANCE * theirs, (model, style, ours, theirs)


def main():
    torch.set_num_threads(1)
    for model in sys.argv[2:] or PARAMETERS:
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], Path(folder), model)


if __name__ == "__main__":
    main()
