"""The same network three times on two ranks: as dtrain's own model, as a program that PyTorch exported, and in PyTorch with
DistributedDataParallel over gloo, tuned. They run in turn, in another order each round; a ratio is of one round.

seq2seq's choice between the target's word and its own is control flow, which cannot be exported: the program and its peer read the
target's words alone. dtrain's own model chooses, computes more, and its ratio says nothing of the program's speed: it is shown without an aim.
Written to perf/results/exported: every run as CSV, the ratios as a table.
"""

import argparse
import csv
import json
import pathlib
import sys
import tempfile
import tomllib

import random_images
import random_text
import runs

sys.path[:0] = [str(runs.PEERS), str(runs.TOP / "jobs")]
import networks  # noqa: E402
import staged_text  # noqa: E402
import text_networks  # noqa: E402
from export_model import export_model  # noqa: E402

import torch  # noqa: E402

TEXT = ("nbow", "gpt", "seq2seq")
MODELS = (*networks.RECIPES, *TEXT)
SIDES = ("own", "exported", "ddp")
# Half a minute per side on two cores: three epochs of so many samples.
SAMPLES = {"mlp": 54000, "cnn": 15000, "vgg11": 1024, "resnet18": 512, "conv_autoencoder": 8192, "nbow": 22500, "gpt": 64,
           "seq2seq": 3840}
# What the recipe of the own model decides, given to both.
KEYS = ("optimizer", "learning-rate", "momentum", "weight-decay", "decay", "beta1", "beta2", "epsilon", "schedule",
        "min-learning-rate", "grad-clip")
LOSSES = {"conv_autoencoder": "mse", "seq2seq": "model"}  # of the program; the others: cross_entropy
TARGETS = {"own": 0.97, "ddp": 1.2}


def parse():
    parser = argparse.ArgumentParser(prog="perf/exported.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="of each run; the first is a warm-up")
    parser.add_argument("--quick", action="store_true", help="one round of two batches: only to see that all sides run; no figures")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "exported")
    given = parser.parse_args()
    given.models = given.models or list(MODELS)
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"there is no model {min(unknown)}; use {', '.join(MODELS)}")
    if given.rounds < 1 or given.epochs < 2:
        parser.error("at least one round and two epochs are needed")
    if given.quick:
        given.rounds, given.epochs = 1, 2
    return given


def batch_of(model):
    return random_text.BATCH.get(model) or networks.RECIPES[model]["batch"]


def cut_texts(folder):
    """All sides read as many words of a text as the peers do."""
    facts = json.loads((folder / "dataset.json").read_text())
    facts["shape"] = [min(facts["shape"][0], staged_text.LONGEST_REVIEW)]
    (folder / "dataset.json").write_text(json.dumps(facts))


def text_network(model, text):
    """The module to export and an example of its inputs."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 60, (4, 256 if model == "gpt" else 12), generator=generator)
    if model == "seq2seq":
        torch.manual_seed(1)
        network = text_networks.ForcedSeq2Seq(text.vocabulary, text.target_vocabulary)
        return network, (ids, torch.randint(4, 60, (4, 15), generator=generator))
    return text_networks.make_network(model, text, "tutorial" if model == "nbow" else "tuned"), ids


def prepare(model, scratch, quick):
    """The dataset's folder and the program of the network with PyTorch's initial weights."""
    folder = scratch / "data"
    samples = 2 * batch_of(model) if quick else SAMPLES[model]
    if model in TEXT:
        random_text.stage(folder, model, samples)
        cut_texts(folder)
        network, inputs = text_network(model, staged_text.Text(folder, samples))
    else:
        shape = networks.RECIPES[model]["shape"]
        random_images.stage(folder, shape, train_samples=samples)
        network, inputs = networks.make_network(model, 1), torch.randn(4, *shape)
    export_model(network, inputs, scratch / "program.pt2", loss=LOSSES.get(model, "cross_entropy"),
                 target=inputs if model == "conv_autoencoder" else None, sequence_dim=1 if model in ("nbow", "seq2seq") else None,
                 golden=False)
    return folder


def recipe_of(model):
    """The options that the own model's defaults stand for."""
    printed = tomllib.loads(runs.run([runs.program(), "--model", model, "--print-config"])[0])
    shared = [word for key in KEYS if key in printed for word in (f"--{key}", str(printed[key]))]
    return [*shared, "--warmup-steps", "0"]  # the run may be shorter than the recipe's warm-up


def commands_of(model, folder, scratch, epochs):
    common = ["--dataset", folder, "--epochs", epochs, "--global-batch", batch_of(model), *recipe_of(model)]
    loss = ["--loss", LOSSES[model]] if model in LOSSES else []
    peer = "text_tuned.py" if model in TEXT else "ddp_tuned.py"
    coin = ["--coin", "never"] if model == "seq2seq" else []
    return {"own": runs.dtrain_command(2, scratch, "own", "--model", model, *common),
            "exported": runs.dtrain_command(2, scratch, "exported", "--model", scratch / "program.pt2", *loss, *common),
            "ddp": runs.peer_command(peer, 2, "--model", model, "--data", folder, "--epochs", epochs, "--batch", batch_of(model), *coin)}


def rate_of(side, command, scratch):
    output, _ = runs.run(command)
    return runs.peer_rate(output) if side == "ddp" else runs.dtrain_rate(scratch / side)


def measure(model, given, scratch, writer, file):
    folder = prepare(model, scratch, given.quick)
    commands = commands_of(model, folder, scratch, given.epochs)
    for side, command in commands.items():
        file.write(f"# {model}, {side}: {runs.relative(command).replace(str(scratch), 'SCRATCH')}\n")
    ratios = {"own": [], "ddp": []}
    for number in range(given.rounds):
        turn = SIDES[number % 3:] + SIDES[:number % 3]
        rates = {side: rate_of(side, commands[side], scratch) for side in turn}
        if given.quick:
            print(f"{model}: {', '.join(side for side, rate in rates.items() if rate > 0)} run", flush=True)
            continue
        for side in ratios:
            ratios[side].append(rates["exported"] / rates[side])
        writer.writerow({"model": model, "round": number + 1, "first": turn[0], **{side: round(rates[side], 1) for side in SIDES},
                         **{f"exported/{side}": round(values[-1], 3) for side, values in ratios.items()}})
        file.flush()
        print(f"{model}, round {number + 1}: " + ", ".join(f"{side} {rates[side]:,.0f}" for side in SIDES) + " samples/s", flush=True)
    return ratios


def main():
    given = parse()
    if not given.quick:
        return measure_all(given, given.out)
    with tempfile.TemporaryDirectory(prefix="dtrain-exported-") as out:
        return measure_all(given, pathlib.Path(out))


def measure_all(given, out):
    out.mkdir(parents=True, exist_ok=True)
    stem, machine = runs.free_stem(out, "speed").name, runs.machine()
    lines = [f"| model | speed of own: median (range); aim {TARGETS['own']} | speed of DDP: median (range); aim {TARGETS['ddp']} |",
             "| --- | --- | --- |"]
    about = (f"# Exported programs beside dtrain's own models and PyTorch\n\n`perf/exported.sh {' '.join(sys.argv[1:])}`, fp32, two ranks with "
             f"a thread each, {given.rounds} rounds in turn; every run in {stem}.csv.\nMachine: {machine}.\n\n")
    with open(out / f"{stem}.csv", "w", newline="", encoding="utf-8") as file:
        file.write(f"# machine: {machine}\n# samples/s of two ranks with a thread each, the median of the epochs after the first\n")
        writer = csv.DictWriter(file, ["model", "round", "first", *SIDES, "exported/own", "exported/ddp"], lineterminator="\n")
        writer.writeheader()
        for model in given.models:
            with tempfile.TemporaryDirectory(prefix="dtrain-exported-") as scratch:
                ratios = measure(model, given, pathlib.Path(scratch), writer, file)
            if given.quick:
                continue
            lines.append(f"| {model} | {runs.median_and_range(ratios['own'])} | {runs.median_and_range(ratios['ddp'])} |")
            (out / f"{stem}.md").write_text(about + "\n".join(lines) + "\n", encoding="utf-8")
    if not given.quick:
        print("\n".join(["", *lines, "", f"written: {out / stem}.csv and .md"]))


if __name__ == "__main__":
    main()
