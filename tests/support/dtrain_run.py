"""Runs the dtrain binary on several ranks of this machine, with a limit on its time."""

import os
import subprocess
from pathlib import Path

MPIRUN = Path(__file__).parent / "mpirun.sh"


def run(binary, ranks, *options, cwd, limit_s=120, check=True):
    """The finished process of `mpirun -np RANKS BINARY OPTIONS`, its output as text."""
    command = [str(MPIRUN), str(ranks), str(binary), *map(str, options)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, timeout=limit_s,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
