"""Runs the program under test: arguments of every script here are DTRAIN and MPIRUN_SH."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

DTRAIN = sys.argv.pop(1)
MPIRUN = sys.argv.pop(1)
LIMIT_S = 100


def left_running(mark):
    """Processes that carry `mark` in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            pass  # it ended meanwhile, or is somebody else's
    return found


def has_ulfm():
    """Whether the MPI in use is Open MPI 5, whose jobs may lose ranks."""
    version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
    return "Open MPI) 5" in version or "prterun" in version


class ProgramTest(unittest.TestCase):
    """Each test works in a folder of its own."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_program(self, *arguments, ranks=0, environment=None, under=()):
        """dtrain ARGUMENTS in the test's folder, under mpirun when `ranks` is not 0, each rank started by `under`."""
        mark = "DTRAIN_TEST_MARK=" + uuid.uuid4().hex
        command = [MPIRUN, str(ranks)] if ranks else []
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_COMM_", "PMIX_"))}
        clean.update(environment or {}, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                     DTRAIN_TEST_MARK=mark.split("=")[1])
        done = subprocess.run(command + [*map(str, under), DTRAIN, *map(str, arguments)], cwd=self.folder, env=clean, text=True,
                              capture_output=True, timeout=LIMIT_S)
        for _ in range(50):  # a launcher's helpers may need a moment to go
            if not left_running(mark):
                break
            time.sleep(0.1)
        self.assertEqual(left_running(mark), [], "processes were left running")
        return done

    def succeed(self, *arguments, **how):
        done = self.run_program(*arguments, **how)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def refuse(self, code, words, *arguments, **how):
        """Ends with `code` and one sentence that has all of `words`, printed once."""
        done = self.run_program(*arguments, **how)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        sentences = [line for line in done.stderr.splitlines() if line.startswith("dtrain:")]
        self.assertEqual(len(sentences), 1, done.stderr)
        for word in words:
            self.assertIn(word, sentences[0])
        self.assertNotIn("dtrain:", done.stdout)
        return sentences[0]

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


SHORT = ("--limit-steps", "4", "--global-batch", "16", "--record-steps", "off", "--quiet")
