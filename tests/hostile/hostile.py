"""hostile.py DTRAIN [--quick] [--only PART]... [--jobs N] [--out FOLDER] [--faults FILE]: wrong and hostile input.

Runs dtrain on each case and prints a table by class: cases, and faults by kind. Ends with 1 if there is a fault.
--quick takes a fixed choice of cases from each class; --out keeps the table and a row per case."""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import families
import fixtures
import judge


QUICK_OF_A_CLASS = 4


class Trial:
    """One binary, its fixtures, and a folder for all scratch."""

    def __init__(self, binary, root):
        self.binary = str(Path(binary).resolve())
        self.root = root
        self.given = root / "given"
        self.given.mkdir()
        fixtures.make(self.given, self._start)
        self.given_before = judge.fingerprint(self.given)

    def environment(self, folder):
        """Of a shell that knows nothing of a job; what dtrain leaves in home or in TMPDIR would be seen."""
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("SLURM_", "OMPI_COMM_", "PMIX_", "PRTE_", "DTRAIN_", "HDF5_"))}
        return kept | {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "^ofi"}

    def _start(self, folder, *arguments):
        scratch = self.root / "start"
        for name in ("home", "tmp"):
            (scratch / name).mkdir(parents=True, exist_ok=True)
        done = subprocess.run([self.binary, *map(str, arguments)], cwd=folder, env=self.environment(scratch), text=True,
                              capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"hostile.py: the fixtures cannot be made: dtrain {' '.join(map(str, arguments))}\n{done.stderr}")

    def run(self, number, case):
        """The outcome of a case and its faults."""
        place = self.root / f"case-{number}"
        folder, outside = place / "work", place / "outside"
        for each in (folder, outside, place / "home", place / "tmp"):
            each.mkdir(parents=True)
        (outside / "secret.txt").write_text("secret " * 100)
        (outside / "kept").mkdir()
        (outside / "kept" / "results.txt").write_text("of another program")
        try:
            case.prepare(folder, self.given)
        except Exception as error:
            raise RuntimeError(f"the input of {case.title} cannot be made") from error
        before = judge.fingerprint(outside)
        arguments = [word.replace("{given}", str(self.given)) for word in case.arguments]
        outcome = judge.execute([self.binary, *arguments], folder, self.environment(place))
        faults = judge.judge(case, outcome, folder, self.given)
        if judge.fingerprint(outside) != before or any((place / "home").iterdir()):
            faults.append(judge.Fault("wrong data", "touched files outside its folder"))
        shutil.rmtree(place)
        return outcome, faults


def spread(cases, most):
    """At most so many of them, from the first to the last."""
    return [cases[i * len(cases) // most] for i in range(most)] if len(cases) > most else cases


def select(arguments):
    cases = [case for family in families.ALL for case in family.cases]
    titles = [case.title for case in cases]
    twice = {title for title in titles if titles.count(title) > 1}
    if twice:
        sys.exit(f"hostile.py: two cases are called {sorted(twice)[0]}")
    idle = [place for family in families.ALL for place in family.idle_checks()]
    if idle:
        sys.exit(f"{idle[0]}: this check never runs, since no case here may be accepted; name it `after` if it is of what a refusal leaves")
    if arguments.quick:
        cases = [case for family in families.ALL for case in spread([case for case in family.cases if case.quick], QUICK_OF_A_CLASS)]
    return [case for case in cases if not arguments.only or any(part in case.title for part in arguments.only)]


def table(results):
    """Markdown: a row per class."""
    rows = [["class", "cases", *judge.KINDS]]
    names = list(dict.fromkeys(case.family for case, _, _ in results))
    for name in [*names, "all"]:
        chosen = [faults for case, _, faults in results if name in (case.family, "all")]
        rows.append([name, len(chosen), *(sum(fault.kind == kind for faults in chosen for fault in faults) for kind in judge.KINDS)])
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def summary(results):
    slowest = max(results, key=lambda result: result[1].seconds)
    largest = max(results, key=lambda result: result[1].peak_bytes)
    return (f"slowest: {slowest[1].seconds:.1f} s ({ascii(slowest[0].title)[1:-1]}); "
            f"most memory: {largest[1].peak_bytes / 2**20:.0f} MiB ({ascii(largest[0].title)[1:-1]})")


def fault_lines(results):
    for case, outcome, faults in results:
        for fault in faults:
            last = outcome.errors.decode(errors="backslashreplace").strip()[:300]
            title, command = (ascii(text)[1:-1] for text in (case.title, " ".join(case.arguments)[:160]))
            yield f"{title}: {fault.kind}: {fault.text}\n    dtrain {command}\n    said: {ascii(last)[1:-1]}"


def keep(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"cases-{date.today()}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "case", "promised", "exit_code", "seconds", "peak_mib", "faults"])
        for case, outcome, faults in results:
            writer.writerow([case.family, ascii(case.name)[1:-1], " ".join(map(str, sorted(case.codes))), outcome.code, f"{outcome.seconds:.2f}",
                             f"{outcome.peak_bytes / 2**20:.0f}", "; ".join(f"{fault.kind}: {fault.text}" for fault in faults)])
    (folder / "README.md").write_text(
        "# Wrong and hostile input\n\n```sh\n.deps/venv/bin/python tests/hostile/hostile.py ./dtrain --out perf/results/hostile\n```\n\n"
        f"{len(results)} cases, {date.today()}; a row per case is in `cases-{date.today()}.csv`.\n\n{table(results)}\n\n{summary(results)}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="cases whose CLASS/NAME has this; repeat it for more")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--faults", type=Path)
    arguments = parser.parse_args()
    cases = select(arguments)
    if not cases:
        sys.exit(f"hostile.py: no case's title has {' or '.join(arguments.only)}")
    root = Path(tempfile.mkdtemp(prefix="dtrain-hostile-"))
    try:
        trial = Trial(arguments.binary, root)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = list(pool.map(trial.run, range(len(cases)), cases))
        results = [(case, *outcome) for case, outcome in zip(cases, outcomes)]
        untouched = judge.fingerprint(trial.given) == trial.given_before
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(table(results), summary(results), *fault_lines(results), sep="\n")
    if arguments.out:
        keep(arguments.out, results)
    if arguments.faults:
        arguments.faults.write_text("\n".join(fault_lines(results)) + "\n")
    if not untouched:
        print("hostile.py: a case changed the fixtures")
    return 0 if untouched and not any(faults for _, _, faults in results) else 1


if __name__ == "__main__":
    sys.exit(main())
