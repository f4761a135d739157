"""How fast dtrain trains on a GPU, beside PyTorch eager and torch.compile, and beside all CPU cores; part speed of perf/gpu_check.sh.

    python perf/gpu/speed.py --out FOLDER [--cases 'vgg11*' study-mlp] [--limit-s 480]

Measures one case after the other and keeps each in FOLDER/speed.json; what is there already for the same commit and GPU is not
measured again. When the time is up it ends between two cases with exit code 3, and the same command goes on from there. At the
end, and then, it prints tables and writes them to FOLDER/speed.md. Exit codes: 0 all measured, 1 a case failed (the others are
measured all the same, and the next call tries it again), 2 usage or no GPU, 3 time is up.
"""

import argparse
import fnmatch
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import programs
import runs

sys.path.insert(0, str(runs.PEERS))
import cases  # noqa: E402
import report  # noqa: E402
from random_data import RandomData  # noqa: E402
from results import Results  # noqa: E402

GRACE_S = 45  # a case that runs when the time is up may end; with the limit below 9 minutes
CASE_S = 240  # more than any case takes


def parse():
    parser = argparse.ArgumentParser(prog="perf/gpu/speed.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "gpu")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these; * stands for anything")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and exit")
    parser.add_argument("--limit-s", type=float, default=480, help="seconds after which no case begins [480]")
    parser.add_argument("--rounds", type=int, help="of each case, all sides in turn [3; with --quick 1]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to see that all of it runs")
    parser.add_argument("--quick", action="store_true", help="tiny networks and few steps: does it run? The figures mean nothing")
    parser.add_argument("--compile", choices=["on", "off"], help="measure torch.compile too [on; with --quick off]")
    parser.add_argument("--sides", nargs="+", metavar="NAME", default=["*"], help="of the cases beside PyTorch only these, such as "
                        "'dtrain, fused' eager torch.compile; * stands for anything")
    parser.add_argument("--again", action="store_true", help="measure also what is there already")
    parser.add_argument("--dtrain", type=pathlib.Path, default=os.environ.get("DTRAIN", runs.TOP / "build/release/bin/dtrain"))
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = 1 if arguments.quick else 3
    if arguments.rounds < 1:
        parser.error("at least one round is needed")
    if not arguments.list and not os.access(arguments.dtrain, os.X_OK):
        parser.error(f"{arguments.dtrain} is not there; run jobs/build.sh, or name a binary with --dtrain")
    for pattern in arguments.sides:
        if not any(fnmatch.fnmatch(side, pattern) for side in cases.SIDES):
            parser.error(f"there is no side '{pattern}'; use some of {'; '.join(cases.SIDES)}")
    arguments.compiled = arguments.compile == "on" or (arguments.compile is None and not arguments.quick)
    arguments.chosen = chosen(parser, arguments)
    return arguments


def chosen(parser, arguments):
    all_cases = cases.all_cases(arguments.quick)
    patterns = arguments.cases or ["*"]
    for pattern in patterns:
        if not any(fnmatch.fnmatch(case.name, pattern) for case in all_cases):
            parser.error(f"there is no case '{pattern}'; use some of {', '.join(case.name for case in all_cases)}")
    return [case for case in all_cases if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)]


def gpus():
    """Name and driver of each GPU. Ends the program where there is none."""
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True, timeout=60,
                                stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        listed = ""
    found = [tuple(word.strip() for word in line.split(",")) for line in listed.splitlines() if line.strip()]
    if not found:
        print("speed: no GPU: nvidia-smi is missing or finds none; --device cpu --quick only shows that the cases run", file=sys.stderr)
        sys.exit(2)
    return found


def commit():
    """Of the checkout, or as perf/gpu_bundle.sh wrote it down."""
    noted = runs.TOP / "commit"
    if noted.exists():
        return noted.read_text().strip()
    described = subprocess.run(["git", "-C", str(runs.TOP), "describe", "--always", "--dirty"], text=True, capture_output=True, check=False)
    return described.stdout.strip() or "unknown"


def measure(case, bench):
    """Its figures, or its error."""
    bench.limits.begin_case()
    try:
        return case.measure(bench)
    except programs.Failed as error:
        return {"errors": {"case": str(error)}}


def brief(found):
    """A line of progress."""
    figures = ", ".join(f"{side} {figure['per_s']:,.0f}/s" for side, figure in found.get("figures", {}).items())
    return "; ".join(filter(None, [figures, found.get("note", ""), *(f"{side} failed" for side in found["errors"])])) or "done"


def go_through(bench, results, machine, todo):
    """Measures what is left to do. False where the time was up before the end."""
    for number, case in enumerate(todo, 1):
        if bench.limits.spent():
            return False
        start = time.monotonic()
        try:
            found = measure(case, bench)
        except programs.OutOfTime:
            print(f"{case.name}: not done in time", flush=True)
            return False
        took_s = time.monotonic() - start
        kept = results.keep(case, machine, took_s, found)
        print(f"[{number}/{len(todo)}] {case.name}: {brief(kept)} ({took_s:.0f} s)", flush=True)
    return True


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    arguments = parse()
    if arguments.list:
        print("\n".join(case.name for case in arguments.chosen))
        return 0
    found_gpus = gpus() if arguments.device == "cuda" else []
    gpu = found_gpus[0][0] if found_gpus else "cpu"
    settings = {"commit": commit(), "gpu": gpu, "gpus": len(found_gpus), "driver": found_gpus[0][1] if found_gpus else "",
                "quick": arguments.quick, "torch_compile": arguments.compiled, "rounds": arguments.rounds}
    if arguments.sides != ["*"]:
        settings["sides"] = arguments.sides
    arguments.out.mkdir(parents=True, exist_ok=True)
    results, machine = Results(arguments.out / "speed.json", settings), runs.machine()
    todo = arguments.chosen if arguments.again else results.left(arguments.chosen)
    with tempfile.TemporaryDirectory(prefix="dtrain-gpu-speed-") as scratch:
        scratch = pathlib.Path(scratch)
        bench = cases.Bench(program=arguments.dtrain.absolute(), device=arguments.device, gpus=len(found_gpus), quick=arguments.quick,
                            compiled=arguments.compiled, sides=arguments.sides, rounds=arguments.rounds, scratch=scratch,
                            data=RandomData(scratch, arguments.quick), limits=programs.Limits(arguments.limit_s, GRACE_S, CASE_S))
        whole = go_through(bench, results, machine, todo)
    head = (f"# Speed on {gpu}\n\n`{shlex.join(['perf/gpu/speed.py', *sys.argv[1:]])}`, commit {settings['commit']}, {arguments.rounds} "
            f"rounds with all sides in turn; median of these{', tiny sizes: no figures' if arguments.quick else ''}.\nMachine: {machine}"
            + (f"; {len(found_gpus)} x {gpu}, driver {settings['driver']}." if found_gpus else "."))
    text = report.markdown(arguments.chosen, results, head, gpu).replace(f"{runs.TOP}/", "")
    (arguments.out / "speed.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nwritten: speed.json and speed.md")
    if not whole:
        print("time is up: run it again to go on")
        return 3
    return 1 if any(results.of(case)["errors"] for case in arguments.chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
