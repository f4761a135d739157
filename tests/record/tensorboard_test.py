"""An event file read by TensorBoard's own reader. Usage: tensorboard_test.py RECORD_SAMPLES"""

import glob
import subprocess
import sys
import tempfile

import numpy as np

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
except ImportError:
    print("skipped: tensorboard is not installed; jobs/setup.sh --with-tools installs it")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "tensorboard", folder], check=True, timeout=30)
        (path,) = glob.glob(folder + "/events.out.tfevents.*")
        assert len(list(RawEventFileLoader(path).Load())) == 314, "version, 300 losses, one accuracy, 3 x 4 by step"
        events = EventAccumulator(folder, size_guidance={"scalars": 0})
        events.Reload()
        by_step = [f"train_by_step/{name}" for name in ("gradient_norm", "learning_rate", "loss", "samples_per_s")]
        assert sorted(events.Tags()["scalars"]) == ["train/loss", *by_step, "validation/accuracy"]
        # Steps of 0.3 s, and a point each second: the first, then the means of steps 2 to 5 and 6 to 9.
        points = events.Scalars("train_by_step/loss")
        assert [point.step for point in points] == [1, 5, 9]
        np.testing.assert_allclose([point.value for point in points], [1, 3.5, 7.5], rtol=1e-6)
        np.testing.assert_allclose([point.value for point in events.Scalars("train_by_step/samples_per_s")],
                                   [32 / 0.3, 32 / 0.3, 32 / 0.3], rtol=1e-6)
        loss = events.Scalars("train/loss")
        assert [event.step for event in loss] == list(range(1, 301))
        np.testing.assert_allclose([event.value for event in loss], 1 / np.arange(1, 301), rtol=1e-7)
        (accuracy,) = events.Scalars("validation/accuracy")
        assert accuracy.step == 2 and abs(accuracy.value - 0.975) < 1e-7
        assert loss[0].wall_time > 1.7e9


def of_a_run_that_went_on():
    """What was trained again after a kill is there once, and what counts of the part before is kept."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "tensorboard_twice", folder], check=True, timeout=30)
        paths = sorted(glob.glob(folder + "/*"))
        assert len(paths) == 2 and all("events.out.tfevents." in path for path in paths), paths
        events = EventAccumulator(folder, size_guidance={"scalars": 0})
        events.Reload()
        points = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        assert points == {"train_by_step/loss": [(step, 1.0 if step <= 120 else 2.0) for step in range(1, 201)],
                          "train/loss": [(1, 1.0), (2, 2.0)], "validation_by_step/loss": [(125, 2.0)]}, points


main()
of_a_run_that_went_on()
