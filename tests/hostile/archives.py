"""Archives that climb, link, lie about their size or unpack to far more than they are."""

import gzip
import io
import lzma
import random
import tarfile
import zipfile

import numpy as np

import staged
from case import STAGE, Family

FAMILY = Family("archives")
TABLE = ("a,b,kind\n" + "".join(f"{i}.5,{i * i}.25,{'xyz'[i % 3]}\n" for i in range(30))).encode()
NUMBERS = np.array([(i + 0.5, i * i + 0.25) for i in range(30)], "f4")
STAGE_TAR = (*STAGE, "in.tar")
STAGE_ZIP = (*STAGE, "in.zip")


def tar(*members):
    """prepare: in.tar with the given (TarInfo, content)."""
    def prepare(folder, given):
        (folder / "in.tar").write_bytes(tar_bytes(*members))
    return prepare


def tar_bytes(*members, form=tarfile.PAX_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for info, content in members:
            archive.fileobj.write(info.tobuf(form, "utf-8", "surrogateescape"))
            archive.fileobj.write(content or b"")
            archive.fileobj.write(bytes(-len(content or b"") % tarfile.BLOCKSIZE))
    return stream.getvalue()


def member(name, content=TABLE, kind=tarfile.REGTYPE, link="", size=None):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = (len(content) if kind == tarfile.REGTYPE else 0) if size is None else size
    return info, content if kind == tarfile.REGTYPE else None


def zip_(*members, change=lambda content: content):
    def prepare(folder, given):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                archive.writestr(name, content)
        (folder / "in.zip").write_bytes(change(stream.getvalue()))
    return prepare


def file(name, content):
    return lambda folder, given: (folder / name).write_bytes(content)


def whole_table(folder, given, output):
    return staged.same_rows(folder, "inputs", NUMBERS)


FAMILY.add("a tar as it should be", tar(member("in/a.csv")), *STAGE_TAR, code=0, check=whole_table, quick=True)
FAMILY.add("a zip as it should be", zip_(("in/a.csv", TABLE)), *STAGE_ZIP, code=0, check=whole_table)
FAMILY.add("a packed file as it should be", file("in.csv.gz", gzip.compress(TABLE)), *STAGE, "in.csv.gz", code=0, check=whole_table)
for name in ("../outside/a.csv", "/tmp/a.csv", "in/../../a.csv", "in/./../../../a.csv"):
    FAMILY.add(f"a member {name} of a tar", tar(member("in/a.csv"), member(name)), *STAGE_TAR, code=3, quick=name.startswith(".."))
    FAMILY.add(f"a member {name} of a zip", zip_(("in/a.csv", TABLE), (name, TABLE)), *STAGE_ZIP, code=3)
KINDS = {"a soft link": (tarfile.SYMTYPE, "/etc/passwd"), "a hard link": (tarfile.LNKTYPE, "in/a.csv"), "a FIFO": (tarfile.FIFOTYPE, ""),
         "a device": (tarfile.CHRTYPE, ""), "a link that climbs": (tarfile.SYMTYPE, "../../outside/secret.txt")}
for name, (kind, link) in KINDS.items():
    FAMILY.add(f"{name} in a tar", tar(member("in/a.csv"), member("in/b.csv", kind=kind, link=link)), *STAGE_TAR, code=3,
               quick=name == "a soft link")
NAMES = {"control characters": "in/\x1b[2J\x07.csv", "a line end": "in/a\nb.csv", "four thousand letters": "in/" + "x" * 4000 + ".csv",
         "nothing": "", "Latin-1": b"in/caf\xe9.csv".decode("utf-8", "surrogateescape")}
for name, path in NAMES.items():
    FAMILY.add(f"a tar with a name of {name}", file("in.tar", tar_bytes(member(path), form=tarfile.GNU_FORMAT)), *STAGE_TAR, code={0, 3},
               check=whole_table, quick=name == "control characters")
FAMILY.add("a zip with a name of control characters", zip_(("in/\x1b[2J.csv", TABLE)), *STAGE_ZIP, code={0, 3}, check=whole_table)
FAMILY.add("two members of one name", tar(member("in/a.csv"), member("in/a.csv")), *STAGE_TAR, code=3)
FAMILY.add("a tar in a tar", tar(member("in/b.tar", tar_bytes(member("a.csv")))), *STAGE_TAR, code={0, 3}, check=whole_table)
FAMILY.add("a member larger than the archive", tar(member("in/a.csv", size=2**40)), *STAGE_TAR, code=3)
FAMILY.add("a member of negative size", file("in.tar", tar_bytes(member("in/a.csv")).replace(
    b"%011o\0" % len(TABLE), b"-0000000100\0")), *STAGE_TAR, code=3)
FAMILY.add("a tar cut within a member", file("in.tar", tar_bytes(member("in/a.csv"))[:600]), *STAGE_TAR, code=3)
FAMILY.add("a tar of nothing", file("in.tar", tar_bytes()), *STAGE_TAR, code=3)
FAMILY.add("a tar of noise", file("in.tar", random.Random(5).randbytes(20_000)), *STAGE_TAR, code=3)
FAMILY.add("a zip cut in two", zip_(("in/a.csv", TABLE), change=lambda content: content[:len(content) // 2]), *STAGE_ZIP, code=3)
FAMILY.add("a zip whose sizes lie", zip_(("in/a.csv", TABLE), change=lambda content: content.replace(
    len(TABLE).to_bytes(4, "little"), (0x7FFFFFFF).to_bytes(4, "little"))), *STAGE_ZIP, code=3)
FAMILY.add("a zip with another check sum", zip_(("in/a.csv", TABLE), change=lambda content: content[:14] + b"\0\0\0\0" + content[18:]),
           *STAGE_ZIP, code={0, 3}, check=whole_table)  # that of its directory is right
FAMILY.add("a gzip cut", file("in.csv.gz", gzip.compress(TABLE)[:-12]), *STAGE, "in.csv.gz", code=3)
FAMILY.add("a gzip of noise", file("in.csv.gz", b"\x1f\x8b\x08" + random.Random(6).randbytes(500)), *STAGE, "in.csv.gz", code=3)
FAMILY.add("an empty gzip", file("in.csv.gz", gzip.compress(b"")), *STAGE, "in.csv.gz", code=3)
FAMILY.add("an xz of noise", file("in.csv.xz", b"\xfd7zXZ\0" + random.Random(7).randbytes(500)), *STAGE, "in.csv.xz", code=3)


# ---- bombs ----------------------------------------------------------------------------------------------------------
def repeated(text, total):
    """`total` bytes of it, packed a piece at a time."""
    def prepare(folder, given):
        piece = text * (1 + 2**20 // len(text))
        with gzip.open(folder / "in.csv.gz", "wb", compresslevel=1) as stream:
            stream.write(b"a,b,kind\n")
            for _ in range(total // len(piece)):
                stream.write(piece)
    return prepare


def packed_twice(folder, given):
    inner = gzip.compress(bytes(200_000_000), 1)
    (folder / "in.csv.gz").write_bytes(gzip.compress(inner))


def zip_bomb(folder, given):
    with zipfile.ZipFile(folder / "in.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for i in range(20):
            with archive.open(f"in/{i}.csv", "w") as stream:
                for _ in range(100):
                    stream.write(bytes(2**20))


def many_members(folder, given):
    with zipfile.ZipFile(folder / "in.zip", "w") as archive:
        archive.writestr("a.csv", TABLE)
        for i in range(60_000):
            archive.writestr(f"in/{i}.txt", "")


def xz_bomb(folder, given):
    with lzma.open(folder / "in.csv.xz", "wb", preset=0) as stream:
        for _ in range(1500):
            stream.write(bytes(2**20))


FAMILY.add("3 GB of zeros in a gzip", repeated(b"\0", 3 * 10**9), *STAGE, "in.csv.gz", code=3)
FAMILY.add("3 GB of rows in a gzip", repeated(b"1.5,2.5,x\n", 3 * 10**9), *STAGE, "in.csv.gz", code=3)
FAMILY.add("one line of 2 GB in a gzip", repeated(b"x", 2 * 10**9), *STAGE, "in.csv.gz", code=3)
FAMILY.add("a gzip in a gzip", packed_twice, *STAGE, "in.csv.gz", code=3)
FAMILY.add("twenty members of 100 MB in a zip", zip_bomb, *STAGE_ZIP, code=3)
FAMILY.add("1.5 GB of zeros in an xz", xz_bomb, *STAGE, "in.csv.xz", code=3)
FAMILY.add("60,000 empty members", many_members, *STAGE_ZIP, code={0, 3}, check=whole_table)
