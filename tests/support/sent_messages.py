"""Counts the messages that each rank of a run sends, those inside collectives and inside the making of communicators included, by
Open MPI's own pml/monitoring."""

import os
import re
import subprocess
from pathlib import Path

MPIRUN = Path(__file__).parent / "mpirun.sh"
FIRST_STEP = ["--model", "mlp", "--dataset", "synthetic", "--global-batch", 64, "--limit-steps", 1, "--quiet", "--overwrite"]


def sent_messages(binary, ranks, *options, cwd, limit_s=120):
    """By rank: messages sent in the whole run, and to how many others. Empty where this MPI does not count them."""
    counts = cwd / f"messages-{ranks}"
    flags = f"--mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 3 --mca pml_monitoring_filename {counts}"
    subprocess.run([str(MPIRUN), str(ranks), str(Path(binary).resolve()), *map(str, options)], cwd=cwd, check=True, timeout=limit_s,
                   env={**os.environ, "DTRAIN_MPIRUN_FLAGS": flags}, stdin=subprocess.DEVNULL, capture_output=True)
    found = []
    for rank in range(ranks):
        file = Path(f"{counts}.{rank}.prof")
        if not file.exists():
            return []
        # I: sent by MPI itself, E: by the program; from whom, to whom, bytes, messages.
        sent = [int(number) for number in re.findall(r"^[IE]\t\d+\t\d+\t\d+ bytes\t(\d+) msgs sent", file.read_text(), re.MULTILINE)]
        found.append((sum(sent), len(sent)))
        file.unlink()
    return found
