"""The memory that runs are said to take, beside what they take: every model on one rank, stages, slices, copies, in half precision and with each
sample's gradient clipped.

    memory_estimates.py BINARY [--full]
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

import h5py

from drawn import drawn
from dtrain_run import run

FULL = "--full" in sys.argv
BINARY = [argument for argument in sys.argv[1:] if argument != "--full"].pop()
MODELS = {"mlp": ["hidden=500,600,20"], "cnn": [], "vgg11": ["width=8"], "resnet18": ["width=8"], "conv_autoencoder": [], "nbow": [],
          "seq2seq": ["embedding=64", "hidden=96"], "gpt": ["layers=2", "heads=2", "width=96"]}
PLACES = {"alone": (1, []), "half": (1, ["--precision", "bf16"]), "stages": (2, ["--mesh", "pipe=2"]), "slices": (2, ["--mesh", "tensor=2"]),
          "copies": (2, []), "private": (1, ["--dp-clip", 1, "--dp-noise", 1])}
# Of small networks kernels' own memory, which nothing estimates, is more: oneDNN's copies of half a MiB.
MOST_BEYOND, BYTES_BEYOND = 0.06, 256 << 10
LEAST = 0.6  # of the estimate; of what passes by, and is not there at one time, all is counted
BATCH_NORM = {"vgg11", "resnet18"}  # whose samples are not for themselves
CASES = [(model, pieces, place) for model in MODELS for pieces in (1, 4) for place in PLACES
         if not (pieces == 1 and place in ("stages", "copies")) and not (place == "private" and model in BATCH_NORM)]


class MemoryEstimatesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def test_runs_take_what_was_estimated(self):
        for model, pieces, place in CASES if FULL else drawn(CASES, share=1 / 8):
            with self.subTest(model=model, pieces=pieces, place=place):
                ranks, options = PLACES[place]
                name = f"{model}-{pieces}-{place}"
                choices = [word for choice in MODELS[model] for word in ("--model-option", choice)]
                run(BINARY, ranks, "--model", model, *choices, *options, "--global-batch", 16, "--micro-batches", pieces, "--limit-steps", 3,
                    "--threads", 1, "--checkpoint-every", "end", "--quiet", "--name", name, cwd=self.folder, limit_s=60)
                with h5py.File(self.folder / "runs" / name / "results.h5") as file:
                    told = [event["detail"].decode() for rank in file["ranks"].values() for event in rank["events"][:]
                            if event["kind"] == b"tensor_memory"]
                self.assertEqual(len(told), ranks)
                for words in told:
                    taken, estimated = map(int, re.search(r"at most (\d+) bytes while it trained, estimated (\d+)", words).groups())
                    self.assertLess(taken, (1 + MOST_BEYOND) * estimated + BYTES_BEYOND, words)
                    self.assertGreater(taken, LEAST * estimated, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
