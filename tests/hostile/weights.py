"""Files of weights for --init-from, and parts of checkpoints: safetensors and HDF5 that are not what they say."""

import json
import random
import struct

import h5py
import numpy as np

import fixtures
from case import EXPORT, TRAIN, Family

SAFE = Family("safetensors")
H5 = Family("weights in HDF5")
LOAD = (*TRAIN, "--dataset", "table", "--data-root", "{given}", "--learning-rate", "1e-30", "--init-from")


def learned(wanted_of):
    """check: with so small a learning rate the run ends with the weights it began with."""
    def check(folder, given, output):
        checkpoint = (folder / "runs" / "out" / "checkpoints" / "best").resolve()
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        wanted = wanted_of(folder, given)
        for tensor in manifest["tensors"]:
            if not tensor["name"].startswith("model/"):
                continue
            with h5py.File(checkpoint / tensor["slices"][0]["file"]) as file:
                found = file[tensor["name"]][()]
            if not np.allclose(found, wanted[tensor["name"][6:]], rtol=0, atol=1e-29):  # the rate: it moves a 0
                return f"{tensor['name']} has other values"
        return ""
    return check


learned_the_same = learned(lambda folder, given: fixtures.weights(given))


def of_the_file(folder, given):
    """The numbers that w.h5 has, whatever their type."""
    with h5py.File(folder / "w.h5") as file:
        return {name: values[()].astype("f4") for name, values in (file["model"] if "model" in file else file).items()}


# ---- safetensors ----------------------------------------------------------------------------------------------------
def packed(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def parts(given):
    header, data = {}, b""
    for name, values in fixtures.weights(given).items():
        raw = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return header, data


def saved(content_of):
    """prepare: `content_of(header, data)` gives the bytes of the file."""
    def prepare(folder, given):
        (folder / "w.safetensors").write_bytes(content_of(*parts(given)))
    return prepare


def entry(**facts):
    def content(header, data):
        next(iter(header.values())).update(facts)
        return packed(header, data)
    return saved(content)


def offsets(offsets_of):
    def content(header, data):
        first, second = list(header.values())[:2]
        first["data_offsets"], second["data_offsets"] = offsets_of(first["data_offsets"], second["data_offsets"])
        return packed(header, data)
    return saved(content)


SAFE.add("as it should be", saved(packed), *LOAD, "w.safetensors", code=0, check=learned_the_same, quick=True)
SAFE.add("as dtrain writes it", lambda folder, given: fixtures.copy(given, folder, "weights.safetensors", "w.safetensors"), *LOAD,
         "w.safetensors", code=0, check=learned_the_same)
CONTENTS = {
    "empty": lambda h, d: b"",
    "seven bytes": lambda h, d: b"\x01" * 7,
    "a header of no bytes": lambda h, d: packed(b"", d),
    "a header length of all ones": lambda h, d: packed(h, d, 2**64 - 1),
    "a header length of 2^63": lambda h, d: packed(h, d, 2**63),
    "a header length beyond the file": lambda h, d: packed(h, d, 10**8),
    "a header that is no JSON": lambda h, d: packed(b"{'a': 1}", d),
    "a header of null": lambda h, d: packed(b"null", d),
    "a header that is a list": lambda h, d: packed(b"[1,2]", d),
    "a deep header": lambda h, d: packed(b'{"a":' * 200_000, d),
    "a header that is not UTF-8": lambda h, d: packed(json.dumps(h).encode().replace(b"input_fc", b"input\xff\xfe", 1), d),
    "half the data": lambda h, d: packed(h, d[:len(d) // 2]),
    "more data than tensors": lambda h, d: packed(h, d + b"x" * 64),
    "no tensors": lambda h, d: packed({}, b""),
    "one tensor twice": lambda h, d: packed(json.dumps(h).encode()[:-1] + b"," + json.dumps(h).encode()[1:], d),
    "a missing tensor": lambda h, d: packed({k: v for k, v in h.items() if "weight" not in k}, d),
    "metadata that is no object": lambda h, d: packed({**h, "__metadata__": 7}, d),
    "a tensor that is a number": lambda h, d: packed({**h, "x": 7}, d),
    "two hundred thousand tensors": lambda h, d: packed({**h, **{f"x{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
                                                      for i in range(200_000)}}, d),
}
# What says nothing wrong of the model's tensors may be loaded.
LOADED = {"metadata that is no object": {0, 4}, "two hundred thousand tensors": 0}
for name, content_of in CONTENTS.items():
    SAFE.add(name, saved(content_of), *LOAD, "w.safetensors", code=LOADED.get(name, 4), check=learned_the_same, quick=name in ("a deep header", "a header length of 2^63"))
ENTRIES = {
    "a shape that wraps": {"shape": [2**62 + 8, 4]},
    "a negative shape": {"shape": [-8, -4]},
    "a huge shape": {"shape": [2**40, 2**20]},
    "a shape of text": {"shape": "8,4"},
    "a fractional shape": {"shape": [8.5, 4]},
    "no shape": {"shape": None},
    "an unknown type": {"dtype": "F31"},
    "a type of control characters": {"dtype": "\x1b[2J"},
    "a type that is a number": {"dtype": 32},
    "three offsets": {"data_offsets": [0, 128, 256]},
    "one offset": {"data_offsets": [0]},
    "negative offsets": {"data_offsets": [-128, 0]},
    "offsets of text": {"data_offsets": ["0", "128"]},
    "offsets that wrap": {"data_offsets": [2**63 - 64, 2**63 + 64]},
    "offsets beyond the file": {"data_offsets": [2**40, 2**40 + 128]},
    "offsets the wrong way": {"data_offsets": [128, 0]},
}
for name, facts in ENTRIES.items():
    SAFE.add(name, entry(**facts), *LOAD, "w.safetensors", code=4, quick=name == "a shape that wraps")
SAFE.add("tensors that overlap", offsets(lambda a, b: (a, [a[0], a[0] + b[1] - b[0]])), *LOAD, "w.safetensors", code=4, quick=True)
SAFE.add("a hole between tensors", saved(lambda h, d: packed({name: {**f, "data_offsets": [o + 8 for o in f["data_offsets"]]}
                                                              for name, f in h.items()}, b"x" * 8 + d)),
         *LOAD, "w.safetensors", code=4)


# ---- HDF5 -----------------------------------------------------------------------------------------------------------
NAME = "input_fc.weight"


def written(write):
    """prepare: w.h5 with all weights, one of which `write(model, name, values, folder)` makes in its own way."""
    def prepare(folder, given):
        with h5py.File(folder / "w.h5", "w") as file:
            for name, values in fixtures.weights(given).items():
                if name == NAME:
                    write(file.require_group("model"), name, values, folder)
                else:
                    file[f"model/{name}"] = values
    return prepare


def in_part(write):
    """The same inside a part of a checkpoint, whose hash is then right."""
    def prepare(folder, given):
        checkpoint = fixtures.copy(given, folder, "checkpoint")
        with h5py.File(next(checkpoint.glob("*.h5")), "r+") as file:
            values, attributes = file[f"model/{NAME}"][()], dict(file[f"model/{NAME}"].attrs)
            del file[f"model/{NAME}"]
            write(file["model"], NAME, values, folder)
            if NAME in file["model"] and isinstance(file["model"].get(NAME, getlink=True), h5py.HardLink):
                file["model"][NAME].attrs.update(attributes)
        fixtures.reseal(checkpoint)
    return prepare


def external_link(group, name, values, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["padding"] = np.zeros(1000)
        other["x"] = values
    group[name] = h5py.ExternalLink(str(folder / "other.h5"), "/x")


def external_storage(group, name, values, folder):
    (folder / "raw").write_bytes(values.tobytes())
    group.create_dataset(name, values.shape, values.dtype, external=[(str(folder / "raw"), 0, values.nbytes)])


def foreign_secret(group, name, values, folder):
    secret = folder.parent / "outside" / "secret.txt"
    group.create_dataset(name, values.shape, values.dtype, external=[(str(secret), 0, values.nbytes)])


def virtual(group, name, values, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = values
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", values.shape)
    group.create_virtual_dataset(name, layout)


def biased(group, name, values, folder):
    """The same bytes, but the type says that the exponent's bias is 100."""
    space = h5py.h5s.create_simple(values.shape)
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(100)
    made = h5py.h5d.create(group.id, name.encode(), kind, space)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)


def brain_float(group, name, values, folder):
    """bfloat16: 2 bytes, an exponent of 8 bits."""
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_ebias(127)
    made = h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple(values.shape))
    bits = (values.astype("<f4").view(np.uint32) >> 16).astype(np.uint16)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, kind)


def huge(group, name, values, folder):
    group.create_dataset(name, (2**30, 2**12), "f4", chunks=(1, 2**10))


def self_link(group, name, values, folder):
    group[name] = h5py.SoftLink(f"/model/{name}")


def as_type(kind):
    def write(group, name, values, folder):
        group.create_dataset(name, data=values.astype(kind))
    return write


def with_options(**options):
    def write(group, name, values, folder):
        group.create_dataset(name, data=values, **options)
    return write


REFUSED = {
    "external link": external_link, "external storage": external_storage, "storage of a foreign file": foreign_secret,
    "foreign virtual dataset": virtual, "a link to itself": self_link, "huge and without chunks": huge,
    "a bfloat16 of its own": brain_float,
    "compound": lambda g, n, v, f: g.create_dataset(n, v.shape, np.dtype([("x", "f4")])),
    "text": lambda g, n, v, f: g.create_dataset(n, v.shape, h5py.string_dtype()),
    "a group": lambda g, n, v, f: g.create_group(n),
    "a single value": lambda g, n, v, f: g.create_dataset(n, data=1.0),
    "of no dim": lambda g, n, v, f: g.create_dataset(n, (0, 4), "f4"),
    "transposed": lambda g, n, v, f: g.create_dataset(n, data=v.T.copy()),
    "a reference": lambda g, n, v, f: g.create_dataset(n, v.shape, h5py.ref_dtype),
    "missing": lambda g, n, v, f: None,
    "whole numbers": as_type("i4"),
    "bytes": as_type("u1"),
    "a dangling link": lambda g, n, v, f: g.__setitem__(n, h5py.SoftLink("/nowhere")),
}
READ_OR_REFUSED = {"big-endian": as_type(">f4"), "compressed": with_options(compression="gzip", chunks=(2, 2)), "chunked": with_options(chunks=(3, 3)),
            "with a check sum": with_options(fletcher32=True), "in double precision": as_type("f8")}
for name, write in REFUSED.items():
    H5.add(name, written(write), *LOAD, "w.h5", code={0, 4} if name in ("whole numbers", "bytes") else 4,
           check=learned(of_the_file), quick=name in ("external link", "foreign virtual dataset", "a bfloat16 of its own"))
for name in ("external link", "external storage", "storage of a foreign file", "foreign virtual dataset", "a bfloat16 of its own",
             "text", "a group", "transposed"):
    H5.add(f"part with {name}", in_part(REFUSED[name]), *EXPORT, code=4, quick=name == "external storage")
for name, write in READ_OR_REFUSED.items():
    H5.add(name, written(write), *LOAD, "w.h5", code={0, 4}, check=learned_the_same, quick=name == "big-endian")
H5.add("an exponent with another bias", written(biased), *LOAD, "w.h5", code=4)
H5.add("part with an exponent of another bias", in_part(biased), *EXPORT, code=4)
for name, content in {"empty": b"", "only a signature": b"\x89HDF\r\n\x1a\n", "of noise": random.Random(1).randbytes(4096)}.items():
    H5.add(f"file {name}", lambda folder, given, c=content: (folder / "w.h5").write_bytes(c), *LOAD, "w.h5", code=4)


def cut(folder, given):
    content = (given / "weights.h5").read_bytes()
    (folder / "w.h5").write_bytes(content[:len(content) // 2])


H5.add("file of half its length", cut, *LOAD, "w.h5", code=4)
H5.add("a file of another ending", lambda f, g: (f / "w.bin").write_bytes(b"x"), *LOAD, "w.bin", code=2)
