"""Runs with differential privacy: against a loop in PyTorch, against one rank, and what they account.

    private.py BINARY [--full]
"""

import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch

from dtrain_run import checkpoint_tensors, refused, run, sample_hash
from three_kinds import stage_three_kinds

FULL = sys.argv[-1] == "--full" and bool(sys.argv.pop())
BINARY = sys.argv.pop()
SMALL = ["--dataset", "rows", "--threads", 1, "--optimizer", "sgd", "--learning-rate", 0.5, "--quiet", "--model-option", "hidden=8"]
SEEDED = ["--noise-source", "seeded"]


def events(folder, kind):
    with h5py.File(folder / "results.h5") as file:
        return [row["detail"].decode() for row in file["ranks/00000/events"][:] if row["kind"].decode() == kind]


def privacy(folder):
    with h5py.File(folder / "results.h5") as file:
        return file["privacy"][:]


def last_step(folder):
    return sorted((folder / "checkpoints").glob("step-*"))[-1]


class PrivateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        stage_three_kinds(BINARY, cls.folder)
        with h5py.File(next((cls.folder / "data/staged/rows").glob("train-*.h5"))) as file:
            cls.inputs, cls.targets = file["inputs"][:], file["targets"][:]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def train(self, ranks, name, *options, **how):
        run(BINARY, ranks, "--name", name, *SMALL, *options, cwd=self.folder, **how)
        return self.folder / "runs" / name

    def test_what_was_released_stays_released_where_the_optimizer_begins_anew(self):
        options = ["--global-batch", 20, "--dp-clip", 1, "--dp-noise", 1]
        self.train(1, "released", *options, "--limit-steps", 8)
        epsilons = {}
        for state in ("keep", "reset"):
            folder = self.train(2, f"released-{state}", *options, "--limit-steps", 16, "--resume", "runs/released", "--optimizer-state", state)
            epsilons[state] = privacy(folder)["epsilon"][-1]
        whole = self.train(1, "released-whole", *options, "--limit-steps", 16)
        self.assertEqual(epsilons["keep"], privacy(whole)["epsilon"][-1])
        self.assertEqual(epsilons["reset"], epsilons["keep"])

    def test_updates_are_counted_anew_where_the_optimizer_begins_anew(self):
        options = ["--dataset", "rows", "--threads", 1, "--optimizer", "adam", "--learning-rate", 0.01, "--schedule", "constant", "--weight-decay", 0, "--quiet",
                   "--model-option", "hidden=8", "--global-batch", 20, "--dp-clip", 1, "--dp-noise", 1]
        for name, more in (("counted", ["--limit-steps", 20]), ("counted-on", ["--limit-steps", 21, "--resume", "runs/counted", "--optimizer-state", "reset"])):
            run(BINARY, 1, "--name", name, *options, *more, cwd=self.folder)
        before, after = (checkpoint_tensors(last_step(self.folder / "runs" / name)) for name in ("counted", "counted-on"))
        moved = np.concatenate([np.abs(after[name] - value).flatten() for name, value in before.items()])
        np.testing.assert_allclose(np.median(moved), 0.01, rtol=1e-3, err_msg="the first update of Adam moves each weight by the rate")

    def test_all_records_without_noise_are_a_loop_in_pytorch(self):
        net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        names = ["input_fc.weight", "input_fc.bias", "output_fc.weight", "output_fc.bias"]
        with h5py.File(self.folder / "start.h5", "w") as file:
            for name, value in zip(names, net.parameters()):
                file[f"model/{name}"] = value.detach().numpy()
        records = len(self.inputs)
        options = ["--init-from", "start.h5", "--global-batch", records, "--limit-steps", 3, "--dp-clip", 0.4, "--dp-noise", 0, *SEEDED]
        for _ in range(3):
            total = [torch.zeros_like(value) for value in net.parameters()]
            for x, y in zip(torch.from_numpy(self.inputs), torch.from_numpy(self.targets)):
                net.zero_grad()
                torch.nn.functional.cross_entropy(net(x[None]), y[None]).backward()
                norm = math.sqrt(sum(float(value.grad.double().square().sum()) for value in net.parameters()))
                for part, value in zip(total, net.parameters()):
                    part += value.grad * min(1, 0.4 / norm)
            with torch.no_grad():
                for part, value in zip(total, net.parameters()):
                    value -= 0.5 * part / records
        for ranks in (1, 2) if FULL else (2,):
            tensors = checkpoint_tensors(last_step(self.train(ranks, f"all{ranks}", *options)))
            for name, value in zip(names, net.parameters()):
                np.testing.assert_allclose(tensors[name], value.detach().numpy(), rtol=0, atol=1e-5)

    def test_any_number_of_ranks_and_both_samplers(self):
        drawn = []
        for sampler in ("poisson", "once"):
            options = ["--global-batch", 30, "--micro-batches", 6, "--epochs", 2, "--dp-clip", 1, "--dp-noise", 0.8, "--dp-sampler", sampler]
            one = checkpoint_tensors(last_step(self.train(1, f"{sampler}1", *options, *SEEDED)), group=None)
            other = checkpoint_tensors(last_step(self.train(3, f"{sampler}3", *options, *SEEDED)), group=None)
            self.assertEqual(one.keys(), other.keys())
            for name, value in one.items():
                np.testing.assert_allclose(value, other[name], rtol=0, atol=1e-5, err_msg=name)
            drawn.append(one["model/output_fc.weight"])
        self.assertGreater(np.abs(drawn[0] - drawn[1]).max(), 1e-4, "the samplers draw the same samples")
        secure = checkpoint_tensors(last_step(self.train(1, "secure", *options)))
        self.assertGreater(np.abs(secure["output_fc.weight"] - one["model/output_fc.weight"]).max(), 1e-4)

    @unittest.skipUnless(FULL, "takes longer")
    def test_models_of_all_kinds_of_layers_have_rules(self):
        for model in ("conv_autoencoder", "seq2seq", "gpt"):
            options = ["--model", model, "--dataset", "synthetic", "--threads", 1, "--global-batch", 6, "--micro-batches", 2, "--limit-steps", 2,
                       "--dp-clip", 0.5, "--dp-noise", 0.1, "--quiet", *SEEDED]
            found = []
            for ranks in (1, 2):
                run(BINARY, ranks, "--name", f"{model}{ranks}", *options, cwd=self.folder)
                folder = self.folder / "runs" / f"{model}{ranks}"
                self.assertNotIn("one by one", events(folder, "privacy")[0])
                found.append(checkpoint_tensors(last_step(folder)))
            for name, value in found[0].items():
                np.testing.assert_allclose(value, found[1][name], rtol=0, atol=1e-5, err_msg=name)

    def test_target_and_what_the_command_says(self):
        records = len(self.inputs)
        folder = self.train(1, "target", "--global-batch", 20, "--epochs", 3, "--dp-clip", 1, "--target-epsilon", 2, "--dp-delta", 1e-3)
        rows = privacy(folder)
        self.assertEqual(list(rows["epoch"]), [1, 2, 3])
        self.assertTrue(1.99 < rows["epsilon"][-1] <= 2, rows["epsilon"])
        self.assertEqual(rows["releases"][-1], 3 * math.ceil(records / 20))
        said = subprocess.run([BINARY, "privacy", "--epsilon", "2", "--delta", "1e-3", "--records", str(records), "--batch", "20",
                               "--epochs", "3", "--accountant", "rdp"], check=True, text=True, capture_output=True).stdout
        self.assertAlmostEqual(float(re.search(r"noise +([\d.]+)", said).group(1)), rows["noise_multiplier"][-1], places=3)
        self.assertIn("sampler poisson", events(folder, "privacy")[0])
        with open(self.folder / "data/staged/rows/dataset.json") as file:  # what staging has computed is not free
            standardised = bool(json.load(file)["mean"])
        self.assertEqual(any("not covered: mean" in event for event in events(folder, "privacy")), standardised)

    def test_a_budget_without_room_for_a_step_is_refused(self):
        for noise, epsilon in ((0, 5), (0.3, 0.01)):
            refused(BINARY, 2, 2, [f"--target-epsilon {epsilon}", "first step", "--dp-noise"], *SMALL, "--name", "no-room", "--dp-clip", 1, "--dp-noise", noise,
                    "--target-epsilon", epsilon, cwd=self.folder)
        self.assertFalse((self.folder / "runs/no-room/results.h5").exists())

    def test_the_run_ends_when_the_budget_is_spent(self):
        folder = self.train(2, "spent", "--global-batch", 20, "--epochs", 30, "--dp-clip", 1, "--dp-noise", 0.9, "--target-epsilon", 4, "--dp-delta", 1e-3)
        rows = privacy(folder)
        self.assertTrue(3.5 < rows["epsilon"][-1] <= 4, rows)
        self.assertLess(rows["epoch"][-1], 30)
        self.assertIn("would release more than epsilon 4", events(folder, "privacy_spent")[0])
        self.assertEqual((folder / "state").read_text().strip(), "completed")

    def test_a_step_made_again_counts_again(self):
        options = ["--global-batch", 20, "--epochs", 2, "--dp-clip", 1, "--dp-noise", 1, "--checkpoint-every", "end"]
        self.train(1, "killed", *options, "--limit-steps", 4)
        options += ["--limit-steps", 16]
        self.killed("killed", 7, options)
        folder = self.train(1, "killed", *options)
        steps = json.loads((last_step(folder) / "manifest.json").read_text())["step"]
        self.assertEqual(privacy(folder)["releases"][-1], steps + 2)  # 5 and 6
        self.assertTrue(any("made after the checkpoint count" in event for event in events(folder, "privacy")))
        (folder / "privacy.ledger").unlink()
        options[options.index("--epochs") + 1], options[-1] = 3, 20
        refused(BINARY, 1, 4, ["privacy.ledger", "restore"], "--name", "killed", *SMALL, *options, cwd=self.folder)

    def test_the_hash_of_the_samples_outlives_two_resumptions(self):
        """Each part draws anew, and the epoch's samples are those that each has used."""
        for steps in (2, 4, 6):
            folder = self.train(1, "drawn-thrice", "--global-batch", 20, "--epochs", 1, "--dp-clip", 1, "--dp-noise", 1, "--limit-steps", steps)
            with h5py.File(folder / "results.h5") as file:
                used = sample_hash(file)
            so_far = json.loads((last_step(folder) / "manifest.json").read_text())["so_far"]
            self.assertEqual(so_far["sample_hash"], used, steps)

    def test_a_run_that_begins_again_keeps_its_ledger(self):
        options = ["--global-batch", 20, "--epochs", 1, "--dp-clip", 1, "--dp-noise", 1, "--checkpoint-every", "end"]
        self.killed("early", 4, options)
        self.assertEqual(privacy(self.train(1, "early", *options))["releases"][-1], math.ceil(len(self.inputs) / 20) + 3)
        if FULL:
            self.assertEqual(privacy(self.train(1, "early", *options, "--overwrite"))["releases"][-1], math.ceil(len(self.inputs) / 20))

    def killed(self, name, step, options):
        run(BINARY, 1, "--name", name, *SMALL, *options, "--inject", f"kill:rank=0,phase=backward,step={step}", cwd=self.folder, check=False)

    def test_bad_input_is_refused(self):
        cases = [
            (2, ["--target-epsilon", "cannot be reached"], ["--dp-clip", 1, "--target-epsilon", 1e-6]),
            (2, ["--class-weights"], ["--dp-clip", 1, "--dp-noise", 1, "--class-weights", "balanced"]),
            (2, ["--dp-delta", "0 and 1"], ["--dp-clip", 1, "--dp-noise", 1, "--dp-delta", 0]),
            (2, ["--dp-delta", "0 and 1"], ["--dp-clip", 1, "--dp-noise", 1, "--dp-delta", 1]),
            (2, ["--dp-clip", "-1"], ["--dp-clip", -1]),
            (2, ["--dp-clip", "--target-epsilon"], ["--dp-clip", 1]),
            (2, ["--dp-noise", "--dp-clip"], ["--dp-noise", 1]),
            (2, ["--dp-sampler", "shuffled"], ["--dp-clip", 1, "--dp-noise", 1, "--dp-sampler", "shuffled"]),
            (2, ["--noise-source"], ["--dp-clip", 1, "--dp-noise", 1, "--noise-source", "mine"]),
            (2, ["strategy"], ["--dp-clip", 1, "--dp-noise", 1, "--strategy", "local_sgd"]),
        ]
        for code, words, options in cases:
            with self.subTest(options=options):
                refused(BINARY, 1, code, words, "--name", "bad", *SMALL, *options, cwd=self.folder)
        refused(BINARY, 1, 2, ["BatchNorm", "GroupNorm"], "--model", "resnet18", "--dp-clip", 1, "--dp-noise", 1, "--limit-steps", 1, cwd=self.folder)


if __name__ == "__main__":
    unittest.main()
