"""Runs stop on request, and go on where they stood: with the same bits, each sample used once, results continued.

    resume.py BINARY [mounts]     mounts: only the parts that mount file systems, as root alone can; 77: skipped
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from faults import fault_library
from drawn import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run, started, step_losses

CNN = ["--model", "cnn", "--epochs", 2, "--limit-steps", 180, "--threads", 1]


def bits(one, other):
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return [name for name in one if not np.array_equal(one[name], other[name])]


def last(folder, step=180):
    return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)


def facts(folder):
    """What must not depend on a stop: samples by epoch, steps, losses, the table of epochs but for its times."""
    with h5py.File(folder / "results.h5") as file:
        ranks = list(file["ranks"].values())
        hashes = {}
        for rank in ranks:
            for row in rank["samples"]:
                hashes[int(row["epoch"])] = (hashes.get(int(row["epoch"]), 0) + int(row["hash"])) % 2**64
        epochs = [tuple(row[name] for name in ("epoch", "train_loss", "validation_loss", "validation_accuracy", "samples"))
                  for row in file["epochs"]]
        steps = [int(step) for step in ranks[0]["steps"]["step"]]
        return hashes, epochs, steps, list(step_losses(file)), file.attrs["status"], file["test"][:].tolist()


def stopped_by(binary, folder, send, *options):
    """Starts a run, has it stopped after some steps, and expects exit code 75."""
    with started([MPIRUN, 2, binary, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        send(process)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 75, (process.returncode, said)
    return said


def after_steps(folder, steps):
    """Sends SIGUSR1 once the live file of rank 0 has so many steps."""
    def send(process):
        limit = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit:
            try:
                with h5py.File(folder / "ranks/rank-00000.h5", "r", locking=False) as file:
                    if len(file["steps"]) >= steps:
                        break
            except (OSError, KeyError):
                pass
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
    return send


def stops_and_goes_on(binary, folder):
    long = [*CNN, "--limit-steps", 0, "--epochs", 60, "--schedule", "constant", "--name", "signalled", "--quiet"]
    stopped_by(binary, folder, after_steps(folder / "runs/signalled", 200), *long)
    run_folder = folder / "runs/signalled"
    assert (run_folder / "state").read_text() == "preempted\n"
    with h5py.File(run_folder / "results.h5") as file:
        assert file.attrs["status"] in ("preempted", b"preempted")
        steps = file["ranks/00000/steps"]["step"]
        stopped_at = int(steps[-1])
        kinds = file["ranks/00000/events"]["kind"].tolist()
    assert b"stopped" in kinds and (run_folder / f"checkpoints/step-{stopped_at:08}/manifest.json").exists(), kinds
    # On another number of ranks; an end soon after.
    on = ["--limit-steps", stopped_at + 150, "--model", "cnn", "--epochs", 60, "--threads", 1, "--schedule", "constant",
          "--name", "signalled", "--quiet"]
    run(binary, 3, *on, cwd=folder)
    run(binary, 2, *[word if word != "signalled" else "undisturbed" for word in on], cwd=folder)
    found, expected = facts(run_folder), facts(folder / "runs/undisturbed")
    assert found[0] == expected[0], "a sample was used twice or not at all"
    assert [row[0] for row in found[1]] == [row[0] for row in expected[1]] and found[2] == expected[2]
    assert np.allclose(found[3], expected[3], rtol=2e-3), np.max(np.abs(np.array(found[3]) / np.array(expected[3]) - 1))
    assert found[4] in ("completed", b"completed")
    with h5py.File(run_folder / "results.h5") as file:
        places = [(int(row["generation"]), int(row["rank"])) for row in file["topology"]]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)], places

    said = run(binary, 2, *CNN, "--limit-steps", 0, "--epochs", 500, "--exit-after", "3s", "--name", "timed", cwd=folder, check=False)
    assert said.returncode == 75 and "stopped" in said.stdout, (said.returncode, said.stdout, said.stderr)
    assert (folder / "runs/timed/state").read_text() == "preempted\n"


def goes_on_bit_by_bit(binary, folder):
    """From every checkpoint of a run, in mid-epoch and at its end, on the same layout; also models whose state is special."""
    for model, options in {"cnn": ["--limit-steps", 180], "nbow": ["--limit-steps", 50],
                           "resnet18": ["--limit-steps", 12, "--model-option", "width=4", "--global-batch", 1000],
                           "gpt": ["--limit-steps", 20, "--model-option", "layers=2", "--model-option", "heads=2",
                                   "--model-option", "width=16", "--global-batch", 64]}.items():
        limit = options[1]
        options = ["--model", model, "--epochs", 2, "--threads", 1, "--quiet", *options]
        every = {"cnn": 70, "nbow": 20, "resnet18": 5, "gpt": 7}[model]
        # nbow's rows are made current for each checkpoint, which rounds: it has the same bits at the same checkpoints.
        options += ["--checkpoint-every", f"{every}steps", "--keep", 10]
        saved = folder / "runs" / f"{model}-saved"
        run(binary, 2, *options, "--name", saved.name, cwd=folder)
        steps = sorted(int(path.name[5:]) for path in (saved / "checkpoints").glob("step-*"))
        assert len(steps) >= 3 and steps[-1] == limit, steps
        for step in steps[:2]:
            cut = folder / "runs" / f"{model}-cut-{step}"
            shutil.copytree(saved, cut, symlinks=True)
            for later in steps:
                if later > step:
                    shutil.rmtree(cut / "checkpoints" / f"step-{later:08}")
            (cut / "state").write_text("failed\n")
            run(binary, 2, *options, "--name", cut.name, cwd=folder)
            assert not bits(last(saved, limit), last(cut, limit)), (model, step)
            assert str(facts(saved)[:4]) == str(facts(cut)[:4]), (model, step)  # as text: NaN is NaN


def keeps_what_it_should(binary, folder):
    run(binary, 2, *CNN, "--checkpoint-every", "30steps", "--keep", 2, "--name", "kept", "--quiet", cwd=folder)
    left = sorted(path.name for path in (folder / "runs/kept/checkpoints").iterdir())
    best = os.readlink(folder / "runs/kept/checkpoints/best")
    assert len([name for name in left if name.startswith("step-")]) <= 3 and best in left and "step-00000180" in left, left
    run(binary, 2, *CNN, "--checkpoint-every", "1epoch", "--name", "epochs", "--quiet", cwd=folder)
    assert (folder / "runs/epochs/checkpoints/step-00000128").exists()
    run(binary, 2, *CNN, "--checkpoint-every", "0.03s", "--keep", 99, "--name", "clock", "--quiet", cwd=folder)
    assert len(list((folder / "runs/clock/checkpoints").glob("step-*"))) > 2


def flip(file, at=None):
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    file.write_bytes(data)


def refuses(binary, folder):
    runs = folder / "runs"
    saved = runs / "finished"
    same = ["--model", "cnn", "--epochs", 2, "--limit-steps", 180, "--threads", 1, "--quiet"]
    run(binary, 2, *same, "--checkpoint-every", "70steps", "--keep", 10, "--name", saved.name, cwd=folder)

    def unfinished(name):
        shutil.copytree(saved, runs / name, symlinks=True)
        (runs / name / "state").write_text("failed\n")
        return runs / name / "checkpoints"

    refused(binary, 2, 2, ["finished run", "runs/finished"], *same, "--name", saved.name, cwd=folder)
    unfinished("again")
    refused(binary, 2, 2, ["again", "failed"], *same, "--name", "again", "--resume", "none", cwd=folder)
    refused(binary, 2, 2, ["--learning-rate", "--seed", "other settings"], *same, "--learning-rate", 0.5, "--seed", 7,
            "--name", "again", cwd=folder)
    refused(binary, 2, 2, ["--model was cnn and is mlp"], "--model", "mlp", "--quiet", "--name", "again", cwd=folder)
    refused(binary, 2, 2, ["--model was cnn and is mlp"], "--model", "mlp", "--quiet", "--name", "new",
            "--resume", "runs/finished/checkpoints/best", cwd=folder)
    refused(binary, 2, 2, ["180 steps", "only 100", "--limit-steps"], *[100 if word == 180 else word for word in same],
            "--name", "again", cwd=folder)
    refused(binary, 1, 2, ["--checkpoint-every", "often"], *same, "--checkpoint-every", "often", cwd=folder)
    refused(binary, 1, 2, ["--exit-after", "3steps"], *same, "--exit-after", "3steps", cwd=folder)
    refused(binary, 1, 2, ["--keep"], *same, "--keep", 0, cwd=folder)
    (folder / "a_file").write_text("x")
    refused(binary, 1, 4, ["a_file"], *same, "--name", "new", "--resume", "a_file", cwd=folder)
    refused(binary, 1, 4, ["nowhere"], *same, "--name", "new", "--resume", "nowhere", cwd=folder)

    # The newest is damaged: the one before is taken, and said so.
    checkpoints = unfinished("damaged")
    flip(checkpoints / "step-00000180/part-00000.h5")
    said = run(binary, 2, *[word for word in same if word != "--quiet"], "--name", "damaged", cwd=folder).stdout
    assert "passed over" in said and "part-00000.h5" in said and "step 140 of 180" in said, said
    assert (checkpoints / "step-00000180.damaged").exists() and not bits(last(saved), last(runs / "damaged"))
    # All are.
    checkpoints = unfinished("ruined")
    for path in checkpoints.glob("step-*"):
        flip(path / "manifest.json")
    before = sorted(path.name for path in checkpoints.iterdir())
    refused(binary, 2, 4, ["no checkpoint is whole", "manifest.json"], *same, "--name", "ruined", cwd=folder)
    assert before == sorted(path.name for path in checkpoints.iterdir())

    # Edited by hand, with a new sum: the tensor is named.
    def edited(name, change):
        target = unfinished(name) / "step-00000180"
        manifest = json.loads((target / "manifest.json").read_text())
        change(manifest)
        text = json.dumps(manifest)
        (target / "manifest.json").write_text(text)
        refused(binary, 2, 4, ["manifest.json", "damaged"], *same, "--name", "new", "--resume", target, cwd=folder)
        sums = subprocess.run(["sha256sum", "manifest.json"], cwd=target, capture_output=True, text=True, check=True).stdout
        (target / "manifest.sha256").write_text(sums)
        return target

    def without(manifest):
        manifest["tensors"] = [tensor for tensor in manifest["tensors"] if tensor["name"] != "model/fc1.weight"]

    def renamed(manifest):
        next(tensor for tensor in manifest["tensors"] if tensor["name"] == "optimizer/momentum_buffer/fc1.bias")["name"] += "x"

    def reshaped(manifest):
        tensor = next(tensor for tensor in manifest["tensors"] if tensor["name"] == "model/fc1.bias")
        tensor["shape"] = tensor["slices"][0]["shape"] = [119]

    def newer(manifest):
        manifest["version"] = 99

    for name, change, words in [("without", without, ["fc1.weight"]), ("renamed", renamed, ["momentum_buffer/fc1.bias"]),
                                ("reshaped", reshaped, ["fc1.bias", "119"]), ("newer", newer, ["version 99"])]:
        target = edited(name, change)
        refused(binary, 2, 4, words, *same, "--name", "new", "--resume", target, cwd=folder)
    assert not (runs / "new/checkpoints").exists()

    # Of a version that did not have an option yet: its default was in force.
    def older(manifest):
        manifest["config"] = "\n".join(line for line in manifest["config"].splitlines()
                                       if not line.startswith(("reproducible", "bucket-mb")))

    target = edited("older", older)
    run(binary, 2, *same, "--name", "older", cwd=folder)
    target = edited("older_still", older)
    refused(binary, 2, 2, ["--reproducible was false and is true"], *same, "--reproducible", "--name", "newer_still", "--resume", target,
            cwd=folder)
    assert not (runs / "newer_still").exists()


def goes_on_elsewhere(binary, folder):
    """On other machines data lies elsewhere and cores are others: no reason to refuse. A finished run is trained further."""
    subprocess.run([binary, "stage", "small", "--format", "synthetic", "--samples", "1000"], cwd=folder, check=True, timeout=60,
                   capture_output=True)
    short = ["--model", "mlp", "--dataset", "small", "--global-batch", 100, "--name", "moved", "--schedule", "cosine"]
    run(binary, 2, *short, "--epochs", 2, "--threads", 1, cwd=folder)
    refused(binary, 2, 2, ["finished run", "more --epochs"], *short, "--epochs", 2, "--threads", 1, cwd=folder)
    (folder / "data/staged").rename(folder / "elsewhere")
    (folder / "scratch").mkdir()
    steps = facts(folder / "runs/moved")[2][-1]
    done = run(binary, 3, *short, "--epochs", 4, "--threads", 2, "--data-root", "elsewhere", "--staging", "local=scratch",
               "--bucket-mb", 1, "--all-reduce", "ring", cwd=folder)
    assert f"was laid out for {steps} steps and is for {2 * steps}" in done.stderr, done.stderr
    assert "1 of 3 data ranks have nothing to do" in done.stderr, done.stderr
    found = facts(folder / "runs/moved")
    assert [row[0] for row in found[1]] == [1, 2, 3, 4] and found[2] == list(range(1, 2 * steps + 1)), found[1:3]
    exact = ["--model", "mlp", "--reproducible", "--epochs", 1, "--name", "exact", "--quiet"]
    run(binary, 1, *exact, "--limit-steps", 3, cwd=folder)
    refused(binary, 1, 2, ["--threads was 1 and is 2"], *exact, "--limit-steps", 6, "--threads", 2, cwd=folder)
    run(binary, 2, *exact, "--limit-steps", 6, cwd=folder)


def survives_a_full_disk(binary, folder):
    """A checkpoint that fails is removed and reported, the run goes on, and its exit code says so."""
    blocked = folder / "runs/blocked"
    limited = f'trap "" XFSZ; ulimit -f 1500; exec "{binary}" "$@"'  # KiB; the checkpoint takes 2.6 MiB
    options = ["--model", "mlp", "--epochs", "1", "--limit-steps", "40", "--checkpoint-every", "10steps", "--name", "blocked",
               "--optimizer", "adam", "--record-steps", "off"]
    done = subprocess.run(["bash", "-c", limited, "bash", *options], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4, (done.returncode, done.stdout, done.stderr)
    assert "checkpoint of step 10 is missing" in done.stderr and "epoch" in done.stdout, (done.stdout, done.stderr)
    assert not list(blocked.glob("checkpoints/step-*")), list(blocked.glob("checkpoints/*"))
    assert (blocked / "state").read_text() == "failed\n"


def survives_a_small_disk(binary, folder):
    """Of 3 MiB, which checkpoints and results do not fit: HDF5 must not meet its end. Only root can make one up."""
    (folder / "small").mkdir()
    script = ('mount -t tmpfs -o size=3m none small; "$@"; echo "code $?"; cat small/filled/state; '
              '"$1" report small/filled >report.txt; echo "report $?"; exit 0')
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", str(binary), "--model", "mlp", "--threads", "1", "--epochs", "25",
                           "--checkpoint-every", "200steps", "--output", "small", "--name", "filled", "--quiet"],
                          cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == ["code 4", "failed", "report 0"], (done.stdout, done.stderr)
    assert "is missing" in done.stderr.splitlines()[-1] and "failed" in (folder / "report.txt").read_text(), done.stderr


def written(folder):
    """Steps whose checkpoints were written, in that order."""
    with h5py.File(folder / "results.h5", locking=False) as file:
        events = file["ranks/00000/events"][:]
    return [int(event["detail"].split()[1]) for event in events if event["kind"] == b"checkpoint"]


def writes_the_best_when_it_happens(binary, folder):
    """A run that ends badly leaves it, and can be resumed; each is written once."""
    short = ["--model", "mlp", "--global-batch", 500, "--epochs", 4, "--threads", 1]  # 17 steps an epoch
    run(binary, 2, *short, "--checkpoint-every", "1epoch", "--keep", 9, "--name", "once", "--quiet", cwd=folder)
    assert written(folder / "runs/once") == [17, 34, 51, 68], written(folder / "runs/once")
    assert os.readlink(folder / "runs/once/checkpoints/best") == "step-00000068"  # each epoch is better
    run(binary, 2, *short, "--checkpoint-every", "17steps", "--keep", 9, "--name", "by-steps", "--quiet", cwd=folder)
    assert written(folder / "runs/by-steps") == [17, 34, 51, 68], written(folder / "runs/by-steps")

    # A run's folder stands for its newest checkpoint, which `last` leads to.
    assert os.readlink(folder / "runs/once/checkpoints/last") == "step-00000068"
    further = run(binary, 2, *short[:-4], "--epochs", 5, "--threads", 1, "--name", "further", "--resume", "runs/once", cwd=folder)
    assert "runs/once/checkpoints/step-00000068, step 68 of 85" in further.stdout, further.stdout
    (folder / "none/checkpoints").mkdir(parents=True)
    refused(binary, 2, 4, ["none/checkpoints", "holds no checkpoint"], *short, "--name", "nothing", "--resume", "./none",
            cwd=folder)
    # Without --checkpoint-every epochs leave one, too: here the last validation is not the best.
    run(binary, 1, *short, "--learning-rate", 0.3, "--name", "by-default", "--quiet", cwd=folder)
    assert written(folder / "runs/by-default")[0] == 17, written(folder / "runs/by-default")

    done = run(binary, 2, *short, "--inject", "nan:rank=1,step=40", "--name", "nan", cwd=folder, check=False)
    assert done.returncode == 1 and "not finite" in done.stderr, (done.returncode, done.stderr)
    best = folder / "runs/nan/checkpoints/best"
    assert os.readlink(best) == "step-00000034" and (best / "manifest.json").exists()

    done = run(binary, 1, *short, "--inject", "kill:rank=0,step=50", "--name", "killed", cwd=folder, check=False)
    checkpoints = folder / "runs/killed/checkpoints"
    assert done.returncode != 0 and os.readlink(checkpoints / "best") in ("step-00000017", "step-00000034"), done
    run(binary, 1, *short, "--name", "killed", "--quiet", cwd=folder)
    assert facts(folder / "runs/killed")[2][-1] == 68 and len(facts(folder / "runs/killed")[5]) == 1

    every = [*short, "--checkpoint-every", "5steps", "--keep", 9, "--name", "forgets"]
    run(binary, 1, *every, "--inject", "kill:rank=0,step=44", cwd=folder, check=False)
    checkpoints = folder / "runs/forgets/checkpoints"
    shutil.rmtree(checkpoints / "step-00000034")
    said = run(binary, 1, *every, "--limit-steps", 45, cwd=folder).stdout
    assert "the best is forgotten" in said and "step-00000034" in said, said
    assert (checkpoints / "best/manifest.json").exists()


def a_run_from_another_goes_on_by_the_same_command(binary, folder):
    """A job that was begun with --resume PATH and came back to the queue goes on with its own checkpoints."""
    common = ["--model", "mlp", "--threads", 1, "--micro-batches", 2, "--checkpoint-every", "5steps", "--keep", 9, "--quiet"]
    run(binary, 1, *common, "--limit-steps", 4, "--name", "source", cwd=folder)
    longer = [*common, "--limit-steps", 20, "--resume", "runs/source"]
    run(binary, 1, *longer, "--name", "unbroken", cwd=folder)
    failed = run(binary, 1, *longer, "--name", "requeued", "--inject", "fail:rank=0,step=13", cwd=folder, check=False)
    assert failed.returncode != 0 and (folder / "runs/requeued/checkpoints/step-00000010").is_dir(), failed.stderr
    shutil.rmtree(folder / "runs/source")
    run(binary, 1, *longer, "--name", "requeued", cwd=folder)
    assert not bits(*(last(folder / "runs" / name, 20) for name in ("unbroken", "requeued")))


def the_first_command_goes_on_after_one_by_hand(binary, folder):
    """`--resume auto` in between does not make the run forget where it was begun from."""
    common = ["--model", "mlp", "--threads", 1, "--micro-batches", 2, "--checkpoint-every", "5steps", "--keep", 9, "--quiet"]
    run(binary, 1, *common, "--limit-steps", 4, "--name", "origin", cwd=folder)
    common += ["--limit-steps", 30, "--name", "by-hand"]
    first = [*common, "--resume", "runs/origin"]
    for options, step in ((first, 13), ([*common, "--resume", "auto"], 19)):
        failed = run(binary, 1, *options, "--inject", f"fail:rank=0,step={step}", cwd=folder, check=False)
        assert failed.returncode == 1, (failed.returncode, failed.stderr)
    run(binary, 1, *first, cwd=folder)
    with h5py.File(folder / "runs/by-hand/results.h5") as file:
        resumed = [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"resumed"]
    assert [words.split()[1] for words in resumed] == ["step-00000004", "step-00000010", "step-00000015"], resumed


def says_how_a_smaller_batch_goes_on(binary, folder):
    """Its micro-batches are the checkpoint's, which fewer samples cannot feed: the advice works."""
    common = ["--model", "mlp", "--threads", 1, "--quiet", "--epochs", 2]
    run(binary, 2, *common, "--limit-steps", 4, "--global-batch", 64, "--micro-batches", 16, "--epochs", 1, "--name", "sixteen", cwd=folder)
    smaller = [*common, "--global-batch", 8, "--limit-steps", 8, "--resume", "runs/sixteen", "--name", "smaller"]
    refused(binary, 2, 2, ["--global-batch 8", "16 micro-batches", "keep --global-batch 64", "--micro-batches 8 or fewer"], *smaller, cwd=folder)
    refused(binary, 2, 2, ["--global-batch 8", "16 micro-batches", "add --micro-batches 8 or fewer"], *smaller, "--optimizer-state", "keep", cwd=folder)


def goes_on_from_tables_with_impossible_rows(binary, folder):
    """A table that says it has 10^12 rows is none that a run would take over, and no reason to want memory."""
    common = ["--model", "mlp", "--threads", 1, "--checkpoint-every", "5steps", "--quiet", "--name", "impossible"]
    run(binary, 1, *common, "--limit-steps", 10, cwd=folder)
    for name, table in (("results.h5", "epochs"), ("ranks/rank-00000.h5", "steps")):
        path = folder / "runs/impossible" / name
        if path.exists():
            with h5py.File(path, "r+") as file:
                file[table].resize((10**12,))
    said = run(binary, 1, *common, "--limit-steps", 15, cwd=folder)
    assert (folder / "runs/impossible/results.h5.damaged").exists(), (said.stdout, said.stderr)
    with h5py.File(folder / "runs/impossible/results.h5") as file:
        assert file["ranks/00000/steps"]["step"][-1] == 15


def later_checkpoints_clear_a_failure(binary, folder):
    """Room comes back: the run can be resumed, so that it has not failed."""
    command = ["bash", "-c", 'trap "" XFSZ; exec "$@"', "bash", str(binary), "--model", "mlp", "--optimizer", "adam", "--threads", "1",
               "--epochs", "1000", "--checkpoint-every", "0.2s", "--name", "cleared", "--record-steps", "off"]
    with started(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        def newest():
            return max([int(path.name[5:]) for path in folder.glob("runs/cleared/checkpoints/step-*") if path.suffix == ""], default=0)

        def await_newer(than):
            limit = time.monotonic() + 60
            while newest() <= than:
                assert process.poll() is None and time.monotonic() < limit, "no checkpoint comes"
                time.sleep(0.02)

        await_newer(0)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1500 << 10, resource.RLIM_INFINITY))
        warning = process.stderr.readline()
        assert "is missing" in warning, warning
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await_newer(newest())
        process.send_signal(signal.SIGUSR1)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 75, (process.returncode, said)
    assert (folder / "runs/cleared/state").read_text() == "preempted\n"


def waits_for_a_slow_disk(binary, folder):
    """Rank 1 takes longer than the watchdog, which is for collectives: each of its two syncs takes 1.2 s."""
    script = folder / "slow.sh"
    script.write_text(f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export LD_PRELOAD={fault_library(folder)} DTRAIN_FAULTS=slow_sync,\nexec "$@"\n')
    done = run("sh", 2, script, binary, "--model", "mlp", "--model-option", "hidden=1200,1200", "--global-batch", 500, "--limit-steps", 4,
               "--epochs", 1, "--threads", 1, "--watchdog", 2, "--checkpoint-every", "3steps", "--name", "slow-disk", cwd=folder)
    assert "is missing" not in done.stderr and written(folder / "runs/slow-disk") == [3, 4], done.stderr


def needs_a_folder_that_all_see(binary, folder):
    """A rank whose file system is another one: only root can make one up."""
    (folder / "apart").mkdir()
    script = folder / "rank.sh"
    script.write_text('[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"\n'
                      'exec unshare -m sh -c \'mount -t tmpfs none apart && exec "$@"\' sh "$@"\n')
    done = run("sh", 2, script, binary, *CNN, "--output", "apart", "--name", "half", "--quiet", cwd=folder, check=False)
    assert done.returncode == 2 and "rank 1 does not see" in done.stderr and "--output" in done.stderr, (done.returncode, done.stderr)
    assert not (folder / "apart/half").exists()


def main():
    binary = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if sys.argv[2:] == ["mounts"]:
            if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
                print("skipped: no file system can be mounted here, as root alone can")
                sys.exit(77)
            survives_a_small_disk(binary, folder)
            needs_a_folder_that_all_see(binary, folder)
            return
        for check in drawn((goes_on_bit_by_bit, keeps_what_it_should, stops_and_goes_on, refuses, goes_on_elsewhere, survives_a_full_disk,
                            writes_the_best_when_it_happens, a_run_from_another_goes_on_by_the_same_command,
                            the_first_command_goes_on_after_one_by_hand, says_how_a_smaller_batch_goes_on,
                            goes_on_from_tables_with_impossible_rows, later_checkpoints_clear_a_failure, waits_for_a_slow_disk)):
            check(binary, folder)
            print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
