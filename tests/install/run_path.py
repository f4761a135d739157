"""run_path.py [--hardened] FILE_OR_FOLDER...: each program and library names the folders of its libraries by absolute paths, and an
environment variable cannot put others before them. What the loader writes at the start is not writable afterwards.

The dynamic loader reads an empty element of a run path as the current folder, and asks LD_LIBRARY_PATH before
DT_RUNPATH but after DT_RPATH (ld.so(8)). With BIND_NOW and GNU_RELRO it resolves all functions at the start and makes
their table read-only; with only one of the two the table stays writable (ld(1), -z now, -z relro).
"""
import pathlib
import re
import subprocess
import sys

HARDENED = "--hardened" in sys.argv  # as DTRAIN_HARDEN links


def binaries(places):
    for place in map(pathlib.Path, places):
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.is_file() and not file.is_symlink() and is_linked(file.open("rb").read(18)):
                yield file


def is_linked(header):
    """A program or shared library: objects of the compiler have no dynamic section yet."""
    return header[:4] == b"\x7fELF" and header[16:] in (b"\2\0", b"\3\0")


def read(option, file):
    return subprocess.run(["readelf", option, file], capture_output=True, text=True, check=True, timeout=60).stdout


def writable(dynamic, segments):
    if "(BIND_NOW)" not in dynamic and not re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "is not linked with -z now: its table of functions stays writable"
    if "GNU_RELRO" not in segments:
        yield "is not linked with -z relro: its table of functions stays writable"
    if re.search(r"GNU_STACK\s.*RWE", segments):
        yield "has an executable stack"


def faults(file):
    dynamic = read("-dW", file)
    if HARDENED:
        yield from writable(dynamic, read("-lW", file))
    for kind, text in re.findall(r"\((RPATH|RUNPATH)\)\s+Library \w+: \[(.*)\]", dynamic):
        if kind == "RUNPATH":
            yield "has DT_RUNPATH: LD_LIBRARY_PATH can replace its libraries"
        for element in text.split(":"):
            if not element.startswith(("/", "$ORIGIN")):
                yield f"has the element '{element}' in its run path [{text}]: the loader looks in the current folder"


checked = 0
found = []
for binary in binaries([word for word in sys.argv[1:] if word != "--hardened"]):
    checked += 1
    found += [f"{binary} {fault}" for fault in dict.fromkeys(faults(binary))]
print(*found, f"{checked} files checked", sep="\n")
sys.exit(bool(found) or checked == 0)
