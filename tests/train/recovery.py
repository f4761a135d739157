"""Ranks are killed, and the others go on without them, or with spares in their places, from the last step that was done: with
the bits of an undisturbed run, each sample used once an epoch.

    recovery.py BINARY [--full] [--out FOLDER]
"""

import argparse
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py

from drawn import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, children, process_state, ranks_of, refused, run, write_rows

RANKS = 4
STEPS = 24
EVERY = 5
COMMON = ["--model", "mlp", "--global-batch", 500, "--epochs", 2, "--limit-steps", STEPS, "--reproducible", "--checkpoint-every",
          f"{EVERY}steps", "--quiet", "--watchdog", 60]
MESHES = ["data=4", "data=2,pipe=2"]
PHASES = ["forward", "backward", "all_reduce", "optimizer", "evaluation", "checkpoint"]
STEP_OF = {"checkpoint": 10, "evaluation": 17}  # the end of an epoch; 8 of others


@dataclass
class Case:
    mesh: str
    fault: str
    options: tuple = ()
    spares: int = 0
    resumed: tuple = (7,)  # steps that the run went on from, after each loss
    from_disk: bool = False  # there is no copy in memory
    left: str = ""  # the mesh after the last loss; empty: not looked at

    def lost(self):
        return [int(rank) for rank in re.findall(r"rank=(\d)", self.fault)]


SAMPLE = [
    Case("data=4", "kill:rank=0,phase=forward,step=8", left="data=3"),
    Case("data=4", "kill:rank=2,phase=all_reduce,step=8"),
    Case("data=2,pipe=2", "kill:rank=3,phase=optimizer,step=8", left="data=3"),
    Case("data=2,pipe=2", "kill:rank=0,phase=checkpoint,step=10", resumed=(10,)),
    Case("data=4", "kill:rank=1,phase=evaluation,step=17", resumed=(17,)),
    Case("data=4", "kill:rank=2,phase=forward,step=18", resumed=(17,)),  # what it recorded of the epoch is a moment old
]
OTHERS = [
    Case("data=4", "kill:rank=1,phase=backward,step=8;kill:rank=3,phase=backward,step=8", left="data=2"),
    Case("data=4", "kill:rank=1,phase=forward,step=1", resumed=()),  # no step was done: it begins anew
    Case("data=4", "kill:rank=1,phase=forward,step=8;kill:rank=2,phase=forward,step=12", resumed=(7, 11), left="data=2"),
    Case("data=2,pipe=2", "kill:rank=3,phase=optimizer,step=8;kill:rank=0,phase=recovery", left="data=1,pipe=2"),
    Case("data=2,pipe=2", "kill:rank=3,phase=backward,step=8", spares=1, left="data=2,pipe=2"),
    Case("data=4", "kill:rank=1,phase=backward,step=8;kill:rank=2,phase=forward,step=12;kill:rank=4,phase=forward,step=15",
         spares=2, resumed=(7, 11, 14), left="data=3"),  # the spare that took a place is lost too
    Case("data=1,pipe=2", "kill:rank=1,phase=optimizer,step=8", ("--replicate", 3), resumed=(6,)),
    Case("data=1,pipe=2", "kill:rank=0,phase=backward,step=8", ("--replicate", 1)),
    Case("data=1,pipe=2", "kill:rank=0,phase=backward,step=8", resumed=(5,), from_disk=True),
]


def has_ulfm():
    version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
    return "Open MPI) 5" in version or "prterun" in version


def command_of(binary, ranks, *options):
    return [str(word) for word in (MPIRUN, ranks, binary, *options)]


def environment():
    """Of a job that may lose ranks."""
    return {**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}


def ended(binary, folder, ranks, *options):
    return subprocess.run(command_of(binary, ranks, *options), cwd=folder, env=environment(), text=True, timeout=240, stdin=subprocess.DEVNULL,
                          capture_output=True)


def started(binary, folder, name, mesh, *options, ranks=RANKS):
    return ended(binary, folder, ranks, *COMMON, "--mesh", mesh, "--name", name, *options)


def facts(run_folder):
    """Tensors of the last checkpoint, and by epoch the hash of the samples that all ranks together have used."""
    hashes = {}
    with h5py.File(run_folder / "results.h5") as file:
        for rank in file["ranks"].values():
            for row in rank["samples"][:]:
                hashes[int(row["epoch"])] = (hashes.get(int(row["epoch"]), 0) + int(row["hash"])) % 2**64
    return checkpoint_tensors(run_folder / "checkpoints" / f"step-{STEPS:08}", group=None), hashes


def survives(binary, folder, case, expected):
    """Seconds from each loss to the end of the first step after it."""
    ranks = ranks_of(case.mesh) + case.spares
    done = started(binary, folder, "killed", case.mesh, "--inject", case.fault, "--overwrite", "--spares", case.spares, *case.options,
                   ranks=ranks)
    run_folder = folder / "runs/killed"
    assert done.returncode == 0, (case, done.returncode, done.stdout, done.stderr)
    assert "Process received signal" not in done.stderr, (case, done.stderr)
    assert (run_folder / "state").read_text() == "completed\n", case
    found, hashes = facts(run_folder)
    others = [name for name in expected[0] if expected[0][name].tobytes() != found[name].tobytes()]
    assert not others, (case, others[:5])
    assert hashes == expected[1], (case, "a sample was used twice or not at all")
    with h5py.File(run_folder / "results.h5") as file:
        seconds = check_records(file, case, ranks)
    print(f"{case.mesh} {' '.join(map(str, case.options))} spares {case.spares} {case.fault}: the bits of an undisturbed run, "
          f"recovered in {', '.join(f'{s:.2f}' for s in seconds)} s", flush=True)
    return seconds


# Rank 1 dies when rank 2 is suspended in the same step: without `slow` it may be dead before rank 2 has begun the step.
KILLED_AND_SUSPENDED = "slow:rank=1,step=8,factor=1000;kill:rank=1,phase=backward,step=8;stop:rank=2,phase=forward,step=8"


def suspended_rank(job):
    """Process of the rank that the job has suspended; waits for it."""
    end = time.monotonic() + 60
    while not (stopped := [pid for pid in children(job.pid) if process_state(pid) == "T"]):
        assert job.poll() is None and time.monotonic() < end, "no rank was suspended"
        time.sleep(0.05)
    return stopped[0]


def waits_for_a_survivor_that_comes_late(binary, folder):
    """It was suspended, or computes for long: the others go on with it."""
    late_s = 12
    command = [str(MPIRUN), "3", str(binary), *map(str, COMMON), "--name", "late", "--inject", KILLED_AND_SUSPENDED]
    job = subprocess.Popen(command, cwd=folder, env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    suspended = suspended_rank(job)
    time.sleep(late_s)
    assert job.poll() is None, job.communicate()
    end = time.monotonic() + 60
    while job.poll() is None and time.monotonic() < end:
        if process_state(suspended) == "T":  # the step has several pieces
            os.kill(suspended, signal.SIGCONT)
        time.sleep(0.05)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, (job.returncode, out, err)
    with h5py.File(folder / "runs/late/results.h5") as file:
        assert file.attrs["mesh"] == b"data=2" or file.attrs["mesh"].startswith(b"data=2,"), file.attrs["mesh"]
    print(f"a survivor that comes {late_s} s late goes on with the other", flush=True)


def tells_that_it_died(binary, folder):
    """A survivor that never comes: the others end without a word in `state`. The report knows, and the run goes on."""
    options = [*COMMON[:-1], 5, "--mesh", "data=3", "--name", "waiting"]  # seconds that they wait for it
    environment = {**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}
    job = subprocess.Popen([str(MPIRUN), "3", str(binary), *map(str, options), "--inject", KILLED_AND_SUSPENDED], cwd=folder,
                           env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    suspended = suspended_rank(job)
    job.wait(timeout=120)
    try:  # the launcher may have left it, and a suspended process cannot end itself
        os.kill(suspended, signal.SIGKILL)
    except ProcessLookupError:
        pass
    out, err = job.communicate(timeout=60)
    assert job.returncode == 5, (job.returncode, out, err)
    assert "a rank does not come" in err, err
    assert (folder / "runs/waiting/state").read_text() == "running\n"
    end = time.monotonic() + 20
    while "incomplete" not in (said := run(binary, 1, "report", "runs/waiting", cwd=folder).stdout):
        assert time.monotonic() < end, said  # a killed process is there for a moment
    run(binary, 3, *options, cwd=folder)
    assert (folder / "runs/waiting/state").read_text() == "completed\n"
    print("a run whose survivors do not meet is reported as incomplete, and goes on", flush=True)


def check_records(file, case, ranks):
    """What results.h5 says about the losses: ranks keep the numbers they had at the start."""
    topology = file["topology"][:]
    left = {int(row["rank"]): float(row["left_at_s"]) for row in topology if not math.isnan(row["left_at_s"])}
    assert sorted(left) == sorted(case.lost()) and min(left.values()) > 0, (case, left)
    generations = range(int(topology["generation"].max()) + 1)
    members = [sorted(int(row["rank"]) for row in topology if row["generation"] == generation) for generation in generations]
    assert members[0] == list(range(ranks_of(case.mesh))), (case, members)
    assert not set(members[-1]) & set(case.lost()), (case, members)
    assert len(members[-1]) == min(ranks_of(case.mesh), ranks - len(case.lost())), (case, members)
    assert all(f"{rank:05}" in file["ranks"] for rank in members[0]), (case, "a lost rank's group is gone")
    mesh = file.attrs["mesh"].decode()
    assert mesh.startswith(case.left), (case, mesh)
    events = file[f"ranks/{members[-1][0]:05}/events"][:]
    recovered = [event["detail"].decode() for event in events if event["kind"] == b"recovered"]
    named = [int(rank) for text in recovered for rank in re.findall(r"\d+", text.split(" lost")[0])]
    assert sorted(named) == sorted(case.lost()), (case, recovered)
    resumed = [int(event["detail"].split(b"step-")[1][:8]) for event in events if event["kind"] == b"resumed"]
    # The step before where another rank was still in its last barrier when one died in the next step.
    exact = bool(case.options) or "step=1" == case.fault[-6:]
    if case.from_disk and not resumed:
        resumed = list(case.resumed)  # the newest checkpoint was still being written: it began anew
    if len(resumed) == len(case.resumed) + 1 and not exact:
        # Two are to die at once, in one step. The second was still in the barrier of the step before, which was undone for the
        # first's death: it came to its own step later, and another rank may then have been in that barrier.
        assert resumed[0] == case.resumed[0] - 1 and len(case.lost()) == 2, (case, resumed)
        resumed = resumed[1:]
    assert len(resumed) == len(case.resumed), (case, resumed)
    assert all(step - found in ((0,) if exact else (0, 1)) for step, found in zip(case.resumed, resumed)), (case, resumed)
    return [float(re.search(r"was done after ([\d.]+) s", text)[1]) for text in recovered]


def keeps_the_last_step(binary, folder):
    """A rank lost while the best is tested: its weights are not those of the last step."""
    options = ["--learning-rate", 0.1, "--mesh", "data=4"]
    run(binary, RANKS, *COMMON, *options, "--name", "whole", cwd=folder)
    assert os.readlink(folder / "runs/whole/checkpoints/best") != f"step-{STEPS:08}", "the last step is the best"
    done = started(binary, folder, "tested", "data=4", "--inject", f"kill:rank=2,phase=test,step={STEPS}", *options[:2])
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    found, expected = facts(folder / "runs/tested"), facts(folder / "runs/whole")
    others = [name for name in expected[0] if expected[0][name].tobytes() != found[0][name].tobytes()]
    assert not others and found[1] == expected[1], others[:5]
    with h5py.File(folder / "runs/tested/results.h5") as file:
        assert len(file["test"]) == 1
        assert any(event["kind"] == b"lost_rank" for event in file["ranks/00000/events"][:])
    print("a rank lost in the test evaluation: the last step is the last step's", flush=True)


def completes_without_those_lost_at_shutdown(binary, folder, expected):
    """Training is over and saved, and a rank goes while results.h5 is put together: nothing is lost or done twice."""
    for rank in (0, 2):
        name = f"shutdown-{rank}"
        done = started(binary, folder, name, "data=4", "--inject", f"kill:rank={rank},phase=shutdown,step={STEPS}")
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        assert (folder / "runs" / name / "state").read_text() == "completed\n", rank
        found = facts(folder / "runs" / name)
        others = [tensor for tensor in expected[0] if expected[0][tensor].tobytes() != found[0][tensor].tobytes()]
        assert not others and found[1] == expected[1], (rank, others[:5], found[1])
        with h5py.File(folder / "runs" / name / "results.h5") as file:
            assert file.attrs["status"] == b"completed" and len(file["test"]) == 1, (rank, dict(file.attrs))
            assert list(file["epochs"]["epoch"]) == [1, 2], (rank, file["epochs"]["epoch"])
    print("a rank lost at shutdown: the run completes, with its results", flush=True)


def a_spare_goes_on_with_the_program_that_the_run_kept(binary, folder):
    """The file that was named is gone: the ranks at work know the run's own copy, and the spare only the name."""
    program = folder / "net.pt2"
    network = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))"
    (folder / "net.py").write_text(f"import torch\n\ndef net():\n    return {network}\n")
    export = Path(__file__).resolve().parents[2] / "jobs/export_model.py"
    subprocess.run([sys.executable, export, "net.py:net", program.name, "--shape", "1,28,28"], cwd=folder, check=True, timeout=120, capture_output=True)
    options = ["--model", "net.pt2", "--global-batch", 64, "--limit-steps", 6, "--epochs", 1, "--quiet", "--watchdog", 60, "--threads", 1, "--name", "kept",
               "--checkpoint-every", "2steps"]
    for ranks, more in ((2, ["--inject", "fail:rank=0,step=3"]), (3, ["--spares", 1, "--inject", "kill:rank=1,phase=backward,step=5"])):
        done = ended(binary, folder, ranks, *options, *more)
        program.unlink(missing_ok=True)
    assert (folder / "runs/kept/state").read_text() == "completed\n", (done.returncode, done.stdout, done.stderr)


def a_stop_on_request_leaves_spares_alive(binary, folder):
    """The signal comes to all processes of the job."""
    command = command_of(binary, 3, "--model", "mlp", "--epochs", 500, "--quiet", "--watchdog", 60, "--threads", 1, "--spares", 1, "--name", "asked")
    job = subprocess.Popen(command, cwd=folder, env=environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (folder / "runs/asked/ranks/rank-00000.h5").exists():
        assert time.monotonic() < end and job.poll() is None, "the run has not begun"
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    said = job.communicate(timeout=100)
    assert (folder / "runs/asked/state").read_text() == "preempted\n", said
    assert job.returncode == 75, (job.returncode, said)


def another_failure_after_a_loss_ends_the_job(binary, folder):
    """With its own code, and soon: the launcher knows of the loss."""
    options = ("--model", "mlp", "--limit-steps", 60, "--quiet", "--watchdog", 60, "--threads", 1)
    for ranks in (2, 3):
        done = ended(binary, folder, ranks, *options, "--name", f"again-{ranks}", "--inject", "kill:rank=1,phase=backward,step=5;nan:rank=0,step=20")
        assert (folder / f"runs/again-{ranks}/state").read_text() == "failed\n", (done.stdout, done.stderr)
        assert done.returncode == 1 and done.stderr.count("not finite") == 1, (done.returncode, done.stdout, done.stderr)
    alone = ended(binary, folder, 2, *options, "--strategy", "asgd", "--mesh", "data=2", "--staleness", 1, "--name", "alone",
                  "--inject", "kill:rank=0,phase=backward,step=5")
    assert alone.returncode == 5 and "the ranks that are left cannot go on" in alone.stderr, (alone.returncode, alone.stdout, alone.stderr)


def an_error_of_one_rank_after_a_loss_is_no_loss(binary, folder):
    """The others end with it, and with its exit code."""
    done = started(binary, folder, "own-error", "data=4", "--inject", "kill:rank=1,phase=backward,step=8;fail:rank=2,step=14")
    assert done.returncode == 1 and done.stderr.count("told to") == 1, (done.returncode, done.stdout, done.stderr)
    assert (folder / "runs/own-error/state").read_text() == "failed\n"
    with h5py.File(folder / "runs/own-error/results.h5") as file:
        kinds = file["ranks/00000/events"]["kind"].tolist()
    assert kinds.count(b"recovered") == 1, kinds


def dealing_by_speed_goes_on_with_more_copies(binary, folder):
    """Of three ranks no whole copies of two can be made: there are three of one, which have fewer micro-batches each than at the start."""
    done = started(binary, folder, "dealt", "data=2,pipe=2", "--inject", "kill:rank=3,phase=backward,step=8", "--balance", "data", "--micro-batches", 8)
    assert done.returncode == 0 and (folder / "runs/dealt/state").read_text() == "completed\n", (done.returncode, done.stdout, done.stderr)


def a_spare_learns_what_the_memory_limit_has_chosen(binary, folder):
    """It takes a place before there is a checkpoint that would tell it."""
    for rank in (0, 1):
        done = ended(binary, folder, 3, "--model", "cnn", "--global-batch", 2048, "--limit-steps", 3, "--epochs", 1, "--quiet", "--watchdog", 60,
                     "--strategy", "ddp", "--recompute", "none", "--memory-limit", "60MiB", "--threads", 1, "--spares", 1, "--name", f"chosen-{rank}",
                     "--inject", f"kill:rank={rank},phase=backward,step=1")
        assert (folder / f"runs/chosen-{rank}/state").read_text() == "completed\n", (done.returncode, done.stdout, done.stderr)
        with h5py.File(folder / f"runs/chosen-{rank}/results.h5") as file:
            config = file.attrs["config"].decode()
        assert re.search(r"^micro-batches\s*=\s*4$", config, re.MULTILINE), config


def a_run_from_anothers_checkpoint_loses_a_rank_before_its_own_first(binary, folder):
    """It goes on with its own options, and keeps what the part before has recorded, also where nothing of that part is saved."""
    options = ["--model", "mlp", "--global-batch", 500, "--micro-batches", 6, "--epochs", 1, "--quiet", "--watchdog", 60, "--threads", 1, "--mesh", "data=3"]
    run(binary, 3, *options, "--limit-steps", 4, "--name", "theirs", cwd=folder)
    other = [*options, "--limit-steps", 12, "--resume", "runs/theirs", "--optimizer-state", "keep", "--learning-rate", 0.02]
    for name, begins, more in (("rate", "step 4", ["--inject", "kill:rank=2,phase=backward,step=5"]),
                               ("rounds", "nothing", ["--strategy", "local_sgd", "--sync-period", 4, "--inject", "kill:rank=2,phase=backward,step=6"])):
        done = ended(binary, folder, 3, *other, *more, "--name", name)
        assert done.returncode == 0 and (folder / "runs" / name / "state").read_text() == "completed\n", (name, done.returncode, done.stdout, done.stderr)
        with h5py.File(folder / "runs" / name / "results.h5") as file:
            events = [(event["kind"].decode(), event["detail"].decode()) for event in file["ranks/00000/events"][:]]
        kinds = [kind for kind, _ in events]
        assert kinds.count("lost_rank") == 1 and kinds.count("resumed") == 2, (name, events)
        assert dict(events)["saved_after_loss"].startswith(begins), (name, events)
    print("a run from another run's checkpoint that loses a rank at once goes on with its own options and events", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true", help="every rank in every phase on both meshes")
    parser.add_argument("--out", type=Path, help="where the raw figures go")
    arguments = parser.parse_args()
    if not has_ulfm():
        sys.exit(77)
    cases = drawn(SAMPLE + OTHERS)
    if arguments.full:
        at = {phase: STEP_OF.get(phase, 8) for phase in PHASES}
        cases = [Case(mesh, f"kill:rank={rank},phase={phase},step={at[phase]}", resumed=(STEP_OF.get(phase, 7),))
                 for mesh in MESHES for rank in range(RANKS) for phase in PHASES]
        cases += [Case(mesh, f"kill:rank={(rank + 1) % RANKS},phase=backward,step=8;kill:rank={rank},phase=recovery")
                  for mesh in MESHES for rank in range(RANKS) if mesh == MESHES[0] or rank % 2 == 1]
        cases += OTHERS
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        refused(arguments.binary, 2, 2, ["--on-failure recover", "--with-ft ulfm"], "--on-failure", "recover", cwd=folder)
        refused(arguments.binary, 2, 2, ["--spares 1", "--with-ft ulfm"], "--spares", 1, cwd=folder)
        refused(arguments.binary, 2, 2, ["--spares 2", "none would be left to work", "start at least 3"], "--spares", 2, cwd=folder)
        refused(arguments.binary, 2, 2, ["--spares"], "--spares", -1, cwd=folder)
        refused(arguments.binary, 2, 2, ["--replicate", "use off, or 1 or more"], "--replicate", 0, cwd=folder)
        run(arguments.binary, RANKS, *COMMON, "--name", "undisturbed", cwd=folder)
        expected = facts(folder / "runs/undisturbed")
        for case in cases:
            for seconds in survives(arguments.binary, folder, case, expected):
                rows.append({"mesh": case.mesh, "options": " ".join(map(str, case.options)), "spares": case.spares,
                             "fault": case.fault, "recovered_s": seconds})
        for check in drawn((waits_for_a_survivor_that_comes_late, keeps_the_last_step,
                            partial(completes_without_those_lost_at_shutdown, expected=expected), tells_that_it_died,
                            a_spare_learns_what_the_memory_limit_has_chosen, a_stop_on_request_leaves_spares_alive,
                            another_failure_after_a_loss_ends_the_job, an_error_of_one_rank_after_a_loss_is_no_loss,
                            a_spare_goes_on_with_the_program_that_the_run_kept, dealing_by_speed_goes_on_with_more_copies,
                            a_run_from_anothers_checkpoint_loses_a_rank_before_its_own_first)):
            check(arguments.binary, folder)
        given_up = started(arguments.binary, folder, "aborted", "data=4", "--inject", SAMPLE[0].fault, "--on-failure", "abort")
        assert given_up.returncode == 5 and "rank 0 is gone" in given_up.stderr, (given_up.returncode, given_up.stderr)
        shutil.rmtree(folder / "runs")
    times = [row["recovered_s"] for row in rows]
    print(f"{len(rows)} losses, recovered in {statistics.median(times):.2f} s (median), {max(times):.2f} s at most")
    if arguments.out:
        write_rows(rows, arguments.out, "kills")


if __name__ == "__main__":
    main()
