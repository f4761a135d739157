"""PNG and JPEG files and folders of them: damaged, of impossible sizes, packed a thousandfold, and linked to elsewhere."""

import io
import os
import random
import struct
import zlib

import numpy as np
from PIL import Image

import staged
from case import STAGE, Family

FAMILY = Family("images")
STAGE_IMAGES = (*STAGE, "in")
EACH = 12
SIDE = 8
CLASSES = ("cat", "dog")
RANDOM = np.random.default_rng(5)
PIXELS = RANDOM.integers(0, 255, (len(CLASSES) * EACH, SIDE, SIDE, 3)).astype(np.uint8)


def encoded(pixels, kind="PNG", **how):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **how)
    return stream.getvalue()


def chunk(name, data, checksum=None):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data) if checksum is None else checksum)


def png(width=SIDE, height=SIDE, depth=8, colour=2, data=None, rows=None, before=b""):
    """A PNG file written by hand; `rows`: the bytes of all rows, to be packed."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    rows = bytes((1 + 3 * SIDE) * SIDE) if rows is None else rows
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(rows, 9) if data is None else data) + chunk(b"IEND", b"")


def zeros_packed(mib):
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(mib)) + packer.flush()


def blank(width, height):
    """White and black of one bit: nearly nothing in the file, three bytes each in memory."""
    packer = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    packed = b"".join(packer.compress(row * min(64, height - at)) for at in range(0, height, 64)) + packer.flush()
    return png(width, height, depth=1, colour=0, data=packed)


def folder_of(change=None, **others):
    """prepare: two classes of images; `change(place)` then changes the folder, `others` replace or add files of the first class."""
    def prepare(folder, given):
        for i, pixels in enumerate(PIXELS):
            place = folder / "in" / CLASSES[i // EACH]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i:02}.png").write_bytes(encoded(pixels))
        for name, content in others.items():
            content = content() if callable(content) else content
            (folder / "in" / CLASSES[0] / name.replace("_", ".")).write_bytes(content)
        if change:
            change(folder / "in")
    return prepare


def same_pixels(folder, given, output):
    return staged.same_rows(folder, "inputs", PIXELS.transpose(0, 3, 1, 2))


def all_whole(folder, given, output):
    found = len(staged.array(folder, "inputs"))
    return "" if found == len(PIXELS) else f"{found} images"


FAMILY.add("as it should be", folder_of(), *STAGE_IMAGES, code=0, check=same_pixels, quick=True)
JPEG = encoded(PIXELS[0], "JPEG")
PROGRESSIVE = encoded(PIXELS[0], "JPEG", progressive=True)


def sized(content, height, width):
    """A JPEG that claims another size."""
    at = next(i for i in range(len(content) - 1) if content[i] == 0xFF and content[i + 1] in (0xC0, 0xC2)) + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4:]


def scans(height, width, count):
    """A progressive JPEG of many scans, each of which says in some bytes that all blocks stay as they are."""
    image = encoded(np.zeros((64, 64), np.uint8), "JPEG", progressive=True)
    image = sized(image, height, width)
    begin = image.rindex(b"\xff\xda")
    scan = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 1, 63, 0x00)
    table = b"\xff\xc4" + struct.pack(">HB", 20, 0x10) + bytes([1] + [0] * 15) + b"\xe0"  # one code: a run of 16384 blocks or more
    blocks = (height // 8) * (width // 8)
    body = bytes(2 * (blocks // 16384 + 1))
    return image[:begin] + table + (scan + body) * count + b"\xff\xd9"


BROKEN = {
    "nothing": b"", "only a signature": b"\x89PNG\r\n\x1a\n", "text": b"a cat " * 50, "half a PNG": encoded(PIXELS[0])[:80],
    "a wrong checksum": png(before=chunk(b"gAMA", b"\0\0\xb1\x8f") + chunk(b"PLTE", bytes(3), checksum=1)),
    "no width": png(width=0), "no height": png(height=0), "a width of 2^31": png(width=2**31 - 1, height=1), "2^31 x 2^31 pixels": png(2**31 - 1, 2**31 - 1),
    "a depth of 7 bits": png(depth=7), "a kind of colour that is none": png(colour=5), "rows that are missing": png(rows=bytes(30)),
    "packed bytes that are none": png(data=b"\x1b[2J" * 20), "a chunk beyond the file": b"\x89PNG\r\n\x1a\n" + b"\x7f\xff\xff\xffIHDR",
    "a comment that unpacks to 500 MB": lambda: png(before=chunk(b"zTXt", b"x\0\0" + zeros_packed(500)), rows=bytes(30)),
    "a profile that unpacks to 500 MB": lambda: png(before=chunk(b"iCCP", b"x\0\0" + zeros_packed(500)), rows=bytes(30)),
    "a palette that is missing": png(colour=3, rows=bytes((1 + SIDE) * SIDE)),
    "half a JPEG": JPEG[: len(JPEG) // 2], "a JPEG of its first bytes": JPEG[:4], "a JPEG without tables": b"\xff\xd8\xff\xda\0\x08\x01\x01\0\0\x3f\0\xff\xd9",
    "a JPEG of 65500 x 65500 pixels": sized(JPEG, 65500, 65500), "a progressive JPEG of 65500 x 65500": sized(PROGRESSIVE, 65500, 65500),
    "a progressive JPEG of 8000 x 8000": sized(PROGRESSIVE, 8000, 8000), "a JPEG of height 0": sized(JPEG, 0, SIDE),
    "a JPEG of 1000 scans": lambda: scans(8000, 8000, 1000),
    "a JPEG of noise": JPEG[:-200] + random.Random(1).randbytes(198) + b"\xff\xd9",
}
MADE_UP = {"a JPEG of noise"}  # of which a decoder cannot know that it is none
for name, content in BROKEN.items():
    code = {0, 3} if name in MADE_UP else 3
    FAMILY.add(name, folder_of(broken_png=content), *STAGE_IMAGES, code=code, says=() if name in MADE_UP else ("broken.png",),
               quick=name in ("a JPEG of 1000 scans", "2^31 x 2^31 pixels"))
    FAMILY.add(f"{name}, left out", folder_of(broken_png=content), *STAGE_IMAGES, "--skip-broken", "--image-size", "8", code=0,
               check=None if name in MADE_UP else all_whole)
HUGE = {"a blank page of 8000 x 8000": (8000, 8000), "a blank page of 11000 x 11000": (11000, 11000), "a blank page of 60000 x 60000": (60000, 60000),
        "a line of 16 million pixels": (1 << 24, 1), "a column of 16 million pixels": (1, 1 << 24),
        "a line of a million pixels": (1_000_000, 1), "a column of a million pixels": (1, 1_000_000)}
for name, (width, height) in HUGE.items():
    FAMILY.add(f"{name} among others", folder_of(page_png=lambda w=width, h=height: blank(w, h)), *STAGE_IMAGES, "--image-size", "8", code={0, 3},
               quick=name.endswith("11000"))
    FAMILY.add(f"{name} only", folder_of(lambda place, w=width, h=height: [path.write_bytes(blank(w, h)) for path in [min(place.rglob("*.png"))]] and
                                         [path.unlink() for path in sorted(place.rglob("*.png"))[1:]]), *STAGE_IMAGES, code=3)


for name, (width, height) in {"a line": (1_000_000, 1), "a column": (1, 1_000_000)}.items():
    FAMILY.add(f"{name} of a million pixels to make 512 high", folder_of(page_png=lambda w=width, h=height: blank(w, h)), *STAGE_IMAGES, "--image-size", "512", code={0, 3})


def pages(count, side):
    page = blank(side, side)

    def change(place):
        for path in list(place.rglob("*.png")):
            path.unlink()
        for i in range(count):
            (place / CLASSES[i % 2] / f"{i:03}.png").write_bytes(page)
    return change


FAMILY.add("200 blank pages of 4000 x 4000", folder_of(pages(200, 4000)), *STAGE_IMAGES, code=3, quick=True)
FAMILY.add("3 blank pages of 8000 x 8000 to shrink", folder_of(pages(3, 8000)), *STAGE_IMAGES, "--image-size", "8", code={0, 3})
SIZES = ("0", "-1", "0x8", "8x", "x", "8x8x8", "99999999999999999999", "2147483648", "65536x65536", "4294967297x1", "1.5", "nan", "", "\x1b[2J")
for size in SIZES:
    FAMILY.add(f"--image-size {ascii(size)[1:-1]}", folder_of(), *STAGE_IMAGES, "--image-size", size, code={2, 3} if size else 0)
FAMILY.add("--image-size for a table", lambda folder, given: (folder / "in").write_text("a,b\n1,x\n2,y\n"), *STAGE_IMAGES, "--image-size", "8", code={2, 3})
FAMILY.add("images of two sizes", folder_of(other_png=encoded(PIXELS[0][:5])), *STAGE_IMAGES, code=3, says=("other.png",))


def link_to_secret(place):
    (place / "cat" / "secret.png").symlink_to(place.parent.parent / "outside" / "secret.txt")


def linked_class(place):
    (place / "mouse").symlink_to(place.parent.parent / "outside" / "kept")


def odd_names(place):
    for name in (b"caf\xe9", b"a\x1b[2J\x07b", b"a\nb"):
        folder = bytes(place) + b"/" + name
        os.mkdir(folder)
        with open(folder + b"/1.png", "wb") as file:
            file.write(encoded(PIXELS[0]))


def one_class(place):
    for path in (place / "dog").iterdir():
        path.unlink()
    (place / "dog").rmdir()


def deep(place):
    for _ in range(300):
        place = place / "deep"
    place.mkdir(parents=True)
    (place / "1.png").write_bytes(encoded(PIXELS[0]))


def other_class_in_test(place):
    (place / "test" / "wolf").mkdir(parents=True)
    (place / "test" / "wolf" / "1.png").write_bytes(encoded(PIXELS[0]))


FOLDERS = {"a link to a file": (link_to_secret, 3), "a linked class": (linked_class, 3), "one class": (one_class, 3),
           "an empty class": (lambda place: (place / "mouse").mkdir(), 3), "a class that only the test has": (other_class_in_test, 3),
           "classes with odd names": (odd_names, {0, 3}), "300 folders deep": (deep, {0, 3}),
           "an image in no class": (lambda place: (place / "1.png").write_bytes(encoded(PIXELS[0])), 3)}
for name, (change, code) in FOLDERS.items():
    FAMILY.add(name, folder_of(change), *STAGE_IMAGES, code=code, quick=name == "a link to a file")
shuffler = random.Random(7)
for number in range(12):
    content = bytearray(encoded(PIXELS[number]) if number % 2 else encoded(PIXELS[number], "JPEG"))
    for _ in range(4):
        content[shuffler.randrange(20, len(content))] = shuffler.randrange(256)
    FAMILY.add(f"four bytes changed, {number}", folder_of(broken_png=bytes(content)), *STAGE_IMAGES, code={0, 3})
