"""run_path.py FILE_OR_FOLDER...: each program and library names the folders of its libraries by absolute paths, and an
environment variable cannot put others before them.

The dynamic loader reads an empty element of a run path as the current folder, and asks LD_LIBRARY_PATH before
DT_RUNPATH but after DT_RPATH (ld.so(8)).
"""
import pathlib
import re
import subprocess
import sys


def binaries(places):
    for place in map(pathlib.Path, places):
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == b"\x7fELF":
                yield file


def faults(file):
    dynamic = subprocess.run(["readelf", "-dW", file], capture_output=True, text=True, check=True, timeout=60).stdout
    for kind, text in re.findall(r"\((RPATH|RUNPATH)\)\s+Library \w+: \[(.*)\]", dynamic):
        if kind == "RUNPATH":
            yield "has DT_RUNPATH: LD_LIBRARY_PATH can replace its libraries"
        for element in text.split(":"):
            if not element.startswith(("/", "$ORIGIN")):
                yield f"has the element '{element}' in its run path [{text}]: the loader looks in the current folder"


checked = 0
found = []
for binary in binaries(sys.argv[1:]):
    checked += 1
    found += [f"{binary} {fault}" for fault in dict.fromkeys(faults(binary))]
print(*found, f"{checked} files checked", sep="\n")
sys.exit(bool(found) or checked == 0)
