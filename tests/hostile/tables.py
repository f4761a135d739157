"""CSV as it comes from the world: gaps, infinities, decimal commas, other line ends and alphabets."""

import numpy as np

import staged
from case import STAGE, Family

FAMILY = Family("tables")
N = 40
WIDTHS = [f"{1 + i / 7:.4f}" for i in range(N)]
LENGTHS = [f"{9 - i / 5:.4f}" for i in range(N)]
KINDS = [("red", "blue", "green")[i % 3] for i in range(N)]
HEADER = ("width", "length", "kind")
STAGE_CSV = (*STAGE, "in.csv")


def rows(widths=WIDTHS, lengths=LENGTHS, kinds=KINDS, header=HEADER, separator=",", end="\n"):
    lines = [separator.join(header)] if header else []
    lines += [separator.join(cells) for cells in zip(widths, lengths, kinds)]
    return end.join(lines) + end


def text(content, name="in.csv", encoding="utf-8"):
    def prepare(folder, given):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return prepare


def replaced(cells, index, cell):
    return [cell if i == index else old for i, old in enumerate(cells)]


def same(gaps=0):
    """check: two inputs of numbers, besides those that mark gaps, with the values of the file."""
    def check(folder, given, output):
        inputs = staged.array(folder, "inputs")
        if inputs.shape != (N, 2 + gaps):
            return f"inputs have the shape {inputs.shape}"
        if gaps:
            return ""
        wanted = np.stack([np.array(WIDTHS, "f4"), np.array(LENGTHS, "f4")], 1)
        return staged.same_rows(folder, "inputs", wanted)
    return check


ACCEPTED = {
    "as it should be": (rows(), same()), "CR line ends": (rows(end="\r"), same()), "CR LF line ends": (rows(end="\r\n"), same()),
    "semicolons": (rows(separator=";"), same()), "a byte order mark": ("\ufeff" + rows(), same()), "no last line end": (rows()[:-1], same()),
    "blank lines": (rows().replace("\n", "\n\n"), same()), "quoted cells": (rows(kinds=[f'"{k}"' for k in KINDS]), same()),
    "NA for a gap": (rows(replaced(WIDTHS, 4, "NA")), same(gaps=1)), "N/A for a gap": (rows(replaced(WIDTHS, 4, "N/A")), same(gaps=1)),
    "null for a gap": (rows(replaced(WIDTHS, 4, "null")), same(gaps=1)), "nothing for a gap": (rows(replaced(WIDTHS, 4, "")), same(gaps=1)),
    "NaN for a gap": (rows(replaced(WIDTHS, 4, "NaN")), same(gaps=1)),
}
for name, (content, check) in ACCEPTED.items():
    FAMILY.add(name, text(content), *STAGE_CSV, code=0, check=check, quick=name in ("as it should be", "CR line ends", "NA for a gap"))

# However few they are, none of them is a label.
FAMILY.add("a few decimal commas", text(rows([f"{i % 7},5" for i in range(N)], separator=";")), *STAGE_CSV, code=3, says=("line 2", "column width"), quick=True)
FAMILY.add("a thousand columns of a hundred labels", text(",".join(f"c{i}" for i in range(1000)) + ",y\n" + "".join(
    ",".join(f"w{(i + k) % 97}" for i in range(1000)) + f",{'ab'[k % 2]}\n" for k in range(120))), *STAGE_CSV, code=3, says=("--ignore",))
FAMILY.add("two signs", text(rows(replaced(WIDTHS, 3, "+-1.5"))), *STAGE_CSV, code=3, says=("line 5", "column width"))

# What may be read or refused, but never become an input per value.
LATIN = tuple("länge" if name == "length" else name for name in HEADER)
EITHER = {
    "decimal commas": rows([w.replace(".", ",") for w in WIDTHS], [v.replace(".", ",") for v in LENGTHS], separator=";"),
    "one decimal comma": rows(replaced(WIDTHS, 3, "1,5"), separator=";"),
    "inf": rows(replaced(WIDTHS, 3, "inf")), "-Infinity": rows(replaced(WIDTHS, 3, "-Infinity")),
    "1e999": rows(replaced(WIDTHS, 3, "1e999")), "#DIV/0!": rows(replaced(WIDTHS, 3, "#DIV/0!")),
    "a thousands separator": rows(replaced(WIDTHS, 3, "1'000.5")), "a unit": rows(replaced(WIDTHS, 3, "5 cm")), "a percent sign": rows(replaced(WIDTHS, 3, "5%")),
}
for name, content in EITHER.items():
    FAMILY.add(name, text(content), *STAGE_CSV, code={0, 3}, says=("line 2" if name == "decimal commas" else "line 5", "column width"), check=lambda folder, given, output:
               "" if staged.array(folder, "inputs").shape[1] <= 3 else f"{staged.array(folder, 'inputs').shape[1]} inputs of 2 columns",
               quick=name in ("decimal commas", "inf"))
for name, content in {"a header in Latin-1": rows(header=LATIN), "labels in Latin-1": rows(kinds=[k.replace("green", "grün") for k in KINDS])}.items():
    FAMILY.add(name, text(content, encoding="latin-1"), *STAGE_CSV, code={0, 3}, quick=True,
               check=lambda folder, given, output: "" if "ä" in str(staged.facts(folder)) or "ü" in str(staged.facts(folder)) else "lost a letter")
REFUSED = {
    "UTF-16": rows().encode("utf-16"), "binary data": b"\0\1\2" * 100, "nothing": "", "blank lines only": "\n\n\n", "a header only": rows().split("\n")[0] + "\n",
    "one column": "x\n" + "1\n" * 20, "rows of different widths": rows() + "1,2\n", "an open quote": rows() + '"never closed,1,red\n',
    "text behind a quote": rows() + '"a"b,1,red\n', "one class only": rows(kinds=["red"] * N), "a column without values": rows([""] * N),
    "a target without a value": rows(kinds=replaced(KINDS, 2, "")), "a target of NA": rows(kinds=replaced(KINDS, 2, "NA")),
    "a hundred thousand columns of one row": ",".join(["1"] * 100_000) + "\n",
    "two columns of one name": rows(header=("width", "width", "kind")),
    "control characters in the header": rows(header=("wi\x1b[2Jdth", "length", "kind")),
    "control characters in a label": rows(kinds=replaced(KINDS, 2, "\x1b]0;title\x07")),
    "a label of a megabyte": rows(kinds=replaced(KINDS, 2, "x" * 2**20)),
    "numbers too large for float32": rows(replaced(WIDTHS, 3, "1e300")),
}
ALLOWED = {"a label of a megabyte": {0, 3}, "a hundred thousand columns of one row": {0, 3},
           "a target of NA": {0, 3}, "control characters in a label": {0, 3}, "control characters in the header": {0, 3}}


def all_of(*checks):
    return lambda folder, given, output: next(filter(None, (check(folder, given, output) for check in checks)), "")


def classes(count):
    def check(folder, given, output):
        found = len(staged.facts(folder)["classes"])
        return "" if found == count else f"{found} classes instead of {count}"
    return check


# Of those that may be taken: the numbers must be the file's, and each label a class.
READ = {"control characters in the header": same(), "control characters in a label": all_of(same(), classes(4)),
        "a label of a megabyte": all_of(same(), classes(4))}
SAYS = {"two columns of one name": ("two columns width",), "numbers too large for float32": ("1e300", "line 5", "column width"), "a target without a value": ("line 4", "column kind"),
        "a target of NA": ("line 4", "column kind")}
for name, content in REFUSED.items():
    FAMILY.add(name, text(content), *STAGE_CSV, code=ALLOWED.get(name, 3), check=READ.get(name), says=SAYS.get(name, ()),
               quick=name in ("one class only", "control characters in the header", "numbers too large for float32"))
NUMBERS = [f"{i * 1.5}" for i in range(N)]
for name, cell in {"inf": "inf", "not a number": "nan", "too large for float32": "1e39", "NA": "NA", "a word": "many"}.items():
    FAMILY.add(f"a number to predict that is {name}", text(rows(kinds=replaced(NUMBERS, 3, cell))), *STAGE_CSV, "--task", "regression",
               code=3, says=("line 5", "column kind"), quick=name == "inf")
FAMILY.add("classes of fractions", text(rows(kinds=NUMBERS)), *STAGE_CSV, "--task", "table_classification", code={0, 3},
           check=all_of(same(), classes(N)))
for name, words in {"an unknown target": ("--target", "colour"), "a target of control characters": ("--target", "\x1b[2J"),
                    "a target of no number": ("--target", "width>many"), "an unknown site": ("--site", "town"),
                    "all columns ignored": ("--ignore", "width,length"), "a negative target": ("--target", "-1"),
                    "the target as site": ("--site", "kind"), "a threshold of infinity": ("--target", "width>inf")}.items():
    FAMILY.add(name, text(rows()), *STAGE_CSV, *words, code={0, 2, 3} if name == "the target as site" else 2,
               check=all_of(same(), classes(3)) if name == "the target as site" else None)


# ---- what counts as a gap -------------------------------------------------------------------------------------------
GAPS = {"-999": "-999", "a word": "unknown", "control characters": "\x1b[2J", "a comma and nothing": ",", "blanks": "  ", "a number that is everywhere": "1.0000"}
for name, words in GAPS.items():
    cell = words if name not in ("a comma and nothing", "control characters") else "7.5"
    FAMILY.add(f"--na-values of {name}", text(rows(replaced(WIDTHS, 4, cell))), *STAGE_CSV, "--na-values", words, code={0, 2, 3},
               check=lambda folder, given, output: "" if staged.array(folder, "inputs").shape[1] in (2, 3) else "inputs that are none", quick=name == "-999")
EVERYTHING = ",".join(WIDTHS)
for name, words, code in (("all values of a column", EVERYTHING, 3), ("nothing", "", {0, 2}), ("100 KB", "x" * 100_000, {0, 2}), ("ten thousand texts", ",".join(f"x{i}" for i in range(10_000)), {0, 2}),
                          ("the classes", "red,blue,green", 3), ("bytes that are no text", b"\xff\xfe".decode("utf-8", "surrogateescape"), {0, 2})):
    FAMILY.add(f"--na-values of {name}", text(rows()), *STAGE_CSV, "--na-values", words, code=code, check=same())
FAMILY.add("--na-values for images", lambda folder, given: (folder / "in").mkdir(), *STAGE, "in", "--format", "images", "--na-values", "-1", code={2, 3})


# ---- files of their own for validation and test ---------------------------------------------------------------------
def apart(other, name="test.csv"):
    def prepare(folder, given):
        (folder / "in.csv").write_text(rows())
        if other is not None:
            (folder / name).write_bytes(other if isinstance(other, bytes) else other.encode())
    return prepare


def as_many_as(count):
    def check(folder, given, output):
        found = len(staged.array(folder, "inputs"))
        return "" if found == count else f"{found} rows"
    return check


FAMILY.add("a test file", apart(rows()), *STAGE_CSV, "--test", "test.csv", code=0, check=as_many_as(2 * N))
APART = {"of other columns": rows(header=("width", "height", "kind")), "of a column more": rows().replace("\n", ",1\n"), "without rows": ",".join(HEADER) + "\n", "of nothing": "",
         "of another order": rows(header=("length", "width", "kind")), "with a word for a number": rows(replaced(WIDTHS, 3, "many")), "with infinity": rows(replaced(WIDTHS, 3, "inf")),
         "with a class that is new": rows(kinds=replaced(KINDS, 3, "violet")), "of binary data": b"\0\1\2" * 99, "that is gone": None}
for name, other in APART.items():
    for option in ("--test", "--validation"):
        FAMILY.add(f"{option} {name}", apart(other), *STAGE_CSV, option, "test.csv", code={0, 3} if name in ("of another order", "with a class that is new") else {2, 3} if other is None else 3)
FAMILY.add("one file for --test and --validation", apart(rows()), *STAGE_CSV, "--test", "test.csv", "--validation", "test.csv", code={0, 2, 3})
FAMILY.add("the file of --from for --test", apart(rows()), *STAGE_CSV, "--test", "in.csv", code={0, 2, 3})
FAMILY.add("--test /dev/zero", apart(rows()), *STAGE_CSV, "--test", "/dev/zero", code={2, 3})


def other_columns(folder, given):
    (folder / "in").mkdir()
    (folder / "in" / "train.csv").write_text(rows())
    (folder / "in" / "test.csv").write_text(rows(header=("width", "height", "kind")))


def new_class(folder, given):
    (folder / "in").mkdir()
    (folder / "in" / "train.csv").write_text(rows())
    (folder / "in" / "test.csv").write_text(rows(kinds=["violet"] * N))


FAMILY.add("files with other columns", other_columns, *STAGE, "in", code=3)
FAMILY.add("a class that only the test has", new_class, *STAGE, "in", code={0, 3}, check=classes(4))


def odd_name(folder, given):
    (folder / "in").mkdir()
    for name in (b"caf\xe9.csv", b"a\x1b[2J.csv"):
        with open(bytes(folder / "in") + b"/" + name, "w", encoding="utf-8") as file:
            file.write(rows())


FAMILY.add("file names that are no text", odd_name, *STAGE, "in", code={0, 3})
FAMILY.add("a million rows of one column too many", text(rows() + "1,2,red\n" * 300_000 + "1,2,3,4\n"), *STAGE_CSV, code=3)
