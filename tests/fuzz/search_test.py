"""search.py with programs that stand in for the fuzzers: what they say becomes rows, and one that does not end is ended."""

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEARCH = Path(__file__).resolve().parent / "search.py"
STATUS = "#{}: cov: 12 ft: 34 corp: 5 exec/s: 60 oom/timeout/crash: 1/2/3 time: 1s job: 1 dft_time: 0"
# As libFuzzer does: numbers grow, the last line counts; what it keeps goes into the first folder that it is given.
GOOD = f"""#!/bin/sh
for word; do case $word in -*) ;; *) : >"$word/kept-$$"; break ;; esac; done
echo '{STATUS.format(10)}' >&2
echo '{STATUS.format(4321)}' >&2
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        programs, found = Path(folder) / "programs", Path(folder) / "found"
        programs.mkdir()

        def stand_in(reader, text):
            program = programs / f"fuzz_{reader}"
            program.write_text(text)
            program.chmod(0o755)

        def search(*words):
            return subprocess.run([sys.executable, SEARCH, programs, found, "--seconds", "1", *words], capture_output=True, text=True,
                                  timeout=60, check=False)

        stand_in("idx", GOOD)
        stand_in("toml", GOOD)
        done = search("--rounds", "2", "--readers", "idx", "toml")
        assert done.returncode == 0, done
        with open(found / "searches.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["reader"] for row in rows] == ["idx", "toml", "idx", "toml"], rows
        assert {row["executions"] for row in rows} == {"4321"}, rows
        assert [row["inputs_kept"] for row in rows] == ["1", "1", "2", "2"], rows
        assert all((row["out_of_memory"], row["too_slow"], row["crashes"]) == ("1", "2", "3") for row in rows), rows

        # It and what it started are ended, and the next reader has its turn.
        stand_in("idx", f"#!/bin/sh\nsleep 50 & echo $! >{folder}/child\nwait\n")
        done = search("--limit-s", "1", "--readers", "idx", "toml")
        assert done.returncode == 0 and "idx: took more than 1 s" in done.stdout and "reader toml" in done.stdout, done
        child = int(Path(folder, "child").read_text())
        limit = time.monotonic() + 20
        while os.path.exists(f"/proc/{child}") and "Z" not in Path(f"/proc/{child}/stat").read_text().split(")")[1][:3]:
            assert time.monotonic() < limit, "what it started goes on"
            time.sleep(0.05)

        stand_in("idx", "#!/bin/sh\necho 'ERROR: no such option' >&2\nexit 1\n")
        done = search("--readers", "idx")
        assert done.returncode != 0 and "no search: ERROR: no such option" in done.stderr, done
        done = search("--readers", "npy")
        assert done.returncode != 0 and "cmake --build --preset fuzz builds it" in done.stderr, done


main()
