"""Options that change a number and no message: each does what its sentence in --help says.

    options_matter.py BINARY
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import checkpoint_tensors, run
from three_kinds import stage_three_kinds

BINARY = sys.argv.pop()
SMALL = {"--dataset": "rows", "--model": "mlp", "--model-option": "hidden=8", "--threads": 1, "--quiet": "", "--schedule": "constant"}
ADAMW = {"--global-batch": 20, "--optimizer": "adamw", "--learning-rate": 0.01, "--weight-decay": 0.1}
SGD = {"--optimizer": "sgd", "--momentum": 0}
FEDAVG = SGD | {"--strategy": "fedavg", "--partition": "quantity=1", "--rounds": 1}


def words_of(options):
    return [str(word) for option, value in options.items() for word in ([option] if value == "" else [option, value])]


class OptionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        stage_three_kinds(BINARY, cls.folder)

    def train(self, name, options, ranks=1):
        run(BINARY, ranks, *words_of(SMALL | {"--name": name} | options), cwd=self.folder)
        return self.folder / "runs" / name

    def weights(self, folder):
        return checkpoint_tensors(sorted((folder / "checkpoints").glob("step-*"))[-1])

    def flat(self, folder):
        return np.concatenate([value.ravel() for _, value in sorted(self.weights(folder).items())])

    def test_decay_rates_of_adamw(self):
        found = {name: self.flat(self.train(f"rates-{name}", ADAMW | {"--limit-steps": 6} | options))
                 for name, options in {"usual": {}, "beta1": {"--beta1": 0.5}, "beta2": {"--beta2": 0.9}}.items()}
        for one, other in (("usual", "beta1"), ("usual", "beta2"), ("beta1", "beta2")):
            self.assertGreater(np.abs(found[one] - found[other]).max(), 1e-3, (one, other))

    def test_weight_decay_of_matrices_leaves_biases_alone(self):
        found = {name: self.weights(self.train(f"decay-{name}", ADAMW | {"--limit-steps": 1} | options))
                 for name, options in {"all": {"--decay": "all"}, "matrices": {"--decay": "matrices"}, "none": {"--weight-decay": 0}}.items()}
        for name, value in found["none"].items():
            decayed = [kind for kind in ("all", "matrices") if not np.array_equal(found[kind][name], value)]
            self.assertEqual(decayed, ["all"] if value.ndim == 1 else ["all", "matrices"], name)

    def test_the_learning_rate_falls_to_its_minimum(self):
        for least in (0, 0.02):
            folder = self.train(f"least-{least}", SGD | {"--global-batch": 20, "--schedule": "linear", "--warmup-steps": 0, "--learning-rate": 0.1,
                                                         "--limit-steps": 8, "--min-learning-rate": least})
            with h5py.File(folder / "results.h5") as file:
                rates = file["ranks/00000/steps"]["learning_rate"]
            self.assertLess(np.diff(rates).max(), 0)
            # Whether the line reaches its end in the last step or after it.
            self.assertTrue(least - 1e-7 <= rates[-1] <= least + (0.1 - least) / 8 + 1e-7, rates)

    def test_virtual_stages_send_more_messages_and_train_the_same(self):
        options = SGD | {"--global-batch": 24, "--model-option": "hidden=8,8,8,8,8,8,8", "--learning-rate": 0.1, "--limit-steps": 3, "--micro-batches": 4,
                         "--mesh": "pipe=2", "--pipeline": "interleaved", "--verify-every": 0}
        found, sent = {}, {}
        for stages in (2, 3, 4):
            folder = self.train(f"virtual-{stages}", options | {"--virtual-stages": stages}, ranks=2)
            found[stages] = self.flat(folder)
            with h5py.File(folder / "results.h5") as file:
                sent[stages] = int(file["ranks/00000/epochs"]["bytes_sent"][0])
            np.testing.assert_allclose(found[stages], found[2], rtol=0, atol=1e-6)
        self.assertLess(sent[2], sent[3])
        self.assertLess(sent[3], sent[4])

    def test_distributions_of_the_privacy_loss_give_a_smaller_epsilon(self):
        epsilons = {}
        for accountant in ("rdp", "pld"):
            folder = self.train(f"counts-{accountant}", SGD | {"--global-batch": 20, "--epochs": 1, "--dp-clip": 1, "--dp-noise": 1, "--dp-delta": 1e-3,
                                                               "--dp-accountant": accountant})
            with h5py.File(folder / "results.h5") as file:
                epsilons[accountant] = float(file["privacy"]["epsilon"][-1])
        self.assertLess(epsilons["pld"], 0.99 * epsilons["rdp"])
        self.assertGreater(epsilons["pld"], 0.5 * epsilons["rdp"])

    def test_distributions_of_the_privacy_loss_need_less_noise(self):
        noise = {}
        for accountant in ("rdp", "pld"):
            said = subprocess.run([BINARY, "privacy", "--epsilon", "2", "--delta", "1e-3", "--records", "200", "--batch", "20", "--epochs", "3",
                                   "--accountant", accountant], check=True, text=True, capture_output=True).stdout
            noise[accountant] = float(re.search(r"noise +([\d.]+)", said).group(1))
        self.assertLess(noise["pld"], 0.99 * noise["rdp"])
        self.assertGreater(noise["pld"], 0.5 * noise["rdp"])

    def test_fednova_divides_by_the_local_steps(self):
        """At a small rate, with one sample in a local step, a client of n samples moves by n steps of its mean gradient. FedNova (Wang et al. 2020,
        with momentum 0) divides by n, so that all samples weigh alike, and multiplies by the mean number of steps."""
        options = {"--precision": "fp64", "--learning-rate": 1e-6}
        start = self.flat(self.train("start", FEDAVG | options | {"--clients": 1, "--learning-rate": 1e-300, "--local-batch": "all"}))
        whole = self.flat(self.train("whole", FEDAVG | options | {"--clients": 1, "--local-batch": "all"})) - start
        apart = {}
        for rule in ("fednova", "fedavg"):
            folder = self.train(rule, FEDAVG | options | {"--clients": 4, "--partition": "dirichlet=0.3", "--local-batch": 1, "--federated-rule": rule})
            with h5py.File(folder / "results.h5") as file:
                samples = file["clients"]["samples"].astype(float)
            self.assertGreater(samples.max(), 2 * samples.min(), "too even a partition for a difference")
            expected = (samples**2).sum() / samples.sum() * whole
            apart[rule] = np.linalg.norm(self.flat(folder) - start - expected) / np.linalg.norm(expected)
        self.assertLess(apart["fednova"], 0.001, apart)
        self.assertGreater(apart["fedavg"], 0.1, apart)

    def test_fewer_bits_round_a_secure_sum_to_coarser_values(self):
        secure = FEDAVG | {"--clients": 3, "--local-batch": 8, "--learning-rate": 0.1, "--secure-aggregation": "on", "--secure-threshold": 3, "--secure-ring": 64}
        bare = self.flat(self.train("bare", {key: value for key, value in secure.items() if not key.startswith("--secure")}, ranks=2))
        apart = {}
        for bits in (8, 12, 24):
            apart[bits] = np.abs(self.flat(self.train(f"bits-{bits}", secure | {"--secure-bits": bits}, ranks=2)) - bare).max()
            self.assertLess(apart[bits], 2.0 ** (1 - bits) + 1e-6, "a unit of the largest value, 1")
        self.assertGreater(apart[8], 2 * apart[12])
        self.assertGreater(apart[12], 2 * apart[24])


if __name__ == "__main__":
    unittest.main()
