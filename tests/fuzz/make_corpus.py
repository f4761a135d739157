"""make_corpus.py FOLDER: writes the seeds of the fuzz targets, a folder for each, a few hundred bytes per file."""

import gzip
import io
import json
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import h5py
import numpy as np

FOLDER = Path(sys.argv[1])


def seed(target, name, content):
    place = FOLDER / target
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def manifests():
    tensor = {"name": "model/fc.weight", "dtype": "float32", "shape": [4, 2],
              "slices": [{"file": "part-0.h5", "offset": [0, 0], "shape": [2, 2]}, {"file": "part-1.h5", "offset": [2, 0], "shape": [2, 2]}]}
    small = {"format": "dtrain.checkpoint", "version": 1, "step": 3, "epoch": 1, "position": {"samples": 24}, "model": "mlp", "dataset": "d",
             "seed": 1, "micro_batches": 2, "config": "", "dtrain_version": "0.1.0",
             "files": [{"file": name, "bytes": 99, "sha256": "0" * 64} for name in ("part-0.h5", "part-1.h5")], "tensors": [tensor]}
    full = {**small, "total_steps": 10, "so_far": {"loss": 2.5, "weight": 8.0, "correct": 3.0, "counted": 8.0, "train_time_s": 0.1, "sample_hash": 7,
                                                   "evaluated": False}, "best": {"step": 2, "loss": None},
            "loss_scale": {"scale": 1024.0, "good_steps": 3, "left_out": 0}, "vocabulary_sha256": "a" * 64, "dataset_samples": {"train": 32},
            "dataset_sha256": "b" * 64, "all_reduce": {"layout": "1x2", "by_size": "65536 tree, 8388608 ring"},
            "transformations": {"mean": [0.5], "std": [0.25], "columns": [{"name": "x", "label": "", "marks_gaps": False, "filled_with": 0.0,
                                                                          "shift": 0.0, "scale": 1.0}]}}
    seed("manifest", "small", json.dumps(small))
    seed("manifest", "full", json.dumps(full))


def safetensors():
    def packed(header, data):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data
    seed("safetensors", "two", packed({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                                       "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}, bytes(22)))
    seed("safetensors", "metadata", packed({"__metadata__": {"format": "pt"}, "s": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, bytes(8)))


def arrays():
    for name, values in {"float32": np.ones((3, 2), "f4"), "float64": np.ones((3, 2)), "int64": np.arange(4), "bytes": np.zeros((2, 3, 3), "u1"),
                         "big_endian": np.ones(3, ">f4"), "fortran": np.ones((2, 2), order="F")}.items():
        stream = io.BytesIO()
        np.save(stream, values)
        seed("npy", name, stream.getvalue())
    images = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 3, 3) + bytes(range(18))
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 4) + bytes([0, 1, 2, 1])
    for name, content in {"images": images, "labels": labels, "packed": gzip.compress(images, mtime=0),
                          "floats": bytes([0, 0, 13, 2]) + struct.pack(">II", 1, 2) + bytes(8)}.items():
        seed("idx", name, content)


def images():
    from PIL import Image
    y, x = np.mgrid[0:9, 0:11]
    colours = np.stack([20 * x, 25 * y, 255 - 20 * x], -1).astype("u1")
    for name, image, how in (("png", Image.fromarray(colours), {}), ("png_palette", Image.fromarray(colours).quantize(4), {}),
                             ("png_deep", Image.fromarray((300 * x * y).astype("u2")), {}), ("png_bits", Image.fromarray(colours[:, :, 0] > 99), {}),
                             ("jpeg", Image.fromarray(colours), {}), ("jpeg_progressive", Image.fromarray(colours), {"progressive": True}),
                             ("jpeg_grey", Image.fromarray(colours[:, :, 0]), {}), ("jpeg_inks", Image.fromarray(colours).convert("CMYK"), {})):
        stream = io.BytesIO()
        image.save(stream, name.partition("_")[0], **how)
        seed("image", name, stream.getvalue())


def tables():
    seed("new_table", "plain", "width,place,kind\n171.5,north,red\n-999,south,blue\n,NA,red\n")
    seed("new_table", "another_order", 'kind;"place";width\r\nblue;north;1e2\r\n')
    rows = [f"{i}.5,{i * i},{'red' if i % 2 else 'blue'}" for i in range(6)]
    seed("csv", "header", "width,length,kind\n" + "\n".join(rows) + "\n")
    seed("csv", "gaps", "a;b;c\n1;?;x\n;2;y\nNA;inf;x\n")
    seed("csv", "quotes", '"a","b ""c""",d\r\n"1","two, three",4\r\n1,"x\ny",5\r\n')
    seed("csv", "tabs", "\ufeffa\tb\n1,5\t-2e3\n2\t3\r4\t5\r")


def archives():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("in/a.csv", "in/b.csv"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"1,2\n"))
    tar = stream.getvalue()[:2560]
    seed("archive", "tar", tar)
    seed("archive", "tar.gz", gzip.compress(tar, mtime=0))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("in/a.csv"), "1,2\n" * 20)
    seed("archive", "zip", stream.getvalue())
    seed("archive", "gz", gzip.compress(b"1,2\n" * 20, mtime=0))


def dataset_json():
    shard = {"file": "train-00000-of-00001.h5", "samples": 4, "sha256": "0" * 64}
    table = {"format": "dtrain.dataset", "version": 1, "name": "t", "task": "table_classification", "classes": ["a", "b"], "shape": [2],
             "mean": [0.5], "std": [0.5], "tokenizer": None, "columns": [{"name": "x", "filled_with": 0.5, "shift": 0, "scale": 1},
                                                                         {"name": "x", "marks_gaps": True}],
             "sites": ["here"], "seed": 1, "splits": {"train": {"samples": 4, "shards": [shard]}}, "sources": [{"file": "t.csv", "sha256": "0" * 64}]}
    words = ["<pad>", "<unk>", "<start>", "<end>", "a", "b"]
    text = {**table, "task": "translation", "classes": [], "shape": [8], "mean": [], "std": [], "columns": [], "sites": [],
            "tokenizer": {"kind": "word", "vocabulary": words, "target_vocabulary": words}}
    seed("dataset_json", "table", json.dumps(table))
    seed("dataset_json", "text", json.dumps(text))
    seed("dataset_json", "character", json.dumps({**text, "task": "language_modelling", "tokenizer": {"kind": "char", "vocabulary": ["a", "b", "ä"]}}))


def h5_bytes(write):
    stream = io.BytesIO()
    with h5py.File(stream, "w", libver="earliest") as file:
        write(file)
    return stream.getvalue()


def fixed(attributes):
    """Text of fixed length: HDF5 1.10.8 itself never ends on some damaged heaps of variable text, which is not ours to find."""
    return {name: np.bytes_(value.encode()) if isinstance(value, str) else value for name, value in attributes.items()}


def shards():
    def shard(**options):
        def write(file):
            file.create_dataset("inputs", data=np.ones((4, 2), "f4"), **options)
            file["targets"] = np.arange(4) % 2
            file.attrs.update(fixed({"format": "dtrain.shard", "version": 1, "dataset": "t", "split": "train", "shard_index": 0, "shard_count": 1,
                                     "first_sample": 0, "sample_count": 4}))
        return write
    seed("shard", "contiguous", h5_bytes(shard()))
    seed("shard", "chunked", h5_bytes(shard(chunks=(2, 2), fletcher32=True)))
    seed("shard", "packed", h5_bytes(shard(chunks=(4, 1), compression="gzip")))


def results():
    def write(file):
        file.attrs.update(fixed({"format": "dtrain.results", "version": 1, "name": "n", "model": "mlp", "status": "completed", "world_size": 1}))
        epochs = np.zeros(2, [("epoch", "i8"), ("train_loss", "f8")])
        epochs["epoch"] = [1, 2]
        for name, rows in {"topology": np.zeros(1, [("rank", "i8"), ("hostname", "S8")]), "epochs": epochs, "test": epochs[:1]}.items():
            file[name] = rows
            file[name].attrs["units"] = np.array([b"-", b"s"], "S1")
        for name in ("epochs", "steps", "events", "samples"):
            file[f"ranks/00000/{name}"] = epochs
    seed("results", "small", h5_bytes(write))


def sentencepiece():
    def number(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)

    def text(field, content):
        return number(field << 3 | 2) + number(len(content)) + content

    def piece(content, score, kind):
        return text(1, text(1, content.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + number(kind))

    # The first state is unit 256; `a` leads from it to unit 512, whose value is the place of the text `b`.
    units = np.zeros(768, "<u4")
    units[0] = 256 << 10
    units[256 ^ ord("a")] = ((256 ^ ord("a") ^ 512) << 10) | 1 << 8 | ord("a")
    units[512] = 1 << 31
    table = struct.pack("<I", units.nbytes) + units.tobytes() + b"b\0"
    pieces = b"".join(piece(*facts) for facts in (("<pad>", 0, 3), ("<unk>", 0, 2), ("<start>", 0, 3), ("<end>", 0, 3), ("\u2581", -1, 1),
                                                   ("a", -2, 1), ("b", -3, 1)))
    ids = b"".join(number(field << 3) + number(value) for field, value in ((3, 1), (40, 1), (41, 2), (42, 3), (43, 0)))
    names = text(46, b"<start>") + text(47, b"<end>") + text(45, b"<unk>") + text(48, b"<pad>")
    seed("sentencepiece", "plain", pieces + text(2, ids + names) + text(3, text(1, b"identity")))
    seed("sentencepiece", "letters", pieces + text(2, ids + names) + text(3, text(1, b"table") + text(2, table)))


def toml():
    seed("toml", "keys", 'model = "mlp"\nepochs = 3\nlearning-rate = 1e-3\nquiet = true\nmodel-option = ["hidden=8", "activation=relu"]\n')
    seed("toml", "refused", '[table]\nx = 1979-05-27T07:32:00Z\ny = {a = [1, [2, """\nz"""]]}\n')


def exported():
    """The archive as it is, and its JSON alone: `model.json`, a line of dashes, the list of weights."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
            self.lstm = nn.LSTM(4, 2, 2, batch_first=True, dropout=0.5)
            self.register_buffer("mask", torch.ones(2))

        def forward(self, x):
            y = self.norm(self.conv(x)).relu_().view(x.size(0), 2, -1)
            y = nn.functional.dropout(y, 0.1) * self.mask[:, None]
            y[:, 0] += 1
            y = nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.1)
            return self.lstm(y)[0].sum((1, 2))[:, None].expand(-1, 3)

    torch.manual_seed(1)
    program = torch.export.export(Net(), (torch.randn(2, 1, 4, 4),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    file = io.BytesIO()
    torch.export.save(program, file)
    small = io.BytesIO()
    records = {}
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(small, "w") as made:
        for entry in old.infolist():
            records[entry.filename.partition("/")[2]] = old.read(entry)
            if "sample_inputs" not in entry.filename:
                data = old.read(entry)
                if entry.filename.endswith("model.json"):
                    model = json.loads(data)
                    for node in model["graph_module"]["graph"]["nodes"]:
                        node["metadata"].pop("stack_trace", None)
                        node["metadata"].pop("torch_fn", None)
                    model["graph_module"]["module_call_graph"] = []
                    data = records["models/model.json"] = json.dumps(model).encode()
                made.writestr(entry.filename, data)
    seed("exported", "plain", small.getvalue())
    dashes = b"\n----\n"
    seed("exported_graph", "plain", records["models/model.json"] + dashes + records["data/weights/model_weights_config.json"])


def ledgers():
    seed("ledger", "poisson", "dtrain.privacy 1\n0 1.1 0.25 12\n0 0.9 0.25 3\nend\n")
    seed("ledger", "once", "dtrain.privacy 1\n1 0.75 0.125 16\nend\n")


def secure_messages():
    """Of round 1 with four clients and three values; the first byte tells the fuzz target which message to expect."""
    kinds = ["keys", "roster", "shares", "delivery", "masked", "survivors", "signature", "signatures", "reveal"]

    def message(kind, phase, from_server, body):
        seed("secure_message", kind, bytes([kinds.index(kind)]) + struct.pack("<BBQ", 1, 2 * phase + from_server, 1) + body)

    def entries(size, *clients):
        return struct.pack("<I", len(clients)) + b"".join(struct.pack("<I", client) + bytes(range(size)) for client in clients)

    first = struct.pack("<I", 1)
    message("keys", 0, 0, first + bytes(160))
    message("roster", 1, 1, entries(160, 0, 2))
    message("shares", 1, 0, first + entries(80, 0, 3))
    message("delivery", 2, 1, struct.pack("<III", 2, 0, 1) + entries(80, 0))
    message("masked", 2, 0, first + bytes(64) + bytes(16))
    message("survivors", 3, 1, entries(64, 0, 1, 2))
    message("signature", 3, 0, first + bytes(64))
    message("signatures", 4, 1, entries(64, 0, 1, 2))
    message("reveal", 4, 0, first + struct.pack("<I", 1) + struct.pack("<IB", 2, 1) + bytes(32))


for make in (manifests, safetensors, arrays, images, tables, archives, dataset_json, shards, sentencepiece, results, toml, exported, ledgers, secure_messages):
    make()
