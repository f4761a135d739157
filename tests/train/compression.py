"""Gradients compressed between two emulated nodes: the bytes of the formula, the same bits again, and losses near the ones of all bits.

    compression.py BINARY
"""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, refused, run, step_losses

BINARY = sys.argv.pop()
HIDDEN = 256
MODEL = ["--model", "mlp", "--model-option", f"hidden={HIDDEN}", "--global-batch", 32, "--threads", 1, "--quiet", "--schedule", "constant"]
VALUES = 784 * HIDDEN + HIDDEN + 10 * HIDDEN + 64  # of the flat gradient: each parameter begins at a multiple of 64
BLOCKS = (VALUES + 255) // 256
BYTES = {"none": 4 * VALUES, "fp16": 2 * VALUES + 4 * BLOCKS, "bf16": 2 * VALUES, "int8": VALUES + 4 * BLOCKS}


class CompressionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def nodes(self, *ranks):
        """Options of a machine with so many ranks on each node."""
        path = self.folder / f"nodes-{'-'.join(map(str, ranks))}.toml"
        first = np.cumsum([0, *ranks])
        path.write_text("".join(f"[[node]]\nranks = {list(range(begin, end))}\n" for begin, end in zip(first[:-1].tolist(), first[1:].tolist())))
        return ["--emulate", path]

    def train(self, name, ranks, *options, steps=6):
        run(BINARY, sum(ranks), *MODEL, *self.nodes(*ranks), "--name", name, "--limit-steps", steps, *options, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def over_the_link(self, folder, ranks):
        """Bytes that the ranks of the first node have sent to those of the second."""
        first = ranks[0]
        with h5py.File(folder / "results.h5") as file:
            rows = [file[f"ranks/{rank:05}/traffic"][:] for rank in range(first)]
        return sum(int(of_rank["bytes_sent"][of_rank["peer"] >= first].sum()) for of_rank in rows)

    def losses(self, folder):
        with h5py.File(folder / "results.h5") as file:
            return step_losses(file)

    def assert_same(self, one, other, step):
        first, second = (checkpoint_tensors(folder / f"checkpoints/step-{step:08}", group=None) for folder in (one, other))
        self.assertEqual(first.keys(), second.keys())
        self.assertEqual([], [name for name in first if not np.array_equal(first[name], second[name])])

    def test_the_link_carries_the_bytes_of_the_formula_and_the_losses_are_near(self):
        losses = {}
        for ranks in ([1, 1], [2, 2]):
            for name, expected in BYTES.items():
                with self.subTest(ranks=ranks, compression=name):
                    folder = self.train(f"{name}-{len(ranks)}x{ranks[0]}", ranks, "--compression", name, "--verify-every", 2)
                    sent = self.over_the_link(folder, ranks) / 6
                    self.assertAlmostEqual(sent / expected, 1, delta=0.01)  # and the message at the end of each step
                    losses[name, ranks[0]] = self.losses(folder)
                    np.testing.assert_allclose(losses[name, ranks[0]], losses["none", ranks[0]], rtol=0.02)

    def test_the_same_run_has_the_same_bits_and_goes_on_with_them(self):
        options = ["--compression", "int8", "--checkpoint-every", "4steps"]
        one, again = (self.train(f"again-{part}", [1, 2], *options, steps=8) for part in "ab")
        self.assert_same(one, again, 8)
        gone_on = self.train("gone-on", [1, 2], *options, "--resume", one / "checkpoints/step-00000004", steps=8)
        self.assert_same(one, gone_on, 8)
        self.train("gone-on-plain", [1, 2], "--resume", one / "checkpoints/step-00000004", steps=8)

    def test_zero1_and_pipelines_compress_as_well(self):
        plain = self.losses(self.train("plain", [1, 2]))
        sharded = self.train("sharded", [1, 2], "--strategy", "zero1", "--compression", "fp16", "--verify-every", 2)
        np.testing.assert_allclose(self.losses(sharded), plain, rtol=0.02)
        piped = self.train("piped", [2, 2], "--mesh", "data=2,pipe=2", "--compression", "bf16", "--verify-every", 2)
        np.testing.assert_allclose(self.losses(piped), plain, rtol=0.05)

    def test_what_it_cannot_do_is_said(self):
        wanted = ["--compression", "int8"]
        for ranks, options, words in [
                (1, wanted, ["--compression int8", "nothing to compress", "one rank"]),
                (2, wanted, ["--compression int8", "nothing to compress", "one node"]),
                (2, [*wanted, "--reproducible"], ["--compression int8", "--reproducible", "same bits"]),
                (2, [*wanted, "--precision", "fp64"], ["--compression int8", "fp64"]),
                (2, [*wanted, "--device", "cuda"], ["--compression int8", "device"]),
                (2, [*wanted, "--adaptive-batch"], ["--compression int8", "noise"]),
                (2, [*wanted, "--all-reduce", "ring"], ["--compression int8", "--all-reduce"]),
                (2, [*wanted, "--strategy", "local_sgd"], ["--compression", "local_sgd", "ddp or zero1"]),
                (2, ["--compression", "int9"], ["--compression", "int9", "fp16, bf16, int8"])]:
            with self.subTest(options=options, ranks=ranks):
                refused(BINARY, ranks, 2, words, *MODEL, *options, "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
