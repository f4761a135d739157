"""A strategy that is one new file and one line of registration trains, saves, resumes and is evaluated like the others.

BINARY is dtrain with tests/support/average_parameters.cpp, where each copy of the model makes steps of its own and all take
the average of their parameters every 4 steps.

    trial_strategy.py BINARY
"""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, refused, run, step_losses

BINARY = sys.argv.pop()
SGD = {"--model": "mlp", "--threads": 1, "--global-batch": 128, "--micro-batches": 2, "--optimizer": "sgd", "--momentum": 0,
       "--learning-rate": 0.2, "--schedule": "constant", "--epochs": 1}
TRIAL = {"--strategy": "average_parameters"}


def words_of(options):
    return [word for option in options.items() for word in option if word != ""]


class TrialStrategyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, options, ranks, steps):
        run(BINARY, ranks, *words_of(SGD | options), "--name", name, "--quiet", "--limit-steps", steps, cwd=self.folder)
        return self.folder / "runs" / name

    def weights(self, folder, step):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        return all(np.array_equal(one[name], other[name]) for name in one)

    def test_one_copy_trains_as_with_any_strategy(self):
        trial = self.train("one-trial", TRIAL, 1, 8)
        usual = self.train("one-usual", {}, 1, 8)
        found, expected = self.weights(trial, 8), self.weights(usual, 8)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)

    def test_copies_make_steps_of_their_own_and_learn(self):
        trial = self.train("two-trial", TRIAL | {"--verify-every": 8}, 2, 32)
        usual = self.train("two-usual", {}, 2, 32)
        self.assertFalse(self.same(self.weights(trial, 32), self.weights(usual, 32)), "the copies agreed in each step")
        with h5py.File(trial / "results.h5") as results:
            self.assertEqual(results.attrs["strategy"].decode(), "average_parameters")
            losses = step_losses(results)
            self.assertLess(losses[-4:].mean(), 0.8 * losses[:4].mean())
            self.assertTrue(np.isfinite(results["epochs"]["validation_loss"]).all())

    def test_stopped_and_resumed_it_has_the_same_bits(self):
        whole = self.train("whole", TRIAL, 2, 16)
        first = self.train("first", TRIAL, 2, 8)
        rest = self.train("rest", TRIAL | {"--resume": first / "checkpoints/step-00000008"}, 2, 16)
        self.assertTrue(self.same(self.weights(whole, 16), self.weights(rest, 16)))

    def test_the_help_names_it(self):
        self.assertIn("average_parameters (copies average their parameters every 4 steps)",
                      " ".join(run(BINARY, 1, "--help", cwd=self.folder).stdout.split()))

    def test_an_unknown_strategy_names_those_there_are(self):
        refused(BINARY, 2, 2, ["there is no strategy zero1", "ddp, average_parameters"], "--strategy", "zero1", cwd=self.folder)

    def test_says_why_it_does_not_outlive_lost_ranks(self):
        for options in [("--replicate", 3), ("--on-failure", "recover"), ("--spares", 1)]:
            with self.subTest(options=options):
                option = " ".join(map(str, options))
                refused(BINARY, 2, 2, [f"{option}: --strategy average_parameters cannot: is on trial"], *words_of(SGD | TRIAL), *options,
                        "--name", "refused", cwd=self.folder)
        self.train("auto", TRIAL | {"--on-failure": "auto"}, 2, 2)

    def test_says_why_it_does_not_run(self):
        for options, words in [({"--mesh": "data=1,pipe=2"}, "a copy is cut over several ranks"),
                               ({"--mesh": "data=1,tensor=2"}, "a copy is cut over several ranks"),
                               ({"--momentum": 0.9}, "keeps no optimizer state"),
                               ({"--precision": "fp16"}, "has no scaled loss"),
                               ({"--model": "resnet18", "--model-option": "width=4"}, "averages no running statistics"),
                               ({"--reproducible": ""}, "depends on the number of copies")]:
            with self.subTest(options=options):
                refused(BINARY, 2, 2, ["--strategy average_parameters", words, "use --strategy ddp"],
                        *words_of(SGD | TRIAL | options), "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
