"""Compiles every header of lib/ and app/ as the first thing of a translation unit: each includes what it needs.

A header is not compiled again where a file of the build begins with it: the build has shown it. Headers of one folder share a
translation unit where each includes the one before it, itself or through others. Then the first finds nothing before it, and a later one
only what it includes anyway, so that nothing that one of them lacks can come from another. Headers that reach LibTorch have its
precompiled header before them, as all files that include them have; the others do without.

    headers.py ROOT BUILD [LAUNCHER...]    the flags are those of BUILD's targets dtrain_header_probe_*; exit 1 if a header fails
    headers.py --self-test COMPILER        plants headers that lack something in a small tree and demands that they are found
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

INCLUDE = re.compile(r'^#include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
TORCH = ("torch/", "ATen/", "c10/")
NEEDS_CUDA = "lib/comm/device/nccl"  # compiled where the build has CUDA's headers


class Tree:
    """Which header includes which."""

    def __init__(self, root):
        self.root = root

    def headers(self):
        return sorted(path.relative_to(self.root).as_posix() for top in ("lib", "app") for suffix in ("hpp", "h")
                      for path in (self.root / top).rglob(f"*.{suffix}"))

    @cache
    def includes(self, file):
        """What a file of the tree includes, in order: our own headers as paths below the root; LibTorch's as <...>."""
        found = []
        for own, other in INCLUDE.findall((self.root / file).read_text()):
            places = [f"lib/{own}", f"app/{own}", str(Path(file).parent / own), own] if own else []
            found.append(next((place for place in places if (self.root / place).is_file()), f"<{own or other}>"))
        return found

    @cache
    def closure(self, file):
        """What a file includes, itself and through our headers."""
        found, left = set(), [file]
        while left:
            for name in self.includes(left.pop()):
                if name not in found:
                    found.add(name)
                    left += [name] if not name.startswith("<") else []
        return found

    def reaches_torch(self, header):
        return any(name.startswith(tuple(f"<{folder}" for folder in TORCH)) for name in self.closure(header))

    def changed(self, header):
        """When the header or one that it includes was last written."""
        files = [header, *(name for name in self.closure(header) if not name.startswith("<"))]
        return max((self.root / file).stat().st_mtime for file in files)


class Build:
    """The files that a build has compiled, and the flags of its probes."""

    def __init__(self, folder):
        self.folder = folder
        self.compiled, self.probes = [], {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            output = folder / words[words.index("-o") + 1]
            probe = re.search(r"dtrain_header_probe_(\w+)_(plain|torch)\.dir", str(output))
            if probe:
                self.probes[probe.groups()] = words[: words.index("-o")]
            else:
                precompiled = re.search(r"-include \S*/dtrain_(\w+)_pch\.dir", entry["command"])
                self.compiled.append((Path(entry["file"]), output, precompiled and precompiled.group(1)))

    def first_headers(self, tree):
        """The headers that files which it compiled, and which are newer than these headers, include before everything else."""
        found = set()
        for source, output, precompiled in self.compiled:
            if not (output.exists() and source.exists()) or precompiled not in (None, "tensor"):
                continue
            if "Unity" in source.parts:  # several files, of which the first begins
                source = Path(INCLUDE.search(source.read_text()).group(1))
            try:
                header = next(iter(tree.includes(source.relative_to(tree.root).as_posix())), "<>")
            except ValueError:  # not of the tree
                continue
            if header.startswith("<") or (precompiled and not tree.reaches_torch(header)):
                continue
            if output.stat().st_mtime >= tree.changed(header):
                found.add(header)
        return found

    def probe_of(self, header, kind):
        """The probe of the folder next above a header, or None where the build has none."""
        for folder in Path(header).parents:
            name = re.sub(r"\W", "_", folder.as_posix())
            if (name, kind) in self.probes:
                return name, kind
            if folder.as_posix() == NEEDS_CUDA:
                return None
        sys.exit(f"headers: there is no probe for {header}; tests/layers/CMakeLists.txt makes them")


def chains(tree, headers):
    """Lists of headers, each of which includes all before it."""
    left = sorted(headers, key=lambda header: (-len(tree.closure(header)), header))
    while left:
        chain = [left.pop(0)]
        while below := [header for header in left if header in tree.closure(chain[0])]:
            chain.insert(0, below[0])
            left.remove(below[0])
        yield chain


def plan(tree, build):
    """(headers, their count that the build has shown, [(probe, chain)])."""
    shown = build.first_headers(tree)
    groups = {}
    headers = tree.headers()
    for header in headers:
        probe = build.probe_of(header, "torch" if tree.reaches_torch(header) else "plain")
        if probe and header not in shown:
            groups.setdefault(probe, []).append(header)
    return headers, len(shown & set(headers)), [(probe, chain) for probe, group in groups.items() for chain in chains(tree, group)]


def compile_chain(build, launcher, probe, chain):
    """What the compiler says of headers that fail; empty: they compile."""
    name = re.sub(r"\W", "_", chain[-1])
    source = build.folder / f"tests/layers/headers/{name}.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f'#include "{header.removeprefix("lib/")}"\n' for header in chain)
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    command = [*launcher, *build.probes[probe], "-o", f"{source}.o", "-c", str(source)]
    done = subprocess.run(command, cwd=build.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return f"{', '.join(chain)}:\n{done.stdout}" if done.returncode else ""


def failures(build, launcher, units):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [said for said in pool.map(lambda unit: compile_chain(build, launcher, *unit), units) if said]


WORD = "#pragma once\nstruct Word {};\n"
CLEAN_TREE = {
    "lib/core/word.hpp": WORD,
    "lib/core/pair.hpp": '#pragma once\n#include "core/word.hpp"\nstruct Pair { Word one, other; };\n',
    "lib/core/list.hpp": '#pragma once\n#include "core/word.hpp"\n#include "core/pair.hpp"\nstruct List { Pair* pairs; Word end; };\n',
    "lib/core/number.hpp": "#pragma once\nstruct Number {};\n",
    "lib/core/number.cpp": '#include "core/number.hpp"\n',
    "app/main.hpp": '#pragma once\n#include "core/list.hpp"\nstruct Main { List list; };\n',
}
PLANTED = {  # file, what it then holds: the headers whose failure must be reported
    ("lib/core/word.hpp", "#pragma once\nstruct Word { Number number; };\n"): "lib/core/word.hpp, lib/core/pair.hpp, lib/core/list.hpp",
    ("lib/core/pair.hpp", "#pragma once\nstruct Pair { Word one, other; };\n"): "lib/core/pair.hpp, lib/core/list.hpp",
    ("app/main.hpp", "#pragma once\nstruct Main { List list; };\n"): "app/main.hpp",
    ("lib/core/number.hpp", "#pragma once\nstruct Number { Word word; };\n"): "lib/core/number.hpp",
}


def failures_in(files, compiler):
    with tempfile.TemporaryDirectory() as scratch:
        root, folder = Path(scratch, "root"), Path(scratch, "build")
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        folder.mkdir()
        flags = f"{compiler} -std=c++20 -I{root} -I{root}/lib"
        probes = [{"file": "empty.cpp", "command": f"{flags} -o x/dtrain_header_probe_{name}_plain.dir/e.o -c empty.cpp"} for name in ("lib_core", "app")]
        source = root / "lib/core/number.cpp"
        (folder / "compile_commands.json").write_text(json.dumps([*probes, {"file": str(source), "command": f"{flags} -o number.o -c {source}"}]))
        if files["lib/core/number.hpp"] == CLEAN_TREE["lib/core/number.hpp"]:
            (folder / "number.o").touch()
        build = Build(folder)
        _, shown, units = plan(Tree(root), build)
        return failures(build, [], units), shown, [chain for _, chain in units]


def self_test(compiler):
    failed, shown, units = failures_in(CLEAN_TREE, compiler)
    if failed or shown != 1 or sorted(units) != [["app/main.hpp"], ["lib/core/word.hpp", "lib/core/pair.hpp", "lib/core/list.hpp"]]:
        yield f"a clean tree: {failed}, {shown} begun with, {units}"
    for (file, text), expected in PLANTED.items():
        failed = failures_in(CLEAN_TREE | {file: text}, compiler)[0]
        if not any(said.startswith(expected + ":") for said in failed):
            yield f"{file} lacks an include, and was not found: {failed}"


def main():
    if sys.argv[1] == "--self-test":
        lines = list(self_test(sys.argv[2]))
    else:
        tree, build = Tree(Path(sys.argv[1]).resolve()), Build(Path(sys.argv[2]).resolve())
        headers, shown, units = plan(tree, build)
        print(f"headers: {len(headers)}; files of the build begin with {shown} of them; the others are in {len(units)} translation units",
              flush=True)
        lines = failures(build, sys.argv[3:], units)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
