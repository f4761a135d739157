"""dtrain beside PyTorch for one model: samples/s of training epochs, measured in turn in one run.

Each round runs dtrain and a peer one after the other, for each peer; the ratio of a pair is theirs alone, so that a
machine that slows down half-way slows both. Written to perf/results/training: every run as CSV, the ratios as a table.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import random_images
import random_text
import runs

sys.path.insert(0, str(runs.PEERS))
import networks  # noqa: E402  the peers' recipes: batch and samples of an epoch

# Ratio to reach against each peer (docs/speed.md says for which layouts).
TARGETS = {"mlp": {"tuned": 7.0, "best": 2.3, "tutorial": 10.0},
           "cnn": {"tuned": 3.0, "best": 2.2, "tutorial": 3.0},
           "conv_autoencoder": {"tuned": 2.0, "best": 1.8, "tutorial": 1.6},
           "vgg11": {"tuned": 1.9, "best": 1.5, "tutorial": 1.4},
           "resnet18": {"tuned": 1.8, "best": 1.6, "tutorial": 1.05}}

# Those that read text have peers of their own.
TEXT_TARGETS = {"nbow": {"tuned": 5.0, "best": 2.0, "tutorial": 12.0},
                "seq2seq": {"tuned": 1.8, "best": 1.4, "tutorial": 2.0},
                "gpt": {"tuned": 1.6, "best": 1.5, "tutorial": 1.1}}
TARGETS.update(TEXT_TARGETS)


def parse():
    parser = argparse.ArgumentParser(prog="perf/training.sh", description=__doc__)
    parser.add_argument("model", choices=sorted(TARGETS))
    parser.add_argument("--dataset", help="staged under the data root; default mnist for mlp, otherwise random images")
    parser.add_argument("--data-root", type=pathlib.Path, default=runs.TOP / "data" / "staged")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--batch", type=int, help="over all ranks; of the models that read text only")
    parser.add_argument("--epochs", type=int, default=3, help="of each run; the first is a warm-up")
    parser.add_argument("--peer-samples", type=int, default=20000,
                        help="a peer's epoch is cut to so many samples (in its favour: they fit the cache better)")
    parser.add_argument("--train-samples", type=int, help="of a made-up dataset; default by model")
    parser.add_argument("--quick", action="store_true",
                        help="two epochs of two batches, one pair: only to see that both sides run; no figures")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "training")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.epochs < 2:
        parser.error("at least one pair and two epochs are needed")
    if arguments.quick:
        if arguments.dataset:
            parser.error("--quick makes a dataset of its own; leave --dataset out")
        arguments.pairs, arguments.epochs = 1, 2
    return arguments


def dataset_folder(arguments, scratch):
    samples = 2 * arguments.batch if arguments.quick else arguments.train_samples
    if arguments.model in TEXT_TARGETS and not arguments.dataset:
        folder = scratch / f"random-text-{arguments.model}"
        random_text.stage(folder, arguments.model, samples)
        return folder
    if (arguments.model != "mlp" or arguments.quick) and not arguments.dataset:
        folder = scratch / "random-images"
        recipe = networks.RECIPES[arguments.model]
        random_images.stage(folder, recipe["shape"], train_samples=samples or recipe["samples"])
        return folder
    folder = arguments.data_root / (arguments.dataset or "mnist")
    if not (folder / "dataset.json").exists():
        sys.exit(f"perf: {folder} is not staged; run data/fetch.sh {folder.name}, or name another --data-root")
    return folder.resolve()


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        measure(arguments, pathlib.Path(scratch))


def measure(arguments, scratch):
    if arguments.model in TEXT_TARGETS:
        arguments.batch = arguments.batch or random_text.BATCH[arguments.model]
    else:
        arguments.batch = networks.RECIPES[arguments.model]["batch"]
    folder = dataset_folder(arguments, scratch)
    ours = runs.dtrain_command(2, scratch, "run", "--model", arguments.model, "--dataset", folder, "--epochs",
                               arguments.epochs)
    common = ["--model", arguments.model, "--data", folder, "--samples", arguments.peer_samples, "--epochs",
              arguments.epochs]
    tuned, tutorial = "ddp_tuned.py", "ddp_tutorial.py"
    if arguments.model in TEXT_TARGETS:
        tuned, tutorial = "text_tuned.py", "text_tutorial.py"
        common += ["--batch", arguments.batch]
    ours += ["--global-batch", str(arguments.batch)]
    peers = {
        "tuned, 2 ranks": runs.peer_command(tuned, 2, *common),
        "tuned, 1 process x 2 threads": runs.peer_command(tuned, 1, *common, "--threads", 2),
        "tutorial, 2 ranks": runs.peer_command(tutorial, 2, *common),
    }
    if arguments.quick:
        return only_run(arguments.model, {"dtrain": ours, **peers}, scratch)
    machine = runs.machine()
    print(f"machine: {machine}", flush=True)
    rows = []
    for pair in range(1, arguments.pairs + 1):
        for peer, command in peers.items():
            own_peak = runs.run_measured(ours)[2]
            own_rate = runs.dtrain_rate(scratch / "run")
            output, _, peak = runs.run_measured(command)
            rate = runs.peer_rate(output)
            rows.append({"pair": pair, "peer": peer, "dtrain_samples_per_s": round(own_rate, 1),
                         "peer_samples_per_s": round(rate, 1), "ratio": round(own_rate / rate, 3),
                         "dtrain_peak_mib": round(own_peak / 2**20), "peer_peak_mib": round(peak / 2**20)})
            print(f"pair {pair}: dtrain {own_rate:,.0f}, {peer} {rate:,.0f} samples/s, ratio {own_rate / rate:.2f}",
                  flush=True)
    commands = {"dtrain": ours, **peers}
    text = {who: runs.relative(command).replace(str(folder), folder.name).replace(str(scratch), "SCRATCH")
            for who, command in commands.items()}
    write(arguments, machine, text, rows, folder.name)


def only_run(model, commands, scratch):
    """Each side once. What it says of its speed means nothing on two batches and is not shown."""
    for who, command in commands.items():
        output, _ = runs.run(command)
        rate = runs.dtrain_rate(scratch / "run") if who == "dtrain" else runs.peer_rate(output)
        if not rate > 0:
            sys.exit(f"perf: {who} gave no samples/s:\n{output}")
        print(f"{model}: {who} runs", flush=True)


def summary(rows, model):
    """One line per comparison: medians and ranges; the best layout is the faster of the two tuned ones per pair."""
    by_peer = {}
    for row in rows:
        by_peer.setdefault(row["peer"], []).append(row)
    best = []
    for two, one in zip(by_peer["tuned, 2 ranks"], by_peer["tuned, 1 process x 2 threads"]):
        best.append(max(two, one, key=lambda row: row["peer_samples_per_s"]))
    targets = {"tuned, 2 ranks": "tuned", "tutorial, 2 ranks": "tutorial"}
    lines = ["| peer | dtrain samples/s | peer samples/s | ratio: median (range) | target | most MiB of a dtrain rank | of a peer's |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for peer, group in [*by_peer.items(), ("best tuned layout of each pair", best)]:
        key = "best" if group is best else targets.get(peer)
        target = f"{TARGETS[model][key]:g}" if key else ""
        lines.append(f"| {peer} | {statistics.median(row['dtrain_samples_per_s'] for row in group):,.0f} "
                     f"| {statistics.median(row['peer_samples_per_s'] for row in group):,.0f} "
                     f"| {runs.median_and_range([row['ratio'] for row in group])} | {target} "
                     f"| {max(row['dtrain_peak_mib'] for row in group)} | {max(row['peer_peak_mib'] for row in group)} |")
    return "\n".join(lines)


def write(arguments, machine, commands, rows, dataset):
    runs.write_results(
        arguments.out, arguments.model, rows,
        f"# {arguments.model}: 2 ranks x 1 thread beside PyTorch\n\n`perf/training.sh {' '.join(sys.argv[1:])}`, dataset "
        f"{dataset}, global batch {arguments.batch}, fp32, {len(rows) // 3} pairs per peer; epochs after the first.\n"
        f"Machine: {machine}.\n\n{summary(rows, arguments.model)}",
        [f"machine: {machine}", *(f"{program}: {command}" for program, command in commands.items())])


if __name__ == "__main__":
    main()
