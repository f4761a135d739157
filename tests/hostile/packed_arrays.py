""".npz files: arrays of NumPy in a zip, which may lie, lack, repeat or unpack a thousandfold."""

import io
import random
import zipfile

import numpy as np

import staged
from arrays import INPUTS, LABELS, described, header, spoiled
from case import STAGE, Family

FAMILY = Family("npz")
STAGE_NPZ = (*STAGE, "in.npz", "--inputs", "x", "--targets", "y")


def npy_bytes(values):
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


X, Y = npy_bytes(INPUTS), npy_bytes(LABELS)


def npz(*members, change=lambda content: content, packing=zipfile.ZIP_DEFLATED):
    """prepare: in.npz with the given (name, bytes, or a function that gives pieces)."""
    def prepare(folder, given):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", packing) as archive:
            for name, content in members:
                if not callable(content):
                    archive.writestr(name, content)
                    continue
                with archive.open(name, "w", force_zip64=True) as member:
                    for piece in content():
                        member.write(piece)
        (folder / "in.npz").write_bytes(change(stream.getvalue()))
    return prepare


def whole(folder, given, output):
    return staged.same_rows(folder, "inputs", INPUTS)


def cut(share):
    return lambda content: content[:int(len(content) * share)]


def flipped(count, seed):
    def change(content):
        content = bytearray(content)
        chance = random.Random(seed)
        for _ in range(count):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return bytes(content)
    return change


def zeros():
    yield header("{'descr': '<f4', 'fortran_order': False, 'shape': (196608000, 4)}\n")
    for _ in range(3000):
        yield bytes(1 << 20)


FAMILY.add("as it should be", npz(("x.npy", X), ("y.npy", Y)), *STAGE_NPZ, code=0, check=whole, quick=True)
FAMILY.add("inputs without numbers", npz(("x.npy", npy_bytes(INPUTS[:, :0])), ("y.npy", Y)), *STAGE_NPZ, code=3, says=("[n, 0]", "at least one number"))
FAMILY.add("stored as they are", npz(("x.npy", X), ("y.npy", Y), packing=zipfile.ZIP_STORED), *STAGE_NPZ, code=0, check=whole)
FAMILY.add("a third array of objects", npz(("x.npy", X), ("y.npy", Y), ("z.npy", described("'|O'"))), *STAGE_NPZ, code={0, 3}, check=whole)
REFUSED = {
    "no arrays": (), "no inputs": (("y.npy", Y),), "no targets": (("x.npy", X),), "text for an array": (("x.npy", b"1 2 3\n"), ("y.npy", Y)),
    "objects": (("x.npy", described("'|O'")), ("y.npy", Y)), "an empty member": (("x.npy", b""), ("y.npy", Y)),
    "more rows than bytes": (("x.npy", described(shape="(300, 4)")), ("y.npy", Y)),
    "a shape whose product wraps": (("x.npy", described(shape="(4611686018427387904, 4)")), ("y.npy", Y)),
    "2^40 rows of nothing": (("x.npy", described(shape=f"({2**40}, 0)")), ("y.npy", Y)),
    "a header of noise": (("x.npy", header("\x1b[2J\x07" * 20)), ("y.npy", Y)), "other numbers of rows": (("x.npy", npy_bytes(INPUTS[:9])), ("y.npy", Y)),
    "not a number": (("x.npy", npy_bytes(spoiled(INPUTS, (7, 2), np.nan))), ("y.npy", Y)),
    "a negative class": (("x.npy", X), ("y.npy", npy_bytes(spoiled(LABELS, 3, -1)))), "a class of 2^62": (("x.npy", X), ("y.npy", npy_bytes(spoiled(LABELS, 3, 2**62)))),
    "one class": (("x.npy", X), ("y.npy", npy_bytes(LABELS * 0))),
    "a test of another shape": (("x_train.npy", X), ("y_train.npy", Y), ("x_test.npy", npy_bytes(INPUTS[:, :3])), ("y_test.npy", Y)),
    "a test without targets": (("x_train.npy", X), ("y_train.npy", Y), ("x_test.npy", X)),
    "a test only": (("x_test.npy", X), ("y_test.npy", Y)),
    "a member that climbs": (("x.npy", X), ("y.npy", Y), ("../outside/z.npy", X)), "3 GB of zeros": (("x.npy", zeros), ("y.npy", Y)),
    "names of control characters": (("\x1b[2J\x07.npy", X), ("y.npy", Y)),
}
for name, members in REFUSED.items():
    FAMILY.add(name, npz(*members), *STAGE_NPZ, code={2, 3} if name in ("no arrays", "no inputs", "no targets", "names of control characters") else 3,
               quick=name in ("3 GB of zeros", "a negative class"))
FAMILY.add("two arrays of one name", npz(("x.npy", X), ("x.npy", npy_bytes(-INPUTS)), ("y.npy", Y)), *STAGE_NPZ, code=3)
FAMILY.add("an array of one name with and without ending", npz(("x", npy_bytes(-INPUTS)), ("x.npy", X), ("y.npy", Y)), *STAGE_NPZ, code=3)
FAMILY.add("a thousand arrays beside them", npz(("x.npy", X), ("y.npy", Y), *((f"z{i}.npy", Y) for i in range(1000))), *STAGE_NPZ, code=0, check=whole)
for share in (0.1, 0.5, 0.9, 0.99):
    FAMILY.add(f"cut to {share}", npz(("x.npy", X), ("y.npy", Y), change=cut(share)), *STAGE_NPZ, code={2, 3})
for seed in range(10):
    FAMILY.add(f"eight bytes changed, {seed}", npz(("x.npy", X), ("y.npy", Y), change=flipped(8, seed)), *STAGE_NPZ, code={0, 2, 3})
WORDS = {"no --inputs": ("--targets", "y"), "no --targets": ("--inputs", "x"), "--inputs of control characters": ("--inputs", "\x1b[2J", "--targets", "y"),
         "one array for both": ("--inputs", "x", "--targets", "x"), "--inputs of 100 KB": ("--inputs", "x" * 100_000, "--targets", "y")}
for name, words in WORDS.items():
    # A row may be its own target: what a network is to reproduce.
    FAMILY.add(name, npz(("x.npy", X), ("y.npy", Y)), *STAGE, "in.npz", *words, code={0, 2, 3} if name == "one array for both" else {2, 3})
