"""What a step with differential privacy (`--dp-clip 1`) costs beside a usual one, on one rank with one thread, in turn.

A run's figure is the median of its steps after the first ten; a ratio is of one round. With --cpu-time: seconds of the processor instead,
of a longer run less those of a shorter one, which other programs on the machine change little. Both end within their first epoch, so that
validation, which comes once in each, is not in the difference. Written to perf/results/privacy: every run as CSV.
"""

import argparse
import pathlib
import resource
import statistics
import tempfile

import h5py
import random_images
import runs

WARM_UP = 10
# Samples of a step, micro-batches that it is cut into, steps of a run, options.
MODELS = {"mlp": (512, 1, 300, []), "cnn": (512, 1, 60, []), "nbow": (512, 1, 300, []), "gpt": (32, 1, 4, []), "seq2seq": (32, 1, 16, [])}
PRIVATE = ["--dp-clip", 1, "--dp-noise", 1.1]
SHORT = 2  # steps of the shorter run
BUILT_IN_SAMPLES = 8192  # of `--dataset synthetic`: fewer than the longer runs of some models take in their first epoch
IMAGES = {"mlp": (1, 28, 28), "cnn": (3, 32, 32)}
TEXTS = {"nbow": ["--task", "text_classification", "--vocab-size", 2000]}  # as the built-in samples of nbow


def parse():
    parser = argparse.ArgumentParser(prog="perf/private_steps.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("models", nargs="*", default=["mlp", "cnn", "nbow"], help=f"of {' '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor: for a machine that does other work, too")
    parser.add_argument("--label", default="", help="a word for the file's name, such as the binary's")
    parser.add_argument("--quick", action="store_true", help="one round, kept nowhere: does it run? No figures")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "privacy")
    given = parser.parse_args()
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"there is no model {min(unknown)}; use {', '.join(MODELS)}")
    if given.rounds < 1:
        parser.error("at least one round is needed")
    return given


def dataset_of(model, scratch):
    """Of the built-in samples' shape, and so many that no run of --cpu-time comes to the end of an epoch."""
    batch, _, steps, _ = MODELS[model]
    samples = (SHORT + steps + 1) * batch
    if samples <= BUILT_IN_SAMPLES:
        return "synthetic"
    if not (scratch / model).exists():
        if model in IMAGES:
            random_images.stage(scratch / model, IMAGES[model], train_samples=samples)
        else:
            runs.run([runs.program(), "stage", model, "--format", "synthetic", "--samples", str(samples), "--data-root", str(scratch), *map(str, TEXTS[model])])
    return scratch / model


def run(model, options, scratch, steps, dataset="synthetic"):
    """The results, and what the run took of the processor."""
    batch, pieces, _, own = MODELS[model]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    runs.run(runs.dtrain_command(1, scratch, "run", "--model", model, "--dataset", dataset, "--global-batch", batch, "--micro-batches", pieces,
                                 "--limit-steps", steps, "--epochs", 100, "--record-steps", "all", "--checkpoint-every", "end", *own, *options))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return scratch / "run" / "results.h5", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def step_s(model, options, scratch, cpu_time):
    steps = MODELS[model][2]
    if cpu_time:
        dataset = dataset_of(model, scratch)
        return (run(model, options, scratch, SHORT + steps, dataset)[1] - run(model, options, scratch, SHORT, dataset)[1]) / steps
    with h5py.File(run(model, options, scratch, steps)[0], "r", locking=False) as file:
        return statistics.median(map(float, file["ranks/00000/steps"]["time_s"][min(WARM_UP, steps // 2):]))


def main():
    given = parse()
    rows = []
    with tempfile.TemporaryDirectory(prefix="dtrain-private-") as scratch:
        for model in given.models:
            for number in range(1 if given.quick else given.rounds):
                sides = {"usual": [], "private": PRIVATE}
                turn = list(sides) if number % 2 == 0 else list(reversed(sides))
                found = {side: step_s(model, sides[side], pathlib.Path(scratch), given.cpu_time) for side in turn}
                rows.append({"model": model, "batch": MODELS[model][0], "round": number + 1, "first": turn[0],
                             **{f"{side}_s": round(found[side], 6) for side in sides}, "ratio": round(found["private"] / found["usual"], 3)})
    if given.quick:
        print("all run")
        return
    for model in given.models:
        print(f"{model}: {runs.median_and_range([row['ratio'] for row in rows if row['model'] == model])} x")
    name = "-".join(["private-steps", *(["cpu"] if given.cpu_time else []), *([given.label] if given.label else [])])
    runs.write_rows(f"{runs.free_stem(given.out, name)}.csv", rows,
                    [f"machine: {runs.machine()}", f"{'processor seconds' if given.cpu_time else 'seconds'} of a step, one rank with one thread, "
                     f"{' '.join(map(str, PRIVATE))}{'; ' + given.label if given.label else ''}"])


if __name__ == "__main__":
    main()
