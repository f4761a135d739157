"""The loss per epoch of several runs of one model in a picture, and a table of what more ranks bring.

    python perf/training/case_study.py runs/resnet18_cifar10/1-ranks runs/resnet18_cifar10/2-ranks --out FOLDER

The first run is what the others are compared with.
"""

import argparse
import pathlib
import statistics

import h5py
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  after the choice of a backend that needs no screen


def read(folder):
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        facts = {key: value.decode() if isinstance(value, bytes) else value for key, value in file.attrs.items()}
        if facts["status"] != "completed":
            raise SystemExit(f"{folder}: the run is {facts['status']}, not completed")
        return {"title": f"{facts['model']} on {facts['dataset']}", "ranks": int(facts["world_size"]),
                "epochs": file["epochs"][:], "test": file["test"][:], "command": facts["command_line"]}


def median(run, column):
    return statistics.median(float(value) for value in run["epochs"][column])


def table(runs):
    """Medians over epochs; the speed-up is of samples per second of training."""
    lines = ["| ranks | s per epoch, training | validation | samples/s | speed-up | train loss | validation loss | "
             "validation accuracy | test accuracy |", "| --- " * 9 + "|"]
    for run in runs:
        last = run["epochs"][-1]
        test = f"{run['test'][0]['accuracy']:.4f}" if len(run["test"]) else ""
        speedup = median(run, "samples_per_s") / median(runs[0], "samples_per_s")
        lines.append(f"| {run['ranks']} | {median(run, 'train_time_s'):.1f} | {median(run, 'validation_time_s'):.1f} "
                     f"| {median(run, 'samples_per_s'):,.1f} | {speedup:.2f} | {last['train_loss']:.4f} "
                     f"| {last['validation_loss']:.4f} | {last['validation_accuracy']:.4f} | {test} |")
    return "\n".join(lines)


def draw(runs, path):
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for index, run in enumerate(runs):
        name = f"{run['ranks']} rank{'s' if run['ranks'] > 1 else ''}"
        axes.plot(run["epochs"]["epoch"], run["epochs"]["train_loss"], marker="o", color=f"C{index}",
                  label=f"{name}, training")
        axes.plot(run["epochs"]["epoch"], run["epochs"]["validation_loss"], marker="s", linestyle="--",
                  color=f"C{index}", label=f"{name}, validation")
    axes.set(xlabel="epoch", ylabel="loss", title=runs[0]["title"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    runs = [read(folder) for folder in arguments.runs]
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(runs, arguments.out / "loss.png")
    text = table(runs)
    commands = "\n".join(f"    {run['command']}" for run in runs)
    (arguments.out / "README.md").write_text(
        f"# {runs[0]['title']}\n\n{text}\n\nMedians over {len(runs[0]['epochs'])} epochs. Commands:\n\n{commands}\n\n"
        f"![loss per epoch](loss.png)\n", encoding="utf-8")
    print(text)
    print(f"written: {arguments.out / 'README.md'} and loss.png")


if __name__ == "__main__":
    main()
