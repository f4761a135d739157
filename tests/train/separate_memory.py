"""Ranks of one machine that do not see one another's shared memory, as in a container for each: they exchange messages, with the
losses of ranks that share it, and say so once. What was measured between such nodes is kept with the run. Exit code 77: skipped.

    separate_memory.py BINARY
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import MPIRUN, run, step_losses

OPTIONS = ["--model", "mlp", "--global-batch", 64, "--epochs", 1, "--threads", 1, "--mesh", "data=2"]
# A rank with a /dev/shm of its own.
APART = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


def apart(binary, folder, *options, cache=""):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / cache), "OMPI_MCA_btl": "^sm,ofi"}
    command = [str(MPIRUN), "2", *APART, str(binary), *map(str, OPTIONS), *map(str, options)]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, timeout=240, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done


def losses(folder):
    with h5py.File(folder / "results.h5") as file:
        return step_losses(file)


def table(said):
    lines = [line for line in said.stdout.splitlines() if line.startswith("all_reduce by bytes")]
    assert len(lines) == 1, said.stdout
    return lines[0].partition("nodes: ")[2]


def exchanges_messages(binary, folder):
    run(binary, 2, *OPTIONS, "--limit-steps", 12, "--name", "together", cwd=folder)
    said = apart(binary, folder, "--limit-steps", 12, "--name", "apart", cache="one")
    assert said.stderr.count("ranks 0, 1 run on one machine but not all of them see the same /dev/shm") == 1, said.stderr
    one, other = losses(folder / "runs/together"), losses(folder / "runs/apart")
    assert np.allclose(one, other, rtol=1e-4), (one, other)
    print("apart: the losses of ranks that share memory")


def keeps_the_table(binary, folder):
    first = table(apart(binary, folder, "--limit-steps", 4, "--checkpoint-every", "4steps", "--name", "kept", cache="one"))
    manifest = json.loads((folder / "runs/kept/checkpoints/step-00000004/manifest.json").read_text())
    assert manifest["all_reduce"]["by_size"] == first, (manifest["all_reduce"], first)
    other = "77 tree, 88 ring"  # what another measurement might have found
    (folder / "two/dtrain").mkdir(parents=True)
    (folder / "two/dtrain/all_reduce").write_text(f"{manifest['all_reduce']['layout']}: {other}\n")
    (folder / "runs/kept/state").write_text("failed\n")
    assert table(apart(binary, folder, "--limit-steps", 8, "--name", "kept", cache="two")) == first
    assert table(apart(binary, folder, "--limit-steps", 4, "--name", "another", cache="two")) == other
    print(f"resumed with its own table: {first}")


def main():
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: this user cannot give a process a /dev/shm of its own")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        exchanges_messages(sys.argv[1], Path(folder))
        keeps_the_table(sys.argv[1], Path(folder))


main()
