"""Ctrl-C in a terminal in which mpirun runs the program: the run says there that it stops, and leaves a checkpoint. mpirun then hands
nothing of its ranks' output on, and in a background process group a write must not stop the rank, even after `stty tostop`."""

import os
import pty
import select
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

from dtrain_run import MPIRUN

BINARY = sys.argv.pop()
LIMIT_S = 60


class CtrlCTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def start(self):
        """The program under mpirun on a terminal of its own: its process, and the other end of that terminal."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            for key in [key for key in os.environ if key.startswith(("OMPI_", "PMIX_", "SLURM_"))]:
                del os.environ[key]
            words = ["--model", "mlp", "--threads", "1", "--epochs", "10000", "--name", "long", "--checkpoint-every", "100000steps"]
            os.execv(MPIRUN, [str(MPIRUN), "2", BINARY, *words])
        settings = termios.tcgetattr(terminal)
        settings[3] |= termios.TOSTOP
        termios.tcsetattr(terminal, termios.TCSANOW, settings)
        return pid, terminal

    def test_the_sentence_reaches_the_terminal(self):
        pid, terminal = self.start()
        said, pressed, begun = b"", False, time.monotonic()
        while time.monotonic() - begun < LIMIT_S:
            if not pressed and (self.folder / "runs/long/results.h5").exists():
                os.write(terminal, b"\x03")
                pressed = True
            if not select.select([terminal], [], [], 0.05)[0]:
                continue
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
            said += piece
        os.close(terminal)
        os.waitpid(pid, 0)
        self.assertTrue(pressed, said)
        self.assertEqual(said.count(b"dtrain: stops after this step and writes a checkpoint"), 1, said)  # of two ranks
        self.assertEqual((self.folder / "runs/long/state").read_text(), "preempted\n")
        self.assertTrue((self.folder / "runs/long/checkpoints/last").exists())


if __name__ == "__main__":
    unittest.main()
