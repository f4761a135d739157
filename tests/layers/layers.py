"""Compares every #include of our own headers with the link lines of lib/ and with the layer table of the design.

A folder's link line is the layer rule: what a header includes must be linked PUBLIC, what only a .cpp includes
PRIVATE, and nothing may be linked that is not included or that the table does not allow.

    layers.py ROOT              checks the tree at ROOT; prints one line per violation; exit 1 if there is one
    layers.py ROOT --self-test  plants each kind of violation in a small tree and demands that it is found
"""

import re
import sys
import tempfile
from pathlib import Path

ALLOWED = {  # folder: what it may link, from the design's table of layers
    "core": "",
    "topology": "core",
    "h5": "core",
    "kernels": "core",
    "privacy": "core kernels",
    "secure_aggregation": "core privacy",
    "models": "core kernels",
    "comm": "core topology",
    "doctor": "core topology comm",
    "record": "core h5",
    "data": "core topology h5 comm kernels",
    "optim": "core kernels",
    "parallel": "core topology comm models optim kernels privacy secure_aggregation",
    "checkpoint": "core topology h5 comm",
    "state": "core topology h5 comm data models optim parallel checkpoint",
    "plan": "core topology models parallel",
    "federated": "core kernels comm data models optim parallel",
    "train": "core topology h5 kernels models comm record data optim parallel checkpoint state plan federated privacy",
    "inference": "core h5 kernels models comm record data parallel checkpoint state train",
}
WITHOUT_TORCH = {"core", "topology", "h5", "comm", "doctor", "record", "privacy", "secure_aggregation"}
# Only the module that is opened where there is a GPU may be compiled with these.
CUDA_FOLDERS = {"cuda", "nccl"}
CUDA_HEADER = re.compile(r"(cuda|cudnn|cublas|nccl|nvml|nvtx3/|cub/|ATen/cuda|c10/cuda|torch/csrc/cuda)")
MOST_FILES = 45  # in one folder of lib/ or app/
HEADERS = {".hpp", ".h", ".cuh"}
SOURCES = {".cpp", ".cu", ".c"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBRARY = re.compile(r"dtrain_add_library\s*\(\s*(\w+)([^()]*(?:\([^()]*\)[^()]*)*)\)")


def without_comments(cmake):
    return re.sub(r"#[^\n]*", "", cmake)


def link_line(folder):
    """The folder's (public, private) own libraries and whether it asks for LibTorch; None without a library."""
    match = LIBRARY.search(without_comments((folder / "CMakeLists.txt").read_text()))
    if not match:
        return None
    links = {"PUBLIC": set(), "PRIVATE": set()}
    section = None
    for word in match.group(2).split():
        if word in ("SOURCES", "PUBLIC", "PRIVATE"):
            section = word
        elif section in links:
            links[section] |= set(re.findall(r"dtrain::(\w+)", word))
    return links["PUBLIC"], links["PRIVATE"], "TORCH" in match.group(2).split()


def includes_of(folder, suffixes):
    """(file, delimiter, included path) of each #include in the folder's files with these suffixes."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in suffixes:
            for delimiter, path in INCLUDE.findall(file.read_text()):
                yield file, delimiter, path


def check_folder(folder, root):
    name = folder.name
    if name not in ALLOWED:
        yield f"lib/{name}: not in the design's table of layers; add it there and in tests/layers/layers.py"
        return
    allowed = set(ALLOWED[name].split())
    found = link_line(folder)
    public, private, torch = found or (set(), set(), False)
    used = {"header": set(), "source": set()}
    for kind, suffixes in (("header", HEADERS), ("source", SOURCES)):
        for file, delimiter, path in includes_of(folder, suffixes):
            where = file.relative_to(root)
            first = path.split("/")[0]
            if name in WITHOUT_TORCH and first in ("torch", "ATen", "c10"):
                yield f"{where}: includes <{path}>, but lib/{name} stays free of LibTorch"
            if delimiter != '"' or "/" not in path or first == name:
                continue
            if first == "app":
                yield f"{where}: includes {path}, but nothing in lib/ uses app/"
            elif first not in ALLOWED:
                yield f"{where}: includes {path}, which is in no folder of lib/"
            elif first not in allowed:
                yield f"{where}: includes {path}, but lib/{name} may use only: {ALLOWED[name] or 'nothing'}"
            else:
                used[kind].add(first)
                if found and kind == "header" and first not in public:
                    yield f"{where}: includes {path}; lib/{name}/CMakeLists.txt must link dtrain::{first} PUBLIC"
                elif found and first not in public | private:
                    yield f"{where}: includes {path}; lib/{name}/CMakeLists.txt must link dtrain::{first}"
    for link in sorted(public | private):
        where = f"lib/{name}/CMakeLists.txt"
        if link not in allowed:
            yield f"{where}: links dtrain::{link}, but may link only: {ALLOWED[name] or 'nothing'}"
        elif link not in used["header"] | used["source"]:
            yield f"{where}: links dtrain::{link} and includes nothing of it"
        elif link in public and link not in used["header"]:
            yield f"{where}: links dtrain::{link} PUBLIC, but no header includes it: PRIVATE"
    if torch and name in WITHOUT_TORCH:
        yield f"lib/{name}/CMakeLists.txt: asks for TORCH, but the folder stays free of LibTorch"


def check_cuda(root):
    """Without CUDA's toolkit all but the module's own files compile."""
    for folder in ("lib", "app"):
        for file, delimiter, path in includes_of(root / folder, HEADERS | SOURCES):
            where = file.relative_to(root)
            if delimiter == "<" and CUDA_HEADER.match(path) and not CUDA_FOLDERS & set(where.parts):
                yield f"{where}: includes <{path}>, but CUDA's headers stay in folders named {' or '.join(sorted(CUDA_FOLDERS))}"


def check_sizes(root):
    """What is in a folder can be seen at a glance."""
    files = (file for top in ("lib", "app") for file in (root / top).rglob("*") if file.is_file())
    for folder in sorted({file.parent for file in files}):
        files = sum(file.is_file() for file in folder.iterdir())
        if files > MOST_FILES:
            yield f"{folder.relative_to(root)}: {files} files; make sub-folders that say what they hold (at most {MOST_FILES})"


def check_app(root):
    """app/ may use all of lib/, if its link lines say so."""
    cmake = root / "app" / "CMakeLists.txt"
    if not cmake.exists():
        return
    linked = set(re.findall(r"dtrain::(\w+)", without_comments(cmake.read_text())))
    for file, delimiter, path in includes_of(root / "app", HEADERS | SOURCES):
        first = path.split("/")[0]
        if delimiter == '"' and first in ALLOWED and first not in linked:
            yield f"{file.relative_to(root)}: includes {path}; app/CMakeLists.txt must link dtrain::{first}"


def violations(root):
    for folder in sorted((root / "lib").iterdir()):
        if folder.is_dir():
            yield from check_folder(folder, root)
    yield from check_sizes(root)
    yield from check_app(root)
    yield from check_cuda(root)


CLEAN_TREE = {
    "lib/core/error.hpp": "#include <string>\n",
    "lib/core/CMakeLists.txt": "dtrain_add_library(core SOURCES error.cpp)\n",
    "lib/topology/mesh.hpp": '#include "core/error.hpp"\n',
    "lib/topology/CMakeLists.txt": "dtrain_add_library(topology SOURCES mesh.cpp\n  PUBLIC dtrain::core)\n",
    "lib/comm/queue.hpp": '#include "topology/mesh.hpp"\n',
    "lib/comm/queue.cpp": '#include "comm/queue.hpp"\n#include "core/error.hpp"\n',
    "lib/comm/CMakeLists.txt": "dtrain_add_library(comm SOURCES queue.cpp\n"
    "  PUBLIC dtrain::topology  # a comment about dtrain::record\n  PRIVATE dtrain::core)\n",
    "app/main.cpp": '#include "comm/queue.hpp"\n',
    "app/CMakeLists.txt": "target_link_libraries(dtrain_app PRIVATE dtrain::comm)\n",
}
PLANTED = [  # (file, a piece of it, what stands there instead, what must then be reported)
    ("lib/core/error.hpp", "<string>", '"comm/queue.hpp"', "lib/core may use only"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', "<ATen/ATen.h>", "lib/comm stays free of LibTorch"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', '"core/error.hpp"\n#include <cuda_runtime_api.h>', "CUDA's headers stay in"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', '"core/error.hpp"\n#include <nccl.h>', "CUDA's headers stay in"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', '"app/main.hpp"', "nothing in lib/ uses app/"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', '"utils/strings.hpp"', "in no folder of lib/"),
    ("lib/comm/queue.cpp", '"core/error.hpp"', "<string>", "links dtrain::core and includes nothing of it"),
    ("lib/comm/CMakeLists.txt", "PRIVATE dtrain::core", "", "must link dtrain::core"),
    ("lib/comm/CMakeLists.txt", "PUBLIC dtrain::topology", "PRIVATE dtrain::topology", "dtrain::topology PUBLIC"),
    ("lib/comm/CMakeLists.txt", "PRIVATE dtrain::core", "dtrain::core", "no header includes it: PRIVATE"),
    ("lib/comm/CMakeLists.txt", "dtrain::core", "dtrain::core dtrain::h5", "links dtrain::h5, but may link only"),
    ("lib/comm/CMakeLists.txt", "comm SOURCES", "comm TORCH SOURCES", "asks for TORCH"),
    ("app/CMakeLists.txt", "dtrain::comm", "", "app/CMakeLists.txt must link dtrain::comm"),
]


def violations_in(files):
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            file = Path(scratch, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return list(violations(Path(scratch)))


def self_test():
    yield from violations_in(CLEAN_TREE)
    for name, piece, planted, expected in PLANTED:
        assert piece in CLEAN_TREE[name], (name, piece)
        found = violations_in(CLEAN_TREE | {name: CLEAN_TREE[name].replace(piece, planted, 1)})
        if not any(expected in line for line in found):
            yield f"a violation planted in {name} was not found; expected '{expected}' in {found}"


    many = violations_in(CLEAN_TREE | {f"lib/core/part{number}.hpp": "" for number in range(MOST_FILES)})
    if not any("make sub-folders" in line for line in many):
        yield f"a folder of {MOST_FILES + 2} files was not found; found {many}"


def main():
    root = Path(sys.argv[1])
    lines = list(self_test() if sys.argv[2:] == ["--self-test"] else violations(root))
    print("\n".join(lines) if lines else f"layers: nothing found in {root.name}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
