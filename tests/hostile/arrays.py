"""Original files of arrays: .npy, IDX, CIFAR-10's and HDF5."""

import gzip
import os
import random
import struct
import zlib
from functools import cache

import h5py
import numpy as np

import staged
from case import STAGE, Family

NPY = Family("npy")
IDX = Family("IDX")
CIFAR = Family("CIFAR-10")
H5 = Family("HDF5 originals")
N = 30
STAGE_NPY = (*STAGE, "in", "--inputs", "x.npy", "--targets", "y.npy")
STAGE_H5 = (*STAGE, "in.h5", "--inputs", "/x", "--targets", "/y")

INPUTS = np.random.default_rng(2).normal(size=(N, 4)).astype(np.float32)
LABELS = (np.arange(N) % 3).astype(np.int64)
PIXELS = np.random.default_rng(3).integers(0, 255, (N, 4, 4)).astype(np.uint8)


# ---- npy ------------------------------------------------------------------------------------------------------------
def npy(inputs=INPUTS, targets=LABELS):
    """prepare: two files; bytes are written as they are."""
    def prepare(folder, given):
        (folder / "in").mkdir()
        for name, values in (("x.npy", inputs), ("y.npy", targets)):
            if isinstance(values, bytes):
                (folder / "in" / name).write_bytes(values)
            else:
                np.save(folder / "in" / name, values, allow_pickle=values.dtype == object)
    return prepare


def header(text, data=b"", length=None, version=1):
    text = text.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text) if length is None else length) + text + data


def described(descr="'<f4'", order="False", shape=f"({N}, 4)"):
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n", INPUTS.tobytes())


def spoiled(array, index, value):
    values = array.copy()
    values[index] = value
    return values


def regression(folder, given, output):
    task = staged.facts(folder)["task"]
    return "" if task == "regression" else f"the task is {task}"


def whole_inputs(folder, given, output):
    return staged.same_rows(folder, "inputs", INPUTS)


NPY.add("as it should be", npy(), *STAGE_NPY, code=0, check=whole_inputs, quick=True)
NPY.add("one-hot targets of floats", npy(targets=np.eye(3, dtype="f4")[np.arange(N) % 3]), *STAGE_NPY, code=3, says=("like a class", "argmax"))
NPY.add("a regression of numbers above 2^63", npy(targets=spoiled(np.arange(N, dtype="u8"), 1, 2**63 + 2**40)), *STAGE_NPY, "--task", "regression", code=3, says=("2^63",))
HEADERS = {
    "empty": b"", "only a signature": b"\x93NUMPY", "a header beyond the file": header("{}", length=60_000), "no header": header(""),
    "a header of noise": header("\x1b[2J\x07" * 20), "no shape": header("{'descr': '<f4', 'fortran_order': False}"),
    "a type that never ends": header("{'descr': '<f4, 'fortran_order': False, 'shape': (30, 4)}"),
    "a type that is empty": described("''"), "two types": header("{'descr': '<i4', 'descr': '<f4', 'fortran_order': False, 'shape': (30, 4)}\n", INPUTS.tobytes()), "an unknown type": described("'<q9'"), "a type of zero bytes": described("'<f0'"),
    "a type of control characters": described("'\x1b[2J'"), "records": described("[('a', '<f4')]"), "objects": described("'|O'"),
    "Fortran order": described(order="True"), "a shape beyond 64 bits": described(shape="(99999999999999999999999, 4)"),
    "a shape that wraps": described(shape="(4611686018427387904, 4)"), "a shape that wraps to its size": described(shape="(4611686018427387934, 4)"),
    "a negative shape": described(shape="(-30, 4)"), "a shape of 0": described(shape="(0, 4)"), "a width of 0": described(shape="(30, 0)"),
    "a shape of words": described(shape="(many, 4)"), "a shape of nothing": described(shape="()"), "more rows than data": described(shape="(31, 4)"),
    "a large shape": described(shape="(1073741824, 1024)"), "ten thousand dims": described(shape="(" + "1, " * 10_000 + ")"),
    "of another version": b"\x93NUMPY\x09\x00" + b"\xff" * 8, "a header of 4 GiB": b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\xff" + b"x" * 64,
    "followed by more": described() + b"more data",
}
for name, content in HEADERS.items():
    NPY.add(name, npy(inputs=content), *STAGE_NPY, code={0, 3} if name == "followed by more" else 3,
            check=whole_inputs if name == "followed by more" else None,
            quick=name in ("a shape beyond 64 bits", "a shape that wraps to its size"))
VALUES = {
    "an input that is not a number": (spoiled(INPUTS, (3, 1), np.nan), LABELS), "an infinite input": (spoiled(INPUTS, (3, 1), -np.inf), LABELS),
    "a negative class": (INPUTS, spoiled(LABELS, 4, -1)), "a class of minus a hundred": (INPUTS, spoiled(LABELS, 4, -100)),
    "a class of 2^62": (INPUTS, spoiled(LABELS, 4, 2**62)), "a class of a milliard": (INPUTS, spoiled(LABELS, 4, 10**9)),
    "one class only": (INPUTS, np.zeros(N, np.int64)), "a target that is not a number": (INPUTS, spoiled(INPUTS[:, 0], 2, np.nan)),
    "an infinite target in float64": (INPUTS, spoiled(INPUTS[:, 0].astype("f8"), 2, np.inf)), "fewer targets": (INPUTS, LABELS[:-1]),
    "no rows": (INPUTS[:0], LABELS[:0]),
    "numbers too large for float32": (spoiled(INPUTS.astype("f8"), (1, 1), 1e300), LABELS), "complex numbers": (INPUTS.astype("c8"), LABELS), "text": (INPUTS.astype("U9"), LABELS),
    "dates": (INPUTS.astype("i8").astype("M8[s]"), LABELS), "images of no height": (np.zeros((N, 1, 0, 4), np.uint8), LABELS),
}
SAYS = {"an input that is not a number": ("nan", "sample 3, element 1"), "an infinite input": ("-inf", "sample 3, element 1"),
        "a negative class": ("in/y.npy", "class -1", "sample 4"), "a class of minus a hundred": ("in/y.npy", "class -100", "sample 4"),
        "a class of 2^62": ("in/y.npy", f"class {2**62}", "sample 4"), "a class of a milliard": ("in/y.npy", "class 1000000000", "sample 4"),
        "a target that is not a number": ("nan", "target of sample 2"), "an infinite target in float64": ("inf", "target of sample 2"),
        "numbers too large for float32": ("sample 1, element 1",)}
for name, (inputs, targets) in VALUES.items():
    NPY.add(name, npy(inputs, targets), *STAGE_NPY, code=3, says=SAYS.get(name, ()), quick=name in ("a class of 2^62", "an input that is not a number"))
NPY.add("targets in float64", npy(targets=INPUTS[:, 0].astype("f8")), *STAGE_NPY, code=0, check=regression, quick=True)
NPY.add("targets in float32", npy(targets=INPUTS[:, 0]), *STAGE_NPY, code=0, check=regression)
NPY.add("targets of two columns", npy(targets=np.stack([LABELS, LABELS], 1)), *STAGE_NPY, code=0, check=regression)
NPY.add("whole targets in float64", npy(targets=LABELS.astype("f8")), *STAGE_NPY, code=0,
        check=lambda folder, given, output: staged.same_rows(folder, "targets", LABELS) if staged.facts(folder)["classes"] else "no classes")
for name, kind in {"big-endian inputs": ">f4", "inputs in half precision": "<f2"}.items():
    NPY.add(name, npy(INPUTS.astype(kind)), *STAGE_NPY, code={0, 3}, check=lambda folder, given, output, kind=kind:
            staged.same_rows(folder, "inputs", INPUTS.astype(kind).astype("f4")))


# ---- IDX ------------------------------------------------------------------------------------------------------------
def idx(kind, shape, data):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data


IMAGES = idx(8, [N, 4, 4], PIXELS.tobytes())
NUMBERS = idx(8, [N], LABELS.astype("u1").tobytes())


def pair(images=IMAGES, labels=NUMBERS, ending=""):
    def prepare(folder, given):
        (folder / "in").mkdir()
        (folder / "in" / f"train-images-idx3-ubyte{ending}").write_bytes(images)
        (folder / "in" / f"train-labels-idx1-ubyte{ending}").write_bytes(labels)
    return prepare


def whole_images(folder, given, output):
    return staged.same_rows(folder, "inputs", PIXELS.reshape(N, 1, 4, 4))


IDX.add("as they should be", pair(), *STAGE, "in", code=0, check=whole_images)
IDX.add("as they should be, packed", pair(gzip.compress(IMAGES), gzip.compress(NUMBERS), ".gz"), *STAGE, "in", code=0, check=whole_images)
IMAGES_OF = {
    "no height": idx(8, [N, 0, 4], b""), "no width": idx(8, [N, 4, 0], b""), "no images": idx(8, [0, 4, 4], b""),
    "many promised": idx(8, [2**32 - 1, 4, 4], PIXELS.tobytes()), "sizes that wrap": idx(8, [2**32 - 1] * 3, PIXELS.tobytes()),
    "sizes that wrap to none": idx(8, [2**31, 2**31, 4], b""), "255 dims": bytes([0, 0, 8, 255]) + b"\0\0\0\1" * 255 + b"x",
    "an unknown type": idx(7, [N, 4, 4], PIXELS.tobytes()), "a cut header": IMAGES[:9], "cut data": IMAGES[:-5], "more data": IMAGES + b"xyz",
    "an empty file": b"", "text": b"these are no images", "numbers that are none": idx(13, [N, 4], np.full((N, 4), np.nan, ">f4").tobytes()),
    "a damaged gzip": gzip.compress(IMAGES)[:-9] + b"123456789", "a bomb": gzip.compress(idx(8, [N, 4, 4], bytes(300_000_000)), 1),
    "a bomb that says its size": gzip.compress(idx(8, [N, 10_000, 1000], bytes(N * 10_000_000)), 1),
}
for name, content in IMAGES_OF.items():
    IDX.add(f"images: {name}", pair(images=content), *STAGE, "in", code=3, quick=name in ("no height", "sizes that wrap"))
LABELS_OF = {
    "fractions": idx(13, [N], (LABELS + 0.5).astype(">f4").tobytes()), "not numbers": idx(14, [N], np.full(N, np.nan, ">f8").tobytes()),
    "negative": idx(9, [N], (LABELS - 1).astype("i1").tobytes()), "beyond 64 bits": idx(14, [N], np.full(N, 1e300, ">f8").tobytes()),
    "one class only": idx(8, [N], bytes(N)), "fewer": idx(8, [N - 1], bytes(N - 1)), "of no dim": bytes([0, 0, 8, 0]) + b"x",
    "two milliard classes": idx(12, [N], np.full(N, 2**31 - 1, ">i4").tobytes()),
}
LABELS_SAY = {"fractions": ("0.5", "label 0"), "not numbers": ("nan", "label 0"), "beyond 64 bits": ("label 0",),
              "negative": ("train-labels-idx1-ubyte", "class -1", "sample 0")}
for name, content in LABELS_OF.items():
    IDX.add(f"labels: {name}", pair(labels=content), *STAGE, "in", code=3, says=LABELS_SAY.get(name, ()), quick=name == "fractions")
IDX.add("labels alone", lambda folder, given: (pair()(folder, given), (folder / "in" / "train-images-idx3-ubyte").unlink()),
        *STAGE, "in", code=3)


# ---- CIFAR-10 ---------------------------------------------------------------------------------------------------------
def batch(label_of, count=12):
    noise = random.Random(4)
    return b"".join(bytes([label_of(i)]) + noise.randbytes(3072) for i in range(count))


def batches(content):
    def prepare(folder, given):
        (folder / "in").mkdir()
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)]:
            (folder / "in" / name).write_bytes(batch(lambda i: i % 10))
        (folder / "in" / "test_batch.bin").write_bytes(batch(lambda i: i % 10))
        (folder / "in" / "data_batch_3.bin").write_bytes(content)
    return prepare


for name, content in {"a label of 10": batch(lambda i: 10), "a label of 255": batch(lambda i: 255), "half a record": batch(lambda i: 1)[:-7],
                      "empty": b"", "text": b"no images at all"}.items():
    CIFAR.add(name, batches(content), *STAGE, "in", code=3, says=("data_batch_3.bin",) + (("record 1",) if "label" in name else ()), quick=name == "a label of 10")


# ---- HDF5 -----------------------------------------------------------------------------------------------------------
def original(write, targets=LABELS):
    def prepare(folder, given):
        with h5py.File(folder / "in.h5", "w") as file:
            write(file, folder)
            if targets is not None:
                file["y"] = targets
    return prepare


def external_link(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["padding"], other["x"] = np.zeros(5000), INPUTS
    file["x"] = h5py.ExternalLink(str(folder / "other.h5"), "/x")


def link_to_a_fifo(file, folder):
    """HDF5 would wait for its writer."""
    os.mkfifo(folder / "fifo")
    file["x"] = h5py.ExternalLink(str(folder / "fifo"), "/x")


def way_through_a_fifo(file, folder):
    os.mkfifo(folder / "fifo")
    file["elsewhere"] = h5py.ExternalLink(str(folder / "fifo"), "/")
    file["x"] = h5py.SoftLink("/elsewhere/x")


def foreign_virtual(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = INPUTS
    layout = h5py.VirtualLayout(INPUTS.shape, INPUTS.dtype)
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", INPUTS.shape)
    file.create_virtual_dataset("x", layout)


def external_storage(file, folder):
    (folder / "raw").write_bytes(INPUTS.tobytes())
    file.create_dataset("x", INPUTS.shape, INPUTS.dtype, external=[(str(folder / "raw"), 0, INPUTS.nbytes)])


def foreign_secret(file, folder):
    file.create_dataset("x", (N, 4), "u1", external=[(str(folder.parent / "outside" / "secret.txt"), 0, 4 * N)])


def put(values, **options):
    return lambda file, folder: file.create_dataset("x", data=values, **options)


def packed(pack, **options):
    """INPUTS in chunks of five rows, the third of which is stored as what `pack` makes of its bytes."""
    def write(file, folder):
        made = file.create_dataset("x", data=INPUTS, chunks=(5, 4), **options)
        made.id.write_direct_chunk((10, 0), pack(INPUTS[10:15].tobytes()))
    return write


def own_virtual(chunks):
    """A virtual dataset of one in the same file."""
    def write(file, folder):
        file.create_dataset("rows", data=INPUTS, chunks=chunks)
        layout = h5py.VirtualLayout(INPUTS.shape, INPUTS.dtype)
        layout[...] = h5py.VirtualSource(file["rows"])
        file.create_virtual_dataset("x", layout)
    return write


def typed(make_type, values):
    def write(file, folder):
        kind = make_type()
        made = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple(values.shape))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)
    return write


def brain_float():
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_ebias(127)
    return kind


def biased():
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(100)
    return kind


@cache
def packed_zeros():
    packer, piece = zlib.compressobj(1), bytes(1 << 24)
    return b"".join(packer.compress(piece) for _ in range(16)) + packer.flush()


BITS = (INPUTS.view(np.uint32) >> 16).astype(np.uint16)
H5.add("as it should be", original(put(INPUTS)), *STAGE_H5, code=0, check=whole_inputs)
for name, write in {"big-endian": put(INPUTS.astype(">f4")), "in double precision": put(INPUTS.astype("f8")),
                    "compressed": put(INPUTS, compression="gzip", chunks=(3, 2)), "shuffled": put(INPUTS, shuffle=True, chunks=(7, 4))}.items():
    H5.add(name, original(write), *STAGE_H5, code=0, check=whole_inputs, quick=name == "big-endian")
MANY = np.random.default_rng(4).normal(size=(60_000, 4)).astype(np.float32)


def many_rows(folder, given, output):
    return staged.same_rows(folder, "inputs", MANY)


H5.add("60,000 chunks of one row", original(put(MANY, chunks=(1, 4)), np.arange(len(MANY)) % 3), *STAGE_H5, code=0, check=many_rows)
H5.add("60,000 packed chunks of one row", original(put(MANY, chunks=(1, 4), compression="gzip", compression_opts=1), np.arange(len(MANY)) % 3), *STAGE_H5, code=0, check=many_rows)
H5.add("a virtual dataset of the same file", original(own_virtual(None)), *STAGE_H5, code=0, check=whole_inputs)
H5.add("bytes that pack well", original(put(np.repeat((np.arange(N) % 3).astype(np.int8)[:, None], 600_000, 1), compression="gzip", chunks=(N, 100_000))),
       *STAGE_H5, code=0)
H5.add("a chunk that is packed as it should be", original(packed(zlib.compress, compression="gzip")), *STAGE_H5, code=0, check=whole_inputs)
REFUSED = {
    "an external link": external_link, "an external link to a FIFO": link_to_a_fifo, "a way through a FIFO": way_through_a_fifo, "a foreign virtual dataset": foreign_virtual, "external storage": external_storage,
    "storage of a foreign file": foreign_secret, "text": put(INPUTS.astype("S8")), "compound": put(INPUTS.astype([("a", "f4")])),
    "a single value": put(np.float32(1)), "one dim": put(INPUTS[:, 0]), "no rows": put(INPUTS[:0]), "not numbers": put(spoiled(INPUTS, (1, 2), np.nan)),
    "infinite numbers": put(spoiled(INPUTS, (1, 2), np.inf)), "complex numbers": put(INPUTS.astype("c8")), "fewer inputs": put(INPUTS[:-1]),
    "nothing": lambda file, folder: None, "a group": lambda file, folder: file.create_group("x"),
    "a width of 2^40": lambda file, folder: file.create_dataset("x", (N, 2**40), "f4", chunks=(1, 2**10)),
    "zeros that unpack to 8 GiB": lambda file, folder: file.create_dataset("x", (N, 2**26), "f4", chunks=(1, 2**26), compression="gzip"),
    "2^28 rows that were never written": lambda file, folder: file.create_dataset("x", (2**28, 4), "f4", chunks=(1024, 4)),
    "a chunk that unpacks to less": packed(lambda plain: zlib.compress(plain[:60]), compression="gzip"),
    "a chunk that unpacks to nothing": packed(lambda plain: zlib.compress(b""), compression="gzip"),
    "a chunk that unpacks to 256 MiB": packed(lambda plain: packed_zeros(), compression="gzip"),
    "a chunk cut off": packed(lambda plain: zlib.compress(plain)[:-6], compression="gzip"),
    "a short chunk under a checksum": packed(lambda plain: bytes(24), fletcher32=True, shuffle=True),
    "an empty chunk under a checksum": packed(lambda plain: b"ab", fletcher32=True, shuffle=True),
    "packed by scale and offset": put(np.round(INPUTS), scaleoffset=2, chunks=(5, 4)),
    "a virtual dataset of chunks": own_virtual((5, 4)),
}
for name, write in REFUSED.items():
    H5.add(name, original(write), *STAGE_H5, code=3, says=("sample 1, element 2",) if name in ("not numbers", "infinite numbers") else (), quick=name in ("an external link", "zeros that unpack to 8 GiB", "a chunk that unpacks to less"))
for name, write in {"a bfloat16": typed(brain_float, BITS), "an exponent with another bias": typed(biased, INPUTS)}.items():
    H5.add(name, original(write), *STAGE_H5, code=3, quick=name == "a bfloat16")
for name, targets in {"a negative class": spoiled(LABELS, 3, -1), "a class of 2^62": spoiled(LABELS, 3, 2**62), "one class only": LABELS * 0,
                      "no targets": None, "text as targets": LABELS.astype("S1"), "unsigned classes beyond 63 bits":
                      np.full(N, 2**64 - 1, np.uint64)}.items():
    H5.add(name, original(put(INPUTS), targets), *STAGE_H5, code=3,
           says=("in.h5:/y", "sample 3") if name in ("a negative class", "a class of 2^62") else ())
H5.add("control characters in the name", original(put(INPUTS)), *STAGE, "in.h5", "--inputs", "/x\x1b[2J\x07", "--targets", "/y", code=3)
H5.add("targets in float64", original(put(INPUTS), INPUTS[:, 1].astype("f8")), *STAGE_H5, code=0, check=regression)
