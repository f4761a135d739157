"""README.md and docs/: links and file names lead somewhere, a page begins with a command, and README is a front page.

    pages.py ROOT              checks the tree at ROOT; prints one line per violation; exit 1 if there is one
    pages.py ROOT --self-test  plants each kind of violation in a small tree and demands that it is found
"""

import re
import sys
import tempfile
from pathlib import Path

README_LINES = 150
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FOLDERS = "app cmake data docs jobs lib perf tests"
# A path from the top of the checkout, as commands and sentences name it.
NAMED = re.compile(r"(?<![\w./~$}<-])(?:\./)?((?:" + FOLDERS.replace(" ", "|") + r")/[\w.@-]+(?:/[\w.@-]+)*)(?![\w*{<])")
MADE_LATER = ("data/staged", "data/raw", "perf/results/full-")
PLACEHOLDER = re.compile(r"(^|[/._-])(NAME|MODEL|DATE|DIR|FOLDER|FILE|PART|N+)([/._-]|$)")


def anchor(heading):
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {anchor(line.lstrip("#")) for line in FENCE.sub("", text).splitlines() if line.startswith("#")}


def check_links(page, text, root):
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, section = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"links to {target}, which is not there"
        elif section and (file.suffix != ".md" or section not in anchors(file.read_text())):
            yield f"links to {target}, but {file.relative_to(root.resolve())} has no such heading"


def check_names(text, root):
    for name in sorted({name.rstrip(".") for name in NAMED.findall(text)}):
        if not name.startswith(MADE_LATER) and not PLACEHOLDER.search(name) and not (root / name).exists():
            yield f"names {name}, which is not there"


def violations(root):
    readme = root / "README.md"
    pages = sorted((root / "docs").glob("**/*.md"))
    for page in [readme, *pages, *sorted((root / "perf").glob("**/*.md"))]:
        text = page.read_text()
        found = list(check_links(page, text, root))
        if page == readme or page in pages:
            found += check_names(text, root)
        if page in pages and not re.match(r"# [^\n]+\n\n```sh\n", text):
            found.append("does not begin with a heading and a command")
        if page in pages and f"docs/{page.name}" not in readme.read_text():
            found.append("is not among README's links")
        if page == readme and len(text.splitlines()) > README_LINES:
            found.append(f"has more than {README_LINES} lines; move what is not for the front page to docs/")
        for problem in found:
            yield f"{page.relative_to(root)}: {problem}"


CLEAN_TREE = {
    "README.md": "# It\n\nSee [data](docs/data.md#own-data) and `jobs/run.sh`; `data/staged/NAME` comes later.\n",
    "docs/data.md": "# Data\n\n```sh\njobs/run.sh  # a comment\n```\n\n## Own data\n\n[back](../README.md)\n",
    "jobs/run.sh": "true\n",
}
PLANTED = [  # (file, a piece of it, what stands there instead, what must then be reported)
    ("README.md", "docs/data.md#", "docs/date.md#", "links to docs/date.md#own-data, which is not there"),
    ("README.md", "#own-data", "#a-comment", "no such heading"),
    ("README.md", "jobs/run.sh", "jobs/walk.sh", "names jobs/walk.sh"),
    ("README.md", "(docs/data.md#own-data)", "", "is not among README's links"),
    ("README.md", "# It\n", "# It\n" * README_LINES, "more than"),
    ("docs/data.md", "jobs/run.sh", "./jobs/walk.sh", "names jobs/walk.sh"),
    ("docs/data.md", "../README.md", "README.md", "which is not there"),
    ("docs/data.md", "# Data\n", "# Data\n\nwords\n", "does not begin with"),
]


def violations_in(files):
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            file = Path(scratch, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return list(violations(Path(scratch)))


def self_test():
    yield from violations_in(CLEAN_TREE)
    for name, piece, planted, expected in PLANTED:
        assert piece in CLEAN_TREE[name], (name, piece)
        found = violations_in(CLEAN_TREE | {name: CLEAN_TREE[name].replace(piece, planted, 1)})
        if not any(expected in line for line in found):
            yield f"a violation planted in {name} was not found; expected '{expected}' in {found}"


def main():
    root = Path(sys.argv[1])
    lines = list(self_test() if sys.argv[2:] == ["--self-test"] else violations(root))
    print("\n".join(lines) if lines else f"pages: nothing found in {root.name}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
