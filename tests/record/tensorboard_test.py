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
        assert len(list(RawEventFileLoader(path).Load())) == 302, "version, 300 losses, one accuracy"
        events = EventAccumulator(folder, size_guidance={"scalars": 0})
        events.Reload()
        assert sorted(events.Tags()["scalars"]) == ["train/loss", "validation/accuracy"]
        loss = events.Scalars("train/loss")
        assert [event.step for event in loss] == list(range(1, 301))
        np.testing.assert_allclose([event.value for event in loss], 1 / np.arange(1, 301), rtol=1e-7)
        (accuracy,) = events.Scalars("validation/accuracy")
        assert accuracy.step == 2 and abs(accuracy.value - 0.975) < 1e-7
        assert loss[0].wall_time > 1.7e9


main()
