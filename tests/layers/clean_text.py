"""No file of the project names a folder of the machine it was written on: such a path works for nobody else.

    clean_text.py ROOT
"""

import re
import subprocess
import sys
from pathlib import Path

# Put together from pieces, so that this file does not name them either.
FOLDERS = ["wor" + "k", "roo" + "t", "ho" + r"me/\w+", "Us" + r"ers/\w+", "opt/dtrain-" + "deps", "tmp/bu" + "ild-"]
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(" + "|".join(FOLDERS) + r")(/|\b)")
LISTED = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]


def files(root):
    if (root / ".git").exists():
        listed = subprocess.run(LISTED, cwd=root, check=True, capture_output=True).stdout
        return [root / name for name in listed.decode().split("\0") if name and (root / name).is_file()]
    return [file for top in ("app", "lib", "jobs", "data", "tests", "cmake", "perf") for file in (root / top).rglob("*")]


def main():
    root = Path(sys.argv[1])
    planted = "see /" + "wor" + "k/main/notes"
    assert MACHINE_PATH.search(planted), "the pattern no longer finds what it is for"
    found = 0
    for file in files(root):
        if not file.is_file() or b"\0" in file.read_bytes()[:4096]:
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            match = MACHINE_PATH.search(line)
            if match:
                found += 1
                print(f"{file.relative_to(root)}:{number}: names {match.group(0)}, a path of one machine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
