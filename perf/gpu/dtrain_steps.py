"""Runs of dtrain, and the time of their steps as results.h5 has it."""

import dataclasses
import os

import h5py
import numpy

import programs
import runs

MPIRUN = runs.TOP / "tests" / "support" / "mpirun.sh"
os.environ["DTRAIN_TEST_GPUS"] = "1"  # or it hides them


@dataclasses.dataclass(frozen=True)
class Plan:
    """Of both sides: steps that warm up, then so many stretches of so many steps each."""

    warm_up: int
    stretches: int
    steps: int  # of a stretch

    def measured(self):
        return self.stretches * self.steps


def options_of(model, sizes):
    """The words that say which network it is; `sizes` by the name of the model's option."""
    words = ["--model", model]
    for key, value in sizes.items():
        words += ["--model-option", f"{key}={value}"]
    return words


def run(program, scratch, plan, options, limits, ranks=1):
    """Trains for the steps of `plan`; the folder that it leaves. One rank needs no launcher."""
    launcher = [MPIRUN, ranks] if ranks > 1 else []
    # The peers augment nothing either. As many epochs as the steps can be: the schedule of the rate is over these.
    programs.run([*launcher, program, "train", *options, "--augment", "off", "--limit-steps", plan.warm_up + plan.measured(),
                  "--epochs", plan.warm_up + plan.measured(), "--output", scratch, "--name", "run", "--overwrite", "--quiet"], limits)
    return scratch / "run"


def times_of(folder, plan):
    """Seconds per step, and of that those of the copies to the device as far as dtrain notes them.

    A step's time is the mean of a stretch, and the median of all stretches: single steps may be noted before the device is
    done with them, as the next one waits for it. Of several ranks the slowest of each step. What warms up is left out.
    """
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        tables = [rank["steps"][:] for rank in file["ranks"].values()]
    if any(len(table) < plan.measured() for table in tables):
        raise programs.Failed(f"{folder.name}: fewer steps than were asked for")
    found = {}
    for column in ("time_s", "transfer_time_s"):
        slowest = numpy.max([table[column][-plan.measured():] for table in tables], axis=0)
        found[column] = float(numpy.median(slowest.reshape(plan.stretches, plan.steps).mean(axis=1)))
    return found
