"""What `predict` reads: new rows, arrays, images and lines, and checkpoints that say what the training's were like."""

import json
import os
import random

import numpy as np

import fixtures
from case import Family
from pictures import blank, encoded, png

FAMILY = Family("new data")
N = 10
COLUMNS = ("width", "length", "place")
PLACES = ("north", "south", "west")


def predict(checkpoint, source, *words, output="out.csv"):
    return ("predict", checkpoint, "--from", source, "--output", output, "--threads", "1", *words)


TABLE = "{given}/of_rows"
ROWS = predict(TABLE, "new.csv")
PHOTOS = predict("{given}/of_images", "new")
ARRAY = predict("{given}/checkpoint", "new.npy")
LINES = predict("{given}/of_text", "new.txt", "--data-root", "{given}")


def table(cells=None, header=COLUMNS, separator=",", end="\n"):
    lines = [separator.join(header)] if header else []
    for i in range(N):
        row = {"width": f"{i + 0.5}", "length": f"{9 - i}", "place": PLACES[i % 3]}
        row |= cells if cells and i == 3 else {}
        lines.append(separator.join(row.get(name, "0") for name in (header or COLUMNS)))
    return end.join(lines) + end


def written(name, content):
    def prepare(folder, given):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        data = content() if callable(content) else content
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return prepare


def answers(count, name="out.csv"):
    """check: so many answers, each a probability."""
    def check(folder, given, output):
        lines = (folder / name).read_text().splitlines()
        return "" if len(lines) == count + 1 else f"{len(lines) - 1} answers for {count} samples"
    return check


def unread(name):
    """after: nothing was written of what was refused."""
    return lambda folder, given, output: f"{name} is there" if (folder / name).exists() else ""


FAMILY.add("an archive of nothing", written("new.csv", b"PK\x03\x04w/,PK\x05\x06" + bytes(18)), *ROWS, code=3, says=("new.csv", "no file"), after=unread("out.csv"), quick=True)


# ---- rows -----------------------------------------------------------------------------------------------------------
ACCEPTED = {"as it should be": table(), "columns in another order": table(header=COLUMNS[::-1]), "CR LF line ends": table(end="\r\n"), "semicolons": table(separator=";"),
            "a gap": table({"width": ""}), "NA": table({"place": "NA"})}
for name, content in ACCEPTED.items():
    FAMILY.add(f"rows: {name}", written("new.csv", content), *ROWS, code=0, check=answers(N), quick=name == "as it should be")
FAMILY.add("rows: -999 for a gap", written("new.csv", table({"width": "-999"})), *ROWS, "--na-values", "-999", code=0, check=answers(N))
REFUSED = {
    "inf": table({"width": "inf"}), "1e999": table({"width": "1e999"}), "1e300": table({"width": "1e300"}), "a word": table({"width": "many"}), "a decimal comma": table({"width": "1,5"}, separator=";"),
    "a label that is new": table({"place": "moon"}), "a label of control characters": table({"place": "\x1b[2J\x07"}), "a label of a megabyte": table({"place": "x" * 2**20}),
    "a column too few": table(header=COLUMNS[:2]), "a column too many": table(header=(*COLUMNS, "kind")), "a column twice": table(header=(*COLUMNS, "width")),
    "columns of control characters": table(header=("\x1b[2J", "length", "place")), "no header": table(header=()), "a header only": ",".join(COLUMNS) + "\n", "nothing": "",
    "binary data": b"\0\1\2" * 100, "UTF-16": table().encode("utf-16"), "an open quote": table() + '"never,1,north\n', "a hundred thousand columns": ",".join(f"c{i}" for i in range(100_000)) + "\n",
    "Latin-1": table({"place": "süden"}).encode("latin-1"),
}
SAYS = {"inf": ("line 5",), "1e999": ("line 5",), "1e300": ("line 5",), "a word": ("line 5", "width"), "a label that is new": ("line 5", "moon")}
for name, content in REFUSED.items():
    FAMILY.add(f"rows: {name}", written("new.csv", content), *ROWS, code=3, says=SAYS.get(name, ()), quick=name in ("1e300", "a label of control characters"))
FAMILY.add("rows: two files", lambda folder, given: [written(f"new/{i}.csv", table())(folder, given) for i in range(2)], *predict(TABLE, "new"), code=3)
FAMILY.add("rows: a FIFO", lambda folder, given: os.mkfifo(folder / "new.csv"), *ROWS, code=3)
FAMILY.add("rows: /dev/zero", lambda folder, given: (folder / "new.csv").symlink_to("/dev/zero"), *ROWS, code=3)
FAMILY.add("rows: a file that is gone", lambda folder, given: None, *ROWS, code=3)
FAMILY.add("rows: images for a table", written("new/1.png", lambda: encoded(np.zeros((4, 4), np.uint8))), *predict(TABLE, "new"), code=3)
for name, words in {"--ignore of a column that is not there": ("--ignore", "ghost"), "--ignore of control characters": ("--ignore", "\x1b[2J"),
                    "--ignore of a megabyte": ("--ignore", "x" * 100_000), "--na-values of control characters": ("--na-values", "\x1b[2J")}.items():
    FAMILY.add(f"rows: {name}", written("new.csv", table()), *ROWS, *words, code={0, 2} if "na-values" in name else 2, check=answers(N))


# ---- arrays ---------------------------------------------------------------------------------------------------------
def array(values):
    def prepare(folder, given):
        np.save(folder / "new.npy", values, allow_pickle=values.dtype == object)
    return prepare


VALUES = np.random.default_rng(3).normal(size=(N, 4)).astype(np.float32)


def spoiled(value):
    values = VALUES.copy()
    values[3, 1] = value
    return values


FAMILY.add("array: as it should be", array(VALUES), *ARRAY, code=0, check=answers(N))
ARRAYS = {"NaN": spoiled(np.nan), "infinity": spoiled(np.inf), "no rows": VALUES[:0], "three columns": VALUES[:, :3], "one number": np.float32(1), "rows of nothing": VALUES[:, :0],
          "whole numbers": VALUES.astype(np.int64), "complex numbers": VALUES.astype(np.complex64), "text": VALUES.astype("U4"), "objects": VALUES.astype(object),
          "five dims": VALUES.reshape(1, 1, 1, N, 4)}
for name, values in ARRAYS.items():
    FAMILY.add(f"array: {name}", array(values), *ARRAY, code={0, 3} if name == "whole numbers" else 3, check=answers(N), quick=name == "NaN")
FAMILY.add("array: cut", lambda folder, given: (array(VALUES)(folder, given), os.truncate(folder / "new.npy", 150)), *ARRAY, code=3)
FAMILY.add("array: rows for what had labels", array(np.zeros((N, 5), np.float32)), *predict(TABLE, "new.npy"), code=3)


# ---- images ---------------------------------------------------------------------------------------------------------
def photo(name="1.png", content=None):
    return written(f"new/{name}", content if content is not None else lambda: encoded(np.full((4, 4), 7, np.uint8)))


def photo_and(name, content):
    return lambda folder, given: (photo()(folder, given), photo(name, content)(folder, given))


FAMILY.add("images: as it should be", photo_and("2.png", lambda: encoded(np.zeros((9, 7, 3), np.uint8))), *PHOTOS, code=0, check=answers(2))
IMAGES = {"a broken one": b"\x89PNG\r\n\x1a\n" * 3, "nothing": b"", "text": b"a cat", "2^31 x 2^31 pixels": png(2**31 - 1, 2**31 - 1), "a blank page of 60000 x 60000": lambda: blank(60000, 60000)}
for name, content in IMAGES.items():
    FAMILY.add(f"images: {name}", photo_and("2.png", content), *PHOTOS, code=3, says=("2.png",), quick=name.startswith("2^31"))
FAMILY.add("images: a blank page of 8000 x 8000", photo_and("2.png", lambda: blank(8000, 8000)), *PHOTOS, code={0, 3}, check=answers(2))
FAMILY.add("images: none", lambda folder, given: (folder / "new").mkdir(), *PHOTOS, code=3)
FAMILY.add("images: a name of control characters", photo_and("a\x1b[2J\x07b\nc,\".png", lambda: encoded(np.zeros((4, 4), np.uint8))), *PHOTOS, code={0, 3})
FAMILY.add("images: a name that is no text", lambda folder, given: (photo()(folder, given), open(bytes(folder / "new") + b"/caf\xe9.png", "wb").write(encoded(np.zeros((4, 4), np.uint8)))),
           *PHOTOS, code={0, 3})


def linked(folder, given):
    photo()(folder, given)
    (folder / "new" / "secret.png").symlink_to(folder.parent / "outside" / "secret.txt")


FAMILY.add("images: a link", linked, *PHOTOS, code=3)

# ---- lines ----------------------------------------------------------------------------------------------------------
FAMILY.add("lines: as it should be", written("new.txt", "word4 word5\nword6 word7 word8\n"), *LINES, code=0, check=answers(2))
TEXTS = {"nothing": "", "an empty line": "word4\n\nword5\n", "binary data": b"\0\1\2\xff" * 50, "Latin-1": "süden\n".encode("latin-1"), "blanks only": "   \n"}
for name, content in TEXTS.items():
    FAMILY.add(f"lines: {name}", written("new.txt", content), *LINES, code=3, quick=name == "Latin-1")
FAMILY.add("lines: a word of 10 MB", written("new.txt", lambda: "x" * 10_000_000 + "\n"), *LINES, code={0, 3}, check=answers(1))
FAMILY.add("lines: a line of two million words", written("new.txt", lambda: "word4 " * 2_000_000 + "\n"), *LINES, code={0, 3}, check=answers(1))
FAMILY.add("lines: a folder", lambda folder, given: (folder / "new.txt").mkdir(), *LINES, code=3)

# ---- where the answers go -------------------------------------------------------------------------------------------
for name, (output, code) in {"no ending": ("out", 2), "another ending": ("out.txt", 2), "a folder that is gone": ("gone/out.csv", 2), "nothing": ("", 2), "control characters": ("\x1b[2J.csv", {0, 2}),
                             "a device": ("/dev/full", 2), "300 letters": ("x" * 300 + ".csv", {2, 3})}.items():
    FAMILY.add(f"output: {name}", written("new.csv", table()), *predict(TABLE, "new.csv", output=output), code=code)
FAMILY.add("output: a folder of that name", lambda folder, given: (written("new.csv", table())(folder, given), (folder / "out.csv").mkdir()), *ROWS, code=2)


def linked_output(folder, given):
    written("new.csv", table())(folder, given)
    (folder / "out.csv").symlink_to(folder.parent / "outside" / "secret.txt")


FAMILY.add("output: a link to another file", linked_output, *ROWS, code={0, 2, 3})


# ---- what the checkpoint says of the training -----------------------------------------------------------------------
def said(change):
    def prepare(folder, given):
        written("new.csv", table())(folder, given)
        place = fixtures.copy(given, folder, "of_rows")
        manifest = json.loads((place / "manifest.json").read_text())
        change(manifest)
        fixtures.seal(place, manifest)
    return prepare


def columns_of(manifest):
    return manifest["transformations"]["columns"]


def column_set(index, **facts):
    return lambda manifest: columns_of(manifest)[index].update(facts)


def facts_set(**facts):
    return lambda manifest: manifest.update(facts)


SAID = {
    "a scale of 0": column_set(0, scale=0.0), "a scale of 1e-320": column_set(0, scale=1e-320), "a shift of 1e308": column_set(0, shift=1e308), "a fill of 1e308": column_set(0, filled_with=1e308),
    "a name of control characters": column_set(0, name="\x1b[2J"), "a name of a megabyte": column_set(0, name="x" * 2**20), "a label that is a number": column_set(-1, label=7),
    "a column fewer": lambda manifest: columns_of(manifest).pop(), "a million columns": lambda manifest: columns_of(manifest).extend(columns_of(manifest)[:1] * 1_000_000),
    "no columns": lambda manifest: manifest["transformations"].update(columns=[]), "no transformations": lambda manifest: manifest.pop("transformations"),
    "one class": facts_set(dataset_classes=["only"]), "no classes": facts_set(dataset_classes=[]), "a hundred classes": facts_set(dataset_classes=[f"c{i}" for i in range(100)]),
    "classes of control characters": facts_set(dataset_classes=["\x1b[2J", "\x07"]), "classes that are numbers": facts_set(dataset_classes=[1, 2]),
    "a negative shape": facts_set(dataset_shape=[-5]), "a shape of 2^62": facts_set(dataset_shape=[2**62]), "no shape": facts_set(dataset_shape=[]), "a shape of fractions": facts_set(dataset_shape=[5.5]),
    "the task of images": facts_set(dataset_task="image_classification"), "an unknown task": facts_set(dataset_task="\x1b[2J"), "regression": facts_set(dataset_task="regression"),
}
MAY_RUN = {"classes of control characters"}
for name, change in SAID.items():
    FAMILY.add(f"checkpoint: {name}", said(change), *predict("of_rows", "new.csv"), code={0, 4} if name in MAY_RUN else {2, 3, 4} if "name" in name or "task" in name or name in ("no columns", "regression") else 4, check=answers(N),
               quick=name == "a scale of 0")
for seed in range(8):
    def shuffled(folder, given, seed=seed):
        content = bytearray(table().encode())
        chance = random.Random(seed)
        for _ in range(6):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (folder / "new.csv").write_bytes(bytes(content))
    FAMILY.add(f"rows: bytes changed, {seed}", shuffled, *ROWS, code={0, 3})
