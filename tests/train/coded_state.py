"""Optimizer state in 8 bits beside a twin in numpy, on any ranks and strategy, and what it takes of memory.

    coded_state.py BINARY [--full]
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, refused, run, step_losses

FULL = "--full" in sys.argv
BINARY = [argument for argument in sys.argv[1:] if argument != "--full"].pop()
BITS = ["--optimizer-state-bits", 8]
MLP = ["--model", "mlp", "--model-option", "hidden=67", "--global-batch", 24, "--threads", 1, "--quiet", "--schedule", "constant"]
ADAM = [*MLP, "--optimizer", "adam"]
SGD = [*MLP, "--optimizer", "sgd", "--momentum", 0.9, "--learning-rate", 0.02]


def ladder(first):
    """The levels of one sign, as Dettmers et al. have them: of each tenth the middles of equal parts, twice as many as of the one below."""
    values = [0.0]
    for tenth, unit in enumerate((1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)):
        edges = 0.1 + 0.9 * np.arange((first << tenth) + 1) / (first << tenth)
        values += (unit * ((edges[:-1] + edges[1:]) / 2)).tolist()
    return np.array([*values, 1.0], np.float32)


def rounded(tensor, positive):
    """What is left of a tensor in blocks of 256 values, each a level times the largest of its block; small tensors stay as they are."""
    if tensor.size < 4096:
        return tensor
    levels = ladder(2 if positive else 1)
    middles = (levels[:-1] + levels[1:]) / np.float32(2)
    flat, found = tensor.ravel(), np.empty(tensor.size, np.float32)
    for begin in range(0, flat.size, 256):
        block = flat[begin:begin + 256]
        scale = block[np.argmax(np.abs(block))]
        if scale == 0:
            found[begin:begin + 256] = 0
            continue
        share = block / scale
        level = np.searchsorted(middles, np.abs(share), side="left")
        if positive:
            level = np.maximum(level, block != 0)
        else:
            level = np.where(share < 0, np.minimum(level, len(levels) - 2), level)
        found[begin:begin + 256] = np.copysign(levels[level], share) * scale
    return found.reshape(tensor.shape)


class CodedStateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def nodes(self, *counts):
        path = self.folder / f"nodes-{'-'.join(map(str, counts))}.toml"
        first = np.cumsum([0, *counts]).tolist()
        path.write_text("".join(f"[[node]]\nranks = {list(range(begin, end))}\n" for begin, end in zip(first[:-1], first[1:])))
        return ["--emulate", path]

    def train(self, name, ranks, *options, steps=2):
        run(BINARY, ranks, *options, "--epochs", 2, "--name", name, "--limit-steps", steps, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def state(self, folder, step):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def losses(self, folder):
        with h5py.File(folder / "results.h5") as file:
            return step_losses(file)

    def assert_rounded(self, coded, full):
        self.assertEqual(coded.keys(), full.keys())
        for name, value in full.items():
            if name.startswith("optimizer/"):
                value = rounded(value, name.startswith("optimizer/exp_avg_sq/"))
            np.testing.assert_array_equal(coded[name], value, err_msg=name)

    def test_each_step_leaves_what_the_twin_leaves_of_the_full_state(self):
        buckets = ["--bucket-mb", 1]  # as with codes: gradients of linear layers are made from factors otherwise, and have other last bits
        for name, model in {"adam": [*ADAM, *buckets], "sgd": [*SGD, *buckets]}.items():
            with self.subTest(name=name):
                coded = self.train(f"{name}-8", 1, *model, *BITS, "--checkpoint-every", "1steps", "--keep", 3)
                self.assert_rounded(self.state(coded, 1), self.state(self.train(f"{name}-32", 1, *model, steps=1), 1))
                # Goes on without the option from what the codes stand for.
                full = self.train(f"{name}-on", 1, *model, "--resume", coded / "checkpoints/step-00000001")
                self.assert_rounded(self.state(coded, 2), self.state(full, 2))

    def test_a_run_that_goes_on_has_the_codes_that_it_had(self):
        whole = self.train("whole", 2, *ADAM, *BITS, "--checkpoint-every", "2steps", "--keep", 3, steps=4)
        gone_on = self.train("gone-on", 2, *ADAM, *BITS, "--resume", whole / "checkpoints/step-00000002", steps=4)
        one, other = self.state(whole, 4), self.state(gone_on, 4)
        self.assertEqual([], [name for name in one if not np.array_equal(one[name], other[name])])

    def test_all_ranks_and_strategies_come_near_one_rank_and_load_each_other(self):
        usual = [*ADAM, "--micro-batches", 4, "--grad-clip", 1.0]
        expected = self.state(self.train("one", 1, *usual, *BITS, steps=4), 4)
        on = self.state(self.train("one-on", 1, *usual, steps=6), 6)
        apart = self.nodes(1, 1, 1)
        cases = {"ddp-together": (3, []), "ddp-apart": (3, apart), "zero1-together": (2, ["--strategy", "zero1"]),
                 "zero2-apart": (3, ["--strategy", "zero2", *apart]), "zero3-apart": (3, ["--strategy", "zero3", *apart]),
                 "zero2-within": (4, ["--strategy", "zero2", "--shard-within", "node", *self.nodes(2, 2)]),
                 "zero1-stages": (4, ["--strategy", "zero1", "--mesh", "data=2,pipe=2", *self.nodes(2, 2)]),
                 "zero1-slices": (4, ["--strategy", "zero1", "--mesh", "data=2,tensor=2", *self.nodes(2, 2)])}
        names = list(cases) if FULL else ["ddp-together", "zero1-together", "zero3-apart", "zero2-within"]
        for name in names:
            with self.subTest(name=name):
                ranks, options = cases[name]
                folder = self.train(name, ranks, *usual, *BITS, *options, steps=4)
                found = self.state(folder, 4)
                self.assertEqual(found.keys(), expected.keys())
                for tensor, value in expected.items():
                    # Blocks end elsewhere: values differ by levels, at most a 16th of a value and a 100th of the largest apart.
                    atol = 0.02 * np.abs(value).max() if tensor.startswith("optimizer/") else 4 * 0.001 * 0.3
                    np.testing.assert_allclose(found[tensor], value, rtol=0.15, atol=atol, err_msg=tensor)
                # Without the option, on other ranks, as another strategy.
                gone_on = self.train(f"{name}-on", 2, *usual, *(["--strategy", "zero3", *self.nodes(1, 1)] if "ddp" in name else []), "--resume",
                                     folder / "checkpoints/step-00000004", steps=6)
                for tensor, value in self.state(gone_on, 6).items():
                    if tensor.startswith("model/"):
                        np.testing.assert_allclose(value, on[tensor], rtol=0.15, atol=6 * 0.001 * 0.3, err_msg=tensor)
        saved = json.loads((folder / "checkpoints/step-00000004/manifest.json").read_text())
        self.assertEqual({"float32"}, {tensor["dtype"] for tensor in saved["tensors"] if tensor["name"].startswith("optimizer/exp_avg")})

    def test_it_trains_about_as_well_as_with_full_state(self):
        text = ["--model", "gpt", "--model-option", "layers=2", "--model-option", "heads=2", "--model-option", "width=64", "--global-batch", 8,
                "--threads", 1, "--quiet"]
        cases = {"mlp": [*ADAM, "--global-batch", 64], **({"gpt": text, "sgd": [*SGD, "--global-batch", 64]} if FULL else {"gpt": text})}
        for name, model in cases.items():
            with self.subTest(name=name):
                full, coded = (self.losses(self.train(f"{name}-as-well-{len(more)}", 1, *model, *more, steps=60)) for more in ([], BITS))
                learned = full[:5].mean() - full[-15:].mean()
                self.assertGreater(learned, 0)
                # Of what is learned: rounding a moment by at most a 16th changes single updates, not the course.
                self.assertLess(abs(coded[-15:].mean() - full[-15:].mean()), 0.05 * learned)

    def test_a_value_takes_a_byte_in_memory_for_each_moment(self):
        widths = [784, 64, *[256] * 80, 10]
        parameters = sum(inputs * outputs + outputs for inputs, outputs in zip(widths, widths[1:]))
        model = ["--model", "mlp", "--model-option", "hidden=" + ",".join(map(str, widths[1:-1])), "--global-batch", 4, "--threads", 1,
                 "--quiet", "--optimizer", "adam", "--bucket-mb", 0.25, "--eval-batch", 256, *BITS]
        state = 2 * (1 + 4 / 256)
        rooms = (2 * 1.5 + 2) * 4 * 256 * 257 / parameters  # two layers' gradients, sent and received, and their parameters
        cases = {"ddp": (1, [], 8 + state), "zero2": (2, self.nodes(1, 1), 4 + (4 + state) / 2), "zero3": (2, self.nodes(1, 1), (8 + state) / 2 + rooms)}
        for stage, (ranks, options, promised) in cases.items():
            with self.subTest(stage=stage):
                folder = self.train(f"bytes-of-{stage}", ranks, *model, *options, "--strategy", stage)
                with h5py.File(folder / "results.h5") as file:
                    words = [event["detail"].decode() for rank in file["ranks"].values() for event in rank["events"][:]
                             if event["kind"] == b"tensor_memory"]
                self.assertEqual(len(words), ranks)
                taken, estimated = int(words[0].split("at most ")[1].split()[0]), int(words[0].split("estimated ")[1])
                self.assertAlmostEqual(taken / parameters / promised, 1, delta=0.05, msg=words)
                self.assertAlmostEqual(estimated / taken, 1, delta=0.05, msg=words)
        # With what is saved after an epoch 22 bytes of each parameter; with full state it would be 28.
        limit = ["--memory-limit", f"{25 * parameters / 2**20:.0f}MiB", "--micro-batches", 1, "--dry-run", "--quiet=false"]
        said = run(BINARY, 1, *model, *limit, cwd=self.folder, limit_s=60).stdout
        self.assertIn("--strategy ddp --recompute none", said)
        refused(BINARY, 1, 2, ["--memory-limit"], *model, "--optimizer-state-bits", 32, *limit, "--name", "refused", cwd=self.folder)

    def test_what_it_cannot_do_is_said(self):
        for options, words in [(["--optimizer", "sgd", "--momentum", 0], ["no state", "--momentum"]), (["--reproducible"], ["--reproducible", "scale"]),
                               (["--precision", "fp64"], ["fp64", "fp32"]),
                               (["--dp-clip", 1, "--dp-noise", 1], ["--dp-clip", "in full"])]:
            refused(BINARY, 1, 2, ["--optimizer-state-bits 8", *words], *ADAM, *BITS, *options, "--name", "refused", cwd=self.folder)
        refused(BINARY, 1, 2, ["--optimizer-state-bits", "16 bits", "32 or 8"], *ADAM, "--optimizer-state-bits", 16, "--name", "refused", cwd=self.folder)
        refused(BINARY, 2, 2, ["--optimizer-state-bits", "means nothing to the strategy local_sgd", "zero1"], *ADAM, *BITS, "--strategy", "local_sgd",
                "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
