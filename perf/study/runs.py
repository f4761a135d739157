"""Makes the runs of the comparison study: every case of cases.csv, each seed, one after another.

A run that is complete is not made again and one that was interrupted goes on from its last whole epoch, so that a study
may take many sittings. `--quick` makes every case on the synthetic dataset of its model, a few steps long: it shows that
the study works, not what it finds.
"""

import argparse
import csv
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent


def cases(models):
    with open(HERE / "cases.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    known = list(dict.fromkeys(row["model"] for row in rows))
    unknown = [model for model in models or [] if model not in known]
    if unknown:
        sys.exit(f"study: --models {' '.join(unknown)}: the study has {', '.join(known)}")
    return [row for row in rows if not models or row["model"] in models]


def name_of(case, seed):
    words = case["case"].replace(",", "").split()
    return "-".join([case["model"], *words, f"seed{seed}"])


def options_of(case, seed, arguments):
    options = ["--model", case["model"], "--seed", str(seed), "--output", str(arguments.output),
               "--name", name_of(case, seed), "--checkpoint-every", "1epoch", "--quiet", "--threads", "1"]
    if arguments.quick:
        return [*options, "--dataset", "synthetic", "--epochs", "1", "--limit-steps", str(arguments.quick_steps),
                "--global-batch", str(max(16, int(case["batch"]) // 8)), *shlex.split(case["options"])]
    return [*options, "--dataset", case["dataset"], "--data-root", str(arguments.data_root), "--epochs", case["epochs"],
            "--global-batch", case["batch"], *shlex.split(case["options"])]


def main():
    parser = argparse.ArgumentParser(prog="jobs/study.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps on synthetic data, one seed")
    parser.add_argument("--quick-steps", type=int, default=4, help="steps of each quick run [4]")
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, help="at most so many seeds of each case")
    parser.add_argument("--output", type=Path, help="where the runs go [runs/study; with --quick runs/study-quick]")
    parser.add_argument("--data-root", type=Path, default=Path("data/staged"), help="staged datasets [data/staged]")
    parser.add_argument("--dtrain", default=str(TOP / "dtrain"), help="the program [./dtrain]")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe", help="the launcher [mpirun --oversubscribe]")
    parser.add_argument("--limit", type=float, default=6 * 3600, help="seconds a single run may take [21600]")
    arguments = parser.parse_args()
    # A quick run has the name of a real one, and would stand for it.
    arguments.output = arguments.output or Path("runs/study-quick" if arguments.quick else "runs/study")

    failed = []
    for case in cases(arguments.models):
        seeds = 1 if arguments.quick else min(int(case["seeds"]), arguments.seeds or 1000)
        for seed in range(1, seeds + 1):
            name = name_of(case, seed)
            state = arguments.output / name / "state"
            if state.is_file() and state.read_text().strip() == "completed":
                print(f"study: {name} is complete", flush=True)
                continue
            command = [*shlex.split(arguments.mpirun), "-np", case["ranks"], arguments.dtrain,
                       *options_of(case, seed, arguments)]
            start = time.monotonic()
            try:
                code = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=arguments.limit).returncode
            except subprocess.TimeoutExpired:
                code = "time out"
            complete = state.is_file() and state.read_text().strip() == "completed"
            print(f"study: {name} {'took' if complete else 'FAILED after'} {time.monotonic() - start:.1f} s", flush=True)
            if not complete:
                failed.append(f"{name} ({code}): {shlex.join(command)}")
    if failed:
        sys.exit("study: these runs failed:\n  " + "\n  ".join(failed))


if __name__ == "__main__":
    main()
