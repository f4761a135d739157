"""Lists lines that may not be in the project.

- The path of a folder of one machine, in any file: such a path works on no other machine.
- The words who, whom, whoever and nobody in README.md, in docs/ and anywhere in the sources of lib/ and app/ (comments,
  messages, names): plain English names the rank, thread, caller or reader instead.

    clean_text.py ROOT
"""

import re
import subprocess
import sys
from pathlib import Path

# Put together from pieces, so that this file does not name them either.
FOLDERS = ["wor" + "k", "roo" + "t", "ho" + r"me/\w+", "Us" + r"ers/\w+", "opt/dtrain-" + "deps", "tmp/bu" + "ild-"]
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(" + "|".join(FOLDERS) + r")(/|\b)")
BARE_WORD = re.compile(r"\b(who|whom|whoever|nobody)\b", re.IGNORECASE)
LISTED = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]


def files(root):
    if (root / ".git").exists():
        listed = subprocess.run(LISTED, cwd=root, check=True, capture_output=True).stdout
        return [root / name for name in listed.decode().split("\0") if name and (root / name).is_file()]
    return [file for top in ("app", "docs", "lib", "jobs", "data", "tests", "cmake", "perf") for file in (root / top).rglob("*")]


def bare_word(name, line):
    """The word that plain English does without, in a page or a source file."""
    page = name == "README.md" or (name.startswith("docs/") and name.endswith(".md"))
    return BARE_WORD.search(line) if page or name.startswith(("lib/", "app/")) else None


def main():
    root = Path(sys.argv[1])
    planted = "see /" + "wor" + "k/main/notes"
    assert MACHINE_PATH.search(planted), "the pattern no longer finds what it is for"
    assert bare_word("docs/data.md", "Whoever owns a row"), "the words are no longer found on a page"
    assert bare_word("app/main.cpp", 'print("for nobody");') and bare_word("lib/core/log.hpp", "f(x);  // Who calls it")
    assert not bare_word("tests/run.sh", "whoever"), "the words are looked for where they are allowed"
    found = 0
    for file in files(root):
        if not file.is_file() or b"\0" in file.read_bytes()[:4096]:
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            name = file.relative_to(root).as_posix()
            for match, problem in ((MACHINE_PATH.search(line), "a path of one machine"),
                                   (bare_word(name, line), "name the rank, thread, caller or reader instead")):
                if match:
                    found += 1
                    print(f"{name}:{number}: {match.group(0)}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
