"""An emulated machine: delays of a real run, and a virtual clock whose times are those of the formula, marked wherever they show.

    emulate.py BINARY
"""

import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import drawn
from dtrain_run import run

BINARY = sys.argv.pop()
RECIPE = ["--model", "mlp", "--threads", 1, "--global-batch", 64, "--schedule", "constant", "--epochs", 1]
SAMPLE_S = 100e-6
CLOCK = f"clock = \"virtual\"\ncompute_us_per_sample = {SAMPLE_S * 1e6:g}\n"
NODES = "".join(f"[[node]]\nranks = [{rank}]\n" for rank in range(4))
LINKS = NODES + "[[link]]\nlatency_ms = 5\ngbit_per_s = 1\n"
SLOW = "[[slow]]\nrank = 3\nfactor = 4\n"


class EmulateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, ranks, machine, *options, steps=8):
        (self.folder / f"{name}.toml").write_text(machine)
        done = run(BINARY, ranks, *RECIPE, "--name", name, "--emulate", f"{name}.toml", "--limit-steps", steps, *options,
                   cwd=self.folder, limit_s=100)
        return h5py.File(self.folder / "runs" / name / "results.h5"), done.stdout

    def times(self, file, rank=0):
        return file[f"ranks/{rank:05}/virtual_times"]["virtual_time_s"][:]

    def test_lock_step_takes_the_time_of_the_slowest_rank(self):
        for name, machine, slowness in [("even", CLOCK, 1), ("slow", CLOCK + SLOW, 4), ("short", CLOCK + SLOW + "from_step = 3\nto_step = 4\n", None)]:
            with self.subTest(name=name):
                file, text = self.train(name, 4, machine)
                with file:
                    factors = [4 if step in (3, 4) else 1 for step in range(1, 9)] if slowness is None else [slowness] * 8
                    np.testing.assert_allclose(self.times(file), np.cumsum(factors) * 16 * SAMPLE_S, rtol=1e-12)
                    self.assertIn("times are computed", file.attrs["emulated"].decode())
                self.assertRegex(text, r"emulated .*times are computed")
                self.assertRegex(text, r"virtual \d+\.\d+ s")

    def test_the_same_run_shows_the_same_times(self):
        machine = CLOCK + SLOW + LINKS
        for strategy in [("--strategy", "asgd"), ("--strategy", "local_sgd", "--sync-period", "4")]:
            with self.subTest(strategy=strategy):
                runs = []
                for part in ("a", "b"):
                    file, _ = self.train(f"again-{part}-{strategy[1]}", 4, machine, *strategy)
                    with file:
                        runs.append([self.times(file, rank) for rank in range(4)] + [file["epochs"]["train_loss"][:]])
                for one, other in zip(*runs):
                    np.testing.assert_array_equal(one, other)

    def test_messages_between_nodes_take_what_their_link_says(self):
        slow = LINKS.replace("gbit_per_s = 1\n", "gbit_per_s = 0.1\n")
        found = {}
        for name, links in {"links": LINKS, "slow-links": slow}.items():
            file, _ = self.train(name, 4, CLOCK + links)
            with file:
                found[name] = np.diff(self.times(file))
        sent = 1.5 * 222_360 * 4  # bytes: a ring of four sends 2 * 3/4 of mlp's parameters, and little else
        np.testing.assert_allclose(found["slow-links"] - found["links"], sent / 12.5e6 - sent / 125e6, rtol=0.01)
        self.assertGreater(found["links"].min(), 16 * SAMPLE_S + 6 * 0.005 + sent / 125e6)
        self.assertLess(found["links"].max(), 16 * SAMPLE_S + 20 * 0.005 + sent / 125e6)
        steps = found["slow-links"]
        file, _ = self.train("rounds", 4, CLOCK + slow, "--strategy", "local_sgd", "--sync-period", "4")
        with file:
            rounds = self.times(file)
        self.assertAlmostEqual(rounds[0], 16 * SAMPLE_S, delta=1e-9)  # no rank waits within a round
        self.assertLess(rounds[-1], 0.5 * np.sum(steps))

    def test_what_travels_beside_the_next_steps_takes_no_time_of_theirs(self):
        steps_s = 4 * 16 * 2e-3  # of a round's computing
        rounds = ("--strategy", "local_sgd", "--sync-period", "4")
        found = {}
        for name, late in {"waits": (), "late": ("--overlap-steps", "3"), "again": ("--overlap-steps", "3"), "short": ("--overlap-steps", "1")}.items():
            file, _ = self.train(f"aside-{name}", 4, CLOCK.replace("100", "2000") + LINKS, *rounds, *late, steps=12)
            with file:
                times = self.times(file)
                found[name] = times[7] - times[3]
        # The parameters alone: a ring of six messages, whose latency is 30 ms.
        self.assertGreater(found["waits"] - found["late"], 0.03)
        self.assertLess(found["late"], steps_s + 4 * 0.0051)  # the losses of a round are waited for
        self.assertGreater(found["short"], found["late"])  # one step of 32 ms does not hide all of it
        self.assertLess(found["short"], found["waits"])
        self.assertEqual(found["again"], found["late"])

    def test_asynchronous_updates_do_not_wait_for_the_slow_rank(self):
        slow = CLOCK + "[[slow]]\nrank = 0\nfactor = 4\n"
        file, _ = self.train("asgd-slow", 5, slow, "--strategy", "asgd", steps=32)
        with file:
            asynchronous = max(self.times(file, rank)[-1] for rank in range(5))
            weights = [np.sum(file[f"ranks/{rank:05}/steps"]["weight"]) for rank in range(5)]
        file, _ = self.train("ddp-slow", 4, slow, steps=32)
        with file:
            lock_step = self.times(file)[-1]
        self.assertGreater(lock_step / asynchronous, 2.7)  # 3.25 with all of the time used; the slow copy ends last
        self.assertLess(weights[0], 0.5 * weights[1])
        self.assertEqual(sum(weights), 32 * 64)

    def test_a_resumed_run_goes_on_at_its_virtual_time(self):
        machine = CLOCK + SLOW + LINKS
        for strategy, ranks in [((), 4), (("--strategy", "asgd"), 4)]:
            with self.subTest(strategy=strategy):
                name = "goes-on" + "".join(strategy[1:])
                file, _ = self.train(name, ranks, machine, *strategy)
                with file:
                    ended_s = max(self.times(file, rank)[-1] for rank in range(ranks))
                file, _ = self.train(name, ranks, machine, *strategy, steps=16)
                with file:
                    for rank in range(ranks):
                        steps = file[f"ranks/{rank:05}/virtual_times"]["step"]
                        times = self.times(file, rank)
                        self.assertGreater(np.diff(times).min(), 0)
                        self.assertGreater(times[steps > 8].min(), ended_s)
                    if not strategy:
                        whole, _ = self.train("never-stopped", ranks, machine, steps=16)
                        with whole:
                            np.testing.assert_allclose(self.times(file), self.times(whole), rtol=1e-12)

    def test_delays_are_real(self):
        file, _ = self.train("usual", 2, "[[node]]\nranks = [0, 1]\n")
        with file:
            usual = np.median(file["ranks/00000/steps"]["time_s"])
        two = "[[node]]\nranks = [0]\n[[node]]\nranks = [1]\n[[link]]\nlatency_ms = 20\n"
        file, _ = self.train("far", 2, two)
        with file:
            far = file["ranks/00000/steps"]["time_s"]
            self.assertEqual(list(file["topology"]["node"]), [0, 1])
            self.assertNotIn("virtual_times", file["ranks/00000"])
            # A sum needs a message there and one back, and a step has at least that of its losses.
            self.assertGreater(np.median(far), 0.04)
        self.assertGreater(np.median(far), usual)

    def test_slow_ranks_of_a_tensor_group_do_not_stretch_what_they_wait_for(self):
        slow = "".join(f"[[slow]]\nrank = {rank}\nfactor = 6\n" for rank in (0, 1))  # each other's sleep, six times, for ever
        file, _ = self.train("pair", 2, slow, "--mesh", "tensor=2", "--model-option", "hidden=64,64,64,64,64,64,64,64", "--micro-batches", 4, steps=8)
        with file:
            self.assertEqual(len(file["ranks/00000/steps"]), 8)

    def test_delays_hold_between_nodes_of_several_ranks(self):
        """Their sums go through the first rank of each node."""
        file, _ = self.train("nodes", 4, "[[node]]\nranks = [0, 1]\n[[node]]\nranks = [2, 3]\n[[link]]\nlatency_ms = 20\n", steps=8)
        with file:
            self.assertGreater(np.median(file["ranks/00000/steps"]["time_s"]), 0.04)

    def test_a_report_says_what_was_emulated(self):
        file, _ = self.train("said", 2, CLOCK + "[[slow]]\nrank = 1\nfactor = 2.5\n", steps=2)
        file.close()
        done = run(BINARY, 1, "report", "runs/said", cwd=self.folder)
        self.assertIn("rank 1 computes 2.5 times as long", done.stdout)


if __name__ == "__main__":
    drawn.main()
