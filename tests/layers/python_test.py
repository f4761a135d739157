"""Compiles every Python file of the tree with this interpreter, so that one which no test starts has no mistake of syntax.

    python_test.py ROOT
"""

import sys
from pathlib import Path

from clean_text import files


def main():
    root = Path(sys.argv[1])
    sources = [file for file in files(root) if file.suffix == ".py" and ".deps" not in file.parts]
    assert len(sources) > 50, f"found {len(sources)} files of Python under {root}"
    wrong = 0
    for file in sources:
        try:
            compile(file.read_bytes(), str(file.relative_to(root)), "exec")
        except SyntaxError as error:
            wrong += 1
            print(f"{error.filename}:{error.lineno}: {error.msg}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
