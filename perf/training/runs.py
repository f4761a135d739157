"""Starts dtrain and its peers on this machine, one at a time or side by side, and reads what they measured."""

import csv
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import h5py
from dated import free_stem, today  # noqa: F401  # today: for the scripts

TOP = pathlib.Path(__file__).resolve().parents[2]
PEERS = TOP / "perf" / "peers"
RUN_LIMIT_S = 1200


def machine():
    """One line: a number without its machine is not a result."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", text)
    load = os.getloadavg()
    return (f"{model.group(1) if model else 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores, "
            f"load before the start {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}, Python {sys.version.split()[0]}")


def environment(**more):
    """What all programs of a comparison get, and `more`; PyTorch's own advice for several processes on one machine."""
    values = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_COMM", "PMIX_", "SLURM_"))}
    values["OMP_NUM_THREADS"] = "1"
    return values | more


def program_path():
    """DTRAIN is relative to where the script was started; what it starts has another current folder. A link stays one."""
    return os.path.abspath(os.environ.get("DTRAIN") or TOP / "dtrain")


def program():
    path = program_path()
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        sys.exit(f"perf: {path} is not a program; run jobs/build.sh, or name a binary with DTRAIN=PATH")
    return path


def run_measured(command, cwd=TOP, limit_s=RUN_LIMIT_S, **more):
    """Standard output, wall seconds, and the most memory in bytes that one of its processes has had. Ends this program, showing the
    other's last words, when it failed. `more`: further variables of its environment."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        process = subprocess.Popen(command, cwd=cwd, env=environment(**more), stdin=subprocess.DEVNULL, stdout=said, stderr=complained)
        limit = threading.Timer(limit_s, process.kill)
        limit.start()
        try:
            _, status, used = os.wait4(process.pid, 0)  # of it and of those that it has waited for
        except BaseException:
            process.kill()
            raise
        finally:
            limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - start
        texts = []
        for file in (said, complained):
            file.seek(0)
            texts.append(file.read())
    if process.returncode != 0:
        late = f", after its limit of {limit_s} s" if wall_s >= limit_s else ""
        sys.exit(f"perf: {' '.join(map(str, command))}\nended with {process.returncode}{late}\n{texts[0][-2000:]}\n{texts[1][-2000:]}")
    return texts[0], wall_s, used.ru_maxrss * 1024


def run(command, cwd=TOP, limit_s=RUN_LIMIT_S, **more):
    """As run_measured(), without the memory."""
    return run_measured(command, cwd, limit_s, **more)[:2]


def run_side_by_side(commands, cwd=TOP, limit_s=RUN_LIMIT_S):
    started = [subprocess.Popen(command, cwd=cwd, env=environment(), text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    for command, process in zip(commands, started):
        output, _ = process.communicate(timeout=limit_s)
        if process.returncode != 0:
            sys.exit(f"perf: {' '.join(map(str, command))}\nended with {process.returncode}\n{output[-2000:]}")


def dtrain_command(ranks, output, name, *options, oversubscribe=False, core=None):
    """`core`: the whole run on that core only, so that two runs do not choose the same one."""
    command = ["taskset", "-c", str(core)] if core is not None else []
    command += ["mpirun"]
    if oversubscribe:
        command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    elif core is not None:
        command += ["--bind-to", "none"]
    # The peers do not augment either.
    return command + ["-np", str(ranks), program(), "--augment", "off", *map(str, options), "--threads", "1", "--output", str(output),
                      "--name", name, "--overwrite", "--quiet"]


def epochs_table(folder):
    """The table of all ranks' epochs of a finished run."""
    state = (folder / "state").read_text().strip()
    if state != "completed":
        sys.exit(f"perf: {folder}: the run is {state}, not completed")
    with h5py.File(folder / "results.h5", "r", locking=False) as file:
        return file["epochs"][:]


def dtrain_rate(folder):
    """Median samples/s of the epochs after the first, which is the warm-up."""
    return statistics.median(float(value) for value in epochs_table(folder)["samples_per_s"][1:])


def peer_command(script, ranks, *options):
    """One process needs no torchrun: then the script leaves DistributedDataParallel out."""
    if ranks == 1:
        return [sys.executable, str(PEERS / script), *map(str, options)]
    return [shutil.which("torchrun") or "torchrun", "--standalone", "--nproc-per-node", str(ranks),
            str(PEERS / script), *map(str, options)]


def peer_rate(output):
    rates = [float(value) for value in re.findall(r"samples_per_s=([0-9.]+)", output)]
    return statistics.median(rates[1:])


def relative(command):
    """A command line as one would type it at the top of a checkout."""
    text = " ".join(map(str, command)).replace(program_path(), "./dtrain").replace(str(TOP) + "/", "").replace(sys.executable, "python")
    torchrun = shutil.which("torchrun")
    return text.replace(torchrun, "torchrun") if torchrun else text


def exchange_s(scratch, sizes):
    """Seconds of an all_reduce of two ranks by its bytes; of 8 bytes it is little more than their meeting."""
    file = scratch / "topology.h5"
    run(["mpirun", "-np", "2", program(), "topology", "--benchmark", "--sizes", ",".join(map(str, sizes)), "--output", file])
    with h5py.File(file) as measured:
        rows = measured["measurements"][:]
    return {int(row["bytes"]): float(row["median_s"]) for row in rows if row["operation"] == b"all_reduce"}


def median_and_range(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def read_rows(path):
    """The rows of a CSV file, without its lines of comment; none where there is no file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_rows(path, rows, comments=()):
    """Leaves rows as a CSV file, below lines of comment. Rows are dictionaries; one may lack columns that others have."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {comment}\n" for comment in comments)
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_results(folder, name, rows, page, comments=()):
    """Leaves rows as FOLDER/NAME-DATE.csv and what is said of them as FOLDER/NAME-DATE.md, and says where. Earlier figures stay."""
    stem = free_stem(folder, name)
    write_rows(f"{stem}.csv", rows, comments)
    pathlib.Path(f"{stem}.md").write_text(f"{page}\n", encoding="utf-8")
    print(f"\n{page}\n\nwritten: {stem}.csv and .md", flush=True)
