"""Federated averaging with secure sums: the weights are those of the same integers without masks, on any number of ranks, with clients
that drop out, after a resume and without ranks that were killed; what cannot work is refused.

    secure_federated.py BINARY
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run
from recovery import has_ulfm
from pytorch_agrees import random_images  # isort: skip

BINARY = sys.argv.pop()
SAMPLES = 70
SECURE = {"--model": "mlp", "--strategy": "fedavg", "--optimizer": "sgd", "--momentum": 0, "--learning-rate": 0.05, "--schedule": "constant", "--threads": 1,
          "--quiet": "", "--clients": 9, "--clients-per-round": 7, "--partition": "quantity=2", "--local-batch": 8, "--rounds": 3,
          "--secure-aggregation": "on", "--secure-threshold": 4}
# All nine clients in each round, and their privacy.
NOISY = {"--clients-per-round": 9, "--secure-threshold": 6, "--secure-ring": 64}
PRIVATE = {"--dp-unit": "client", "--dp-clip": 0.5}


def words_of(options):
    words = []
    for option, value in options.items():
        words += [option] if value == "" else [option, str(value)]
    return words


class SecureFederatedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        random_images.stage(cls.folder / "images", shape=(1, 28, 28), train_samples=SAMPLES, other_samples=20)

    def train(self, name, options, ranks=2):
        options = SECURE | {"--dataset": self.folder / "images", "--name": name} | options
        run(BINARY, ranks, *words_of(options), cwd=self.folder)
        return self.folder / "runs" / name

    def weights(self, folder, step, group=None):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=group)

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [name for name in one if not np.array_equal(one[name], other[name])])

    def events(self, folder, kind):
        with h5py.File(folder / "results.h5") as file:
            return [row["detail"].decode() for row in file["ranks/00000/events"][:] if row["kind"].decode() == kind]

    def test_masks_change_no_bit_on_any_number_of_ranks_with_clients_that_drop_out(self):
        options = {"--server-optimizer": "adam", "--drop-rate": 0.3, "--reproducible": ""}
        plain = self.train("plain", options | {"--secure-aggregation": "unmasked"})
        expected = self.weights(plain, 3)
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                folder = self.train(f"masked-{ranks}", options, ranks=ranks)
                self.assert_same(self.weights(folder, 3), expected)
                with h5py.File(folder / "results.h5") as one, h5py.File(plain / "results.h5") as other:
                    self.assertEqual(one["rounds"][:].tobytes(), other["rounds"][:].tobytes())
                    self.assertLess(one["rounds"]["handed_in"].sum(), one["rounds"]["sampled"].sum())
                    for column in ("train_loss", "train_accuracy"):
                        self.assertEqual(one["epochs"][column].tolist(), other["epochs"][column].tolist(), column)
        [said] = self.events(folder, "secure_aggregation")
        self.assertIn("sums of at least 4 of 7 clients on rank 0, each masked with 6 others", said)

    def test_the_server_is_the_first_rank_wherever_it_lies(self):
        # The switch of rank 0 comes behind that of the others, as text.
        (self.folder / "behind.sh").write_text("""export SLURM_TOPOLOGY_ADDR=leaf10.node SLURM_TOPOLOGY_ADDR_PATTERN=switch.node
[ "$OMPI_COMM_WORLD_RANK" = 0 ] && SLURM_TOPOLOGY_ADDR=leaf2.node
exec "$@"
""")
        options = SECURE | {"--dataset": self.folder / "images", "--reproducible": "", "--rounds": 1}
        for name, wrapper in (("as-usual", ()), ("behind", ("bash", "behind.sh"))):
            done = subprocess.run([str(MPIRUN), "3", *wrapper, str(BINARY), *words_of(options | {"--name": name})], cwd=self.folder, text=True, timeout=100,
                                  capture_output=True, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same(self.weights(self.folder / "runs/behind", 1), self.weights(self.folder / "runs/as-usual", 1))

    def test_is_federated_averaging_to_the_rounding_of_the_values(self):
        bare = {key: value for key, value in SECURE.items() if not key.startswith("--secure")}
        run(BINARY, 2, *words_of(bare | {"--dataset": self.folder / "images", "--name": "bare"}), cwd=self.folder)
        expected = self.weights(self.folder / "runs/bare", 3, group="model")
        folder = self.train("ring-64", {"--secure-ring": 64})
        found = self.weights(folder, 3, group="model")
        for name in expected:
            # Three rounds, in each half a unit of the largest value, 1, in 24 bits.
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=4 * 2.0**-23, err_msg=name)
        with h5py.File(folder / "results.h5") as one, h5py.File(self.folder / "runs/bare/results.h5") as other:
            self.assertEqual(one["rounds"]["samples"].tolist(), other["rounds"]["samples"].tolist())
            self.assertEqual(one["rounds"]["handed_in"].tolist(), [7, 7, 7])
            # The mean of the clients' means: local epochs end with shorter steps.
            np.testing.assert_allclose(one["epochs"]["train_loss"][:], other["epochs"]["train_loss"][:], rtol=1e-4)
            np.testing.assert_allclose(one["epochs"]["train_accuracy"][:], other["epochs"]["train_accuracy"][:], atol=1e-5)

    def test_a_round_with_too_few_clients_leaves_the_model_as_it_was_and_says_so(self):
        options = {"--drop-rate": 0.4, "--rounds": 8, "--seed": 3, "--checkpoint-every": "1epochs", "--keep": 9}
        folder = self.train("few", options)
        with h5py.File(folder / "results.h5") as file:
            rounds = file["rounds"][:]
        failed = [int(row["round"]) for row in rounds if row["handed_in"] == 0]
        self.assertTrue(0 < len(failed) < 8, rounds)
        said = self.events(folder, "round_failed")
        self.assertEqual([int(re.match(r"round (\d+), ", line).group(1)) for line in said], failed)
        for line in said:
            self.assertRegex(line, r"round \d+, (keys|shares|masked inputs): [0-3] of 7 clients have answered, and a sum needs 4: the model is as it was")
        later = [number for number in failed if number > 1]
        for number in later:
            self.assert_same(self.weights(folder, number, "model"), self.weights(folder, number - 1, "model"))

    def test_a_run_in_two_parts_on_other_ranks_has_the_same_bits(self):
        options = {"--server-optimizer": "momentum", "--drop-rate": 0.2}
        whole = self.train("whole", options | {"--rounds": 4})
        self.train("parts", options | {"--rounds": 2}, ranks=3)
        rest = self.train("parts", options | {"--rounds": 4}, ranks=2)
        self.assert_same(self.weights(whole, 4), self.weights(rest, 4))

    @unittest.skipUnless(has_ulfm(), "this MPI has no ULFM")
    def test_a_round_that_lost_a_rank_is_repeated_by_the_others(self):
        options = SECURE | {"--dataset": self.folder / "images", "--rounds": 4, "--server-optimizer": "yogi", "--watchdog": 60}
        run(BINARY, 2, *words_of(options | {"--name": "undisturbed"}), cwd=self.folder)
        expected = self.weights(self.folder / "runs/undisturbed", 4)
        for rank in (2, 0):
            with self.subTest(rank=rank):
                faulty = options | {"--name": f"killed-{rank}", "--inject": f"kill:rank={rank},phase={'backward' if rank else 'all_reduce'},step=3"}
                command = [str(MPIRUN), "3", str(BINARY), *words_of(faulty)]
                done = subprocess.run(command, cwd=self.folder, env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, text=True,
                                      timeout=120, stdin=subprocess.DEVNULL, capture_output=True)
                state = (self.folder / f"runs/killed-{rank}/state").read_text().strip()
                if rank == 0:  # the others have held updates, and none of them becomes the server
                    self.assertEqual((state, done.returncode), ("failed", 5), done.stderr)
                    self.assertIn("the rank of the server is lost", done.stderr)
                    continue
                self.assertEqual(state, "completed", done.stderr)
                self.assert_same(self.weights(self.folder / f"runs/killed-{rank}", 4), expected)

    @unittest.skipUnless(has_ulfm(), "this MPI has no ULFM")
    def test_a_round_whose_sum_was_known_when_a_rank_died_counts_again_where_it_is_repeated(self):
        options = SECURE | NOISY | PRIVATE | {"--dp-noise": 1, "--dataset": self.folder / "images", "--rounds": 4, "--watchdog": 60, "--name": "twice",
                                              "--inject": "kill:rank=1,phase=evaluation,step=3"}
        done = subprocess.run([str(MPIRUN), "3", str(BINARY), *words_of(options)], cwd=self.folder, text=True, timeout=120, capture_output=True,
                              env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL)
        folder = self.folder / "runs/twice"
        self.assertEqual((folder / "state").read_text().strip(), "completed", done.stderr)
        [resumed] = self.events(folder, "resumed")
        repeated = "step-00000002" in resumed  # else the survivors had the third round as a whole
        self.assertEqual(self.privacy(folder)["releases"].tolist(), [1, 2, 4, 5] if repeated else [1, 2, 3, 4], resumed)

    def privacy(self, folder):
        with h5py.File(folder / "results.h5") as file:
            return file["privacy"][:]

    def epsilon(self, noise, steps, delta=1e-5):
        said = subprocess.run([BINARY, "privacy", "--noise", str(noise), "--delta", str(delta), "--sample-rate", "1", "--steps", str(steps)], check=True,
                              text=True, capture_output=True).stdout
        return float(re.search(r"epsilon +([\d.]+) .*rdp", said).group(1))

    def test_noise_has_a_ledger_whichever_way_it_was_asked_for(self):
        for name, way in {"secure-noise": {"--secure-noise": 1, "--secure-clip": 0.5}, "dp-unit": PRIVATE | {"--dp-noise": 1}}.items():
            self.train(name, NOISY | way | {"--rounds": 2}, ranks=3)
            folder = self.train(name, NOISY | way | {"--rounds": 4})
            rows = self.privacy(folder)
            self.assertEqual(rows["releases"].tolist(), [1, 2, 3, 4])
            self.assertEqual((set(rows["unit"].tolist()), set(rows["sampling_rate"].tolist()), set(rows["clip_norm"].tolist())), ({b"client"}, {1.0}, {0.5}))
            for row in rows:  # of a Gaussian with a deviation of one sensitivity
                self.assertAlmostEqual(row["epsilon"], self.epsilon(1, row["releases"]), places=3)
            self.assertRegex((folder / "privacy.ledger").read_text(), r"unit client\n0 \S+ 1 4\n")
            self.assertIn("each client, whose updates become zeros; clip of updates 0.5", self.events(folder, "privacy")[0])

    def test_a_sum_that_was_learnt_counts_though_its_round_is_made_again(self):
        # A model that stays is never better than the first: no checkpoint before the end.
        options = NOISY | PRIVATE | {"--dp-noise": 1, "--checkpoint-every": "end", "--server-rate": 1e-30, "--rounds": 6}
        self.train("again", options | {"--limit-steps": 2})
        faulty = SECURE | {"--dataset": self.folder / "images", "--name": "again", "--inject": "kill:rank=0,phase=evaluation,step=4"} | options | {"--limit-steps": 0}
        run(BINARY, 2, *words_of(faulty), cwd=self.folder, check=False)
        folder = self.train("again", options)
        self.assertEqual(self.privacy(folder)["releases"][-1], 6 + 2)  # 3 and 4
        (folder / "privacy.ledger").unlink()
        refused(BINARY, 2, 4, ["privacy.ledger", "lacks its ledger"], *words_of(SECURE | {"--dataset": self.folder / "images", "--name": "again"} | options
                                                                               | {"--rounds": 7}), cwd=self.folder)

    def test_the_run_ends_when_the_budget_is_spent_and_a_target_finds_its_noise(self):
        folder = self.train("spent", NOISY | PRIVATE | {"--dp-noise": 2, "--target-epsilon": 4, "--rounds": 50, "--dp-delta": 1e-3})
        rows = self.privacy(folder)
        self.assertTrue(3 < rows["epsilon"][-1] <= 4 < self.epsilon(2, len(rows) + 1, 1e-3), rows)
        self.assertIn("would release more than epsilon 4", self.events(folder, "privacy_spent")[0])
        folder = self.train("target", NOISY | PRIVATE | {"--target-epsilon": 4, "--rounds": 3})
        rows = self.privacy(folder)
        self.assertEqual(len(rows), 3)
        self.assertTrue(3.98 < rows["epsilon"][-1] <= 4, rows)

    def test_records_that_are_private_are_so_in_secure_sums_too(self):
        records = {"--dp-clip": 0.4, "--dp-noise": 0.8, "--noise-source": "seeded", "--rounds": 2}
        bare = {key: value for key, value in SECURE.items() if not key.startswith("--secure")} | records
        run(BINARY, 1, *words_of(bare | {"--dataset": self.folder / "images", "--name": "records"}), cwd=self.folder)
        folder = self.train("secure-records", records | {"--secure-ring": 64, "--secure-clip": 4})
        expected, found = self.weights(self.folder / "runs/records", 2, "model"), self.weights(folder, 2, "model")
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=3 * 4 * 2.0**-23, err_msg=name)
        self.assertEqual(self.privacy(folder)["epsilon"].tolist(), self.privacy(self.folder / "runs/records")["epsilon"].tolist())

    def test_an_effective_configuration_can_be_fed_back(self):
        for way in ({"--secure-noise": 1, "--secure-clip": 0.5, "--dp-delta": 1e-3}, PRIVATE | {"--target-epsilon": 3}, {"--dp-clip": 1, "--dp-noise": 1}):
            options = SECURE | NOISY | {"--dataset": self.folder / "images", "--mesh": "data=2"} | way
            text = run(BINARY, 1, *words_of(options), "--print-config", cwd=self.folder).stdout
            (self.folder / "printed.toml").write_text(text)
            self.assertEqual(text, run(BINARY, 1, "--config", self.folder / "printed.toml", "--print-config", cwd=self.folder).stdout)

    def test_refuses_what_cannot_work(self):
        cases = [({"--secure-threshold": 8}, ["--secure-threshold 8", "a round has 7 clients"]), ({"--secure-threshold": 3}, ["--secure-threshold", "7 clients"]),
                 ({"--secure-bits": 1}, ["--secure-bits", "2 to 32"]), ({"--secure-bits": 33, "--secure-ring": 64}, ["--secure-bits", "2 to 32"]),
                 ({"--secure-bits": 28}, ["do not fit its 32 bits", "--secure-ring 64"]),
                 ({"--secure-threshold": 7, "--drop-rate": 0.2}, ["--drop-rate 0.2"]),
                 ({"--secure-ring": 16}, ["--secure-ring", "use 32 or 64"]), ({"--secure-clip": 0}, ["--secure-clip"]), ({"--secure-clip": 1e-30}, ["--secure-clip", "1e-09 to 1e+09"]),
                 ({"--secure-aggregation": "off"}, ["add --secure-aggregation on"]),
                 ({"--secure-aggregation": "unmasked", "--secure-noise": 1}, ["without masks"]),
                 (PRIVATE | {"--dp-noise": 1, "--secure-clip": 1}, ["--secure-clip", "--dp-clip"]),
                 (PRIVATE | {"--dp-noise": 1, "--secure-noise": 1}, ["--secure-noise", "--dp-noise"]),
                 (PRIVATE | {"--dp-noise": 1, "--dp-accountant": "pld"}, ["--dp-accountant rdp"]),
                 (PRIVATE | {"--target-epsilon": 1e-6, "--secure-ring": 64}, ["cannot be reached"]),
                 ({"--secure-noise": 1, "--dp-noise": 1}, ["--dp-noise", "add --dp-clip"]),
                 ({"--federated-rule": "scaffold"}, ["--federated-rule scaffold"]),
                 ({"--secure-noise": 1, "--reproducible": ""}, ["--secure-noise"]),
                 ({"--rank-order": "placed"}, ["--rank-order placed", "--rank-order launched"]),
                 ({"--model": "resnet18", "--model-option": "width=4"}, ["running statistics"]),
                 ({"--strategy": "ddp"}, ["fedavg"])]
        for options, words in cases:
            with self.subTest(options=options):
                whole = SECURE | {"--dataset": self.folder / "images", "--name": "refused"} | options
                if options.get("--strategy") == "ddp":
                    whole = {"--strategy": "ddp", "--model": "mlp", "--dataset": self.folder / "images", "--secure-aggregation": "on"}
                refused(BINARY, 2, 2, words, *words_of(whole), cwd=self.folder)
        refused(BINARY, 1, 2, ["start at least 2 ranks"], *words_of(SECURE | {"--dataset": self.folder / "images"}), cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
