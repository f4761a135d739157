"""Reads what a run or a report said, for cases whose input may be taken."""

import h5py


def completed(samples=8, model=None):
    """check: the run `out` has completed, and has trained on so many samples."""
    def check(folder, given, output):
        run = folder / "runs" / "out"
        state = (run / "state").read_text()
        if state != "completed\n":
            return f"the state is {state!r}"
        with h5py.File(run / "results.h5") as file:
            used = int(file["epochs"]["samples"].sum())
            named = file.attrs["model"].decode()
            loss = float(file["epochs"]["train_loss"][-1])
        if used != samples:
            return f"{used} samples were used instead of {samples}"
        if model and named != model:
            return f"the model is {named}"
        return "" if 0 < loss < 10 else f"the loss is {loss}"
    return check


def shows(*parts, without=()):
    """check: the report has each of these texts, and none of those."""
    def check(folder, given, output):
        missing = [part for part in parts if part not in output]
        wrong = [part for part in without if part in output]
        return f"does not show {missing[0]!r}" if missing else f"shows {wrong[0]!r}" if wrong else ""
    return check
