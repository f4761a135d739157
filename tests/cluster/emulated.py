"""An emulated cluster for a test: it goes down with the test, however that ends. cluster.sh says what it is made of."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py

from small_data import write_images

TOP = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("cluster.sh")
# A network that takes a second for an epoch on four ranks that share two cores.
SMALL = ["--model-option", "width=4", "--model-option", "hidden=16", "--global-batch", 32]


def skip_where_impossible():
    possible = subprocess.run([SCRIPT, "possible"], timeout=30)
    if possible.returncode:
        sys.exit(possible.returncode)


class Cluster:
    """Up from `with` to its end. `folder` holds what a test makes as well: `runs`, `staged` and what jobs print."""

    def __init__(self, binary, *options):
        self.folder = Path(tempfile.mkdtemp(prefix="dtrain-cluster-"))
        self.options = ["--while", os.getpid(), *options]
        # What a user exports before sbatch, which hands it to the job. The nodes share this machine's cores: no binding.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "SLURM_"))}
        self.environment = {**kept, "DTRAIN": str(binary), "BIND": "none", "OMP_NUM_THREADS": "1",
                            "OUTPUT": f"{self.folder}/runs", "DATA_ROOT": f"{self.folder}/staged", "DATASET": "tiny"}

    def __enter__(self):
        self._call("up", self.folder, *self.options, limit_s=60)
        return self

    def __exit__(self, *_):
        self._call("down", self.folder, limit_s=60)
        assert not self.folder.exists()

    def _call(self, *words, limit_s, check=True, **environment):
        done = subprocess.run([str(SCRIPT), *map(str, words)], cwd=TOP, env={**self.environment, **environment}, text=True,
                              timeout=limit_s, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode:
            raise AssertionError(f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def run(self, node, *command, limit_s=60, check=True, **environment):
        """The finished process of a command on a node, its output as text."""
        return self._call("run", self.folder, node, *command, limit_s=limit_s, check=check, **environment)

    def power(self, node, state):
        self._call(state, self.folder, node, limit_s=30)

    def stage_tiny(self):
        """384 images that vgg11 takes, in 12 steps an epoch."""
        write_images(self.folder / "images.h5", 480)
        subprocess.run([self.environment["DTRAIN"], "stage", "tiny", "--from", str(self.folder / "images.h5"), "--inputs", "/x",
                        "--targets", "/y", "--data-root", self.environment["DATA_ROOT"]],
                       check=True, timeout=60, stdout=subprocess.DEVNULL)

    def submit(self, script, *options, sbatch=(), **environment):
        """The number of a job; what it prints goes to the file that `said` reads."""
        done = self.run("head", "sbatch", "--parsable", f"--output={self.folder}/job-%j", *sbatch, f"jobs/{script}", *options,
                        **environment)
        return int(done.stdout)

    def submit_srun(self, *words):
        """The number of a job that starts a command on two nodes with two ranks each, by srun with these words before it."""
        path = self.folder / "srun.sh"
        path.write_text('#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\n. jobs/env.sh\nexec srun "$@"\n')
        return int(self.run("head", "sbatch", "--parsable", f"--output={self.folder}/job-%j", path, *words).stdout)

    def said(self, job):
        path = self.folder / f"job-{job}"
        return path.read_text() if path.exists() else ""

    def facts(self, job):
        """Slurm's words on a job: JobState, Restarts, ExitCode and many more."""
        text = self.run("head", "scontrol", "--oneliner", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for_job(self, job, *states, limit_s=60):
        """Its facts once it is in one of these states."""
        return self.wait(lambda: (facts := self.facts(job))["JobState"] in states and facts, limit_s,
                         lambda: f"job {job} is not {states}: {self.facts(job)}\n{self.said(job)}")

    def wait(self, reached, limit_s, otherwise):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if value := reached():
                return value
            time.sleep(0.2)
        raise AssertionError(otherwise())

    def ranks(self, node="head"):
        """How many ranks run: on a node, or with the head on all nodes."""
        return int(self.run(node, "pgrep", "--exact", "--count", "dtrain", check=False).stdout)

    def steps(self, name):
        """How many steps the first rank's live file has."""
        try:
            with h5py.File(self.folder / "runs" / name / "ranks/rank-00000.h5", "r", locking=False) as file:
                return len(file["steps"])
        except (OSError, KeyError):
            return 0

    def wait_for_steps(self, job, name, steps, limit_s=60):
        self.wait(lambda: self.steps(name) >= steps, limit_s,
                  lambda: f"{name} did not come to step {steps}: {self.facts(job)}\n{self.said(job)}")

    def results(self, name, epochs, ranks=4):
        """Checks a completed run: its ranks, and that each epoch used each sample once, the same ones as the others did."""
        folder = self.folder / "runs" / name
        assert (folder / "state").read_text() == "completed\n"
        with h5py.File(folder / "results.h5") as file:
            assert file.attrs["world_size"] == ranks and len(file["ranks"]) == ranks, dict(file.attrs)
            assert [int(row["epoch"]) for row in file["epochs"]] == list(range(1, epochs + 1))
            assert {int(row["samples"]) for row in file["epochs"]} == {384}
            hashes = [0] * epochs
            for rank in file["ranks"].values():
                for row in rank["samples"]:
                    hashes[int(row["epoch"]) - 1] = (hashes[int(row["epoch"]) - 1] + int(row["hash"])) % 2**64
            assert len(set(hashes)) == 1 and hashes[0], (hashes, [rank["samples"][:] for rank in file["ranks"].values()])
        return hashes[0]
