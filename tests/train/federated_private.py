"""Federated averaging with differential privacy of clients and of their records: against loops in PyTorch, against one rank, and what is
accounted.

    federated_private.py BINARY [--full]
"""

import math
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch

import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run
from private import BINARY, FULL, events, last_step, privacy
from recovery import has_ulfm
from three_kinds import stage_three_kinds

COMMON = ["--dataset", "rows", "--threads", 1, "--optimizer", "sgd", "--learning-rate", 0.5, "--schedule", "constant", "--momentum", 0, "--quiet",
          "--model-option", "hidden=8", "--strategy", "fedavg", "--partition", "quantity=1"]
SEEDED = ["--noise-source", "seeded"]
NAMES = ["input_fc.weight", "input_fc.bias", "output_fc.weight", "output_fc.bias"]
CLIENT = ["--dp-unit", "client", "--dp-clip", 0.3]
RECORD = ["--dp-clip", 0.4, "--local-batch", 8]


def read(folder, table):
    with h5py.File(folder / "results.h5") as file:
        return file[table][:]


def network():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def values_of(net):
    return torch.cat([value.detach().flatten() for value in net.parameters()])


def put(net, values):
    torch.nn.utils.vector_to_parameters(values.clone(), net.parameters())


class FederatedPrivacyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        stage_three_kinds(BINARY, cls.folder)
        with h5py.File(next((cls.folder / "data/staged/rows").glob("train-*.h5"))) as file:
            cls.inputs, cls.targets = torch.from_numpy(file["inputs"][:]), torch.from_numpy(file["targets"][:])
        with h5py.File(cls.folder / "start.h5", "w") as file:
            for name, value in zip(NAMES, network().parameters()):
                file[f"model/{name}"] = value.detach().numpy()

    def train(self, name, *options, ranks=1):
        run(BINARY, ranks, "--name", name, *COMMON, *options, cwd=self.folder)
        return self.folder / "runs" / name

    def test_ledgers_of_clients_go_with_their_records(self):
        options = [*RECORD, "--clients", 5, "--dp-noise", 1]
        self.train("dealt", *options, "--rounds", 2)
        more = [*options, "--rounds", 4, "--resume", "runs/dealt", "--optimizer-state"]
        for state in ("keep", "reset"):
            refused(BINARY, 1, 2, ["--partition was quantity=1 and is iid"], "--name", "again", *COMMON, *more, state, "--partition", "iid", cwd=self.folder)
        whole = self.train("dealt-whole", *options, "--rounds", 4)
        again = self.train("dealt-again", *more, "reset")
        self.assertAlmostEqual(privacy(again)["epsilon"][-1], privacy(whole)["epsilon"][-1], places=9)
        one = [word for word in COMMON if word not in ("--strategy", "fedavg", "--partition", "quantity=1")]
        run(BINARY, 1, "--name", "together", *one, "--global-batch", 20, "--epochs", 1, "--dp-clip", 0.4, "--dp-noise", 1, cwd=self.folder)
        refused(BINARY, 1, 2, ["--dp-unit was nothing and is record"], "--name", "other", *COMMON, *options, "--rounds", 4, "--resume", "runs/together",
                "--optimizer-state", "reset", cwd=self.folder)

    def weights(self, folder):
        found = checkpoint_tensors(last_step(folder))
        return np.concatenate([found[name].flatten() for name in NAMES])

    def owners(self, folder):
        return torch.from_numpy(read(folder, "client_of_sample"))

    def epsilon(self, noise, delta, rate, steps):
        said = subprocess.run([BINARY, "privacy", "--noise", str(noise), "--delta", str(delta), "--sample-rate", repr(rate), "--steps", str(steps)],
                              check=True, text=True, capture_output=True).stdout
        return float(re.search(r"epsilon +([\d.]+) .*rdp", said).group(1))

    def test_clipped_updates_without_noise_are_a_loop_in_pytorch(self):
        clients, rounds, quantile = 5, 4, 0.5
        folder = self.train("updates", "--init-from", "start.h5", "--clients", clients, "--rounds", rounds, "--local-batch", "all", "--local-epochs", 2,
                            *CLIENT, "--dp-noise", 0, "--dp-adaptive-clip", quantile, *SEEDED, ranks=2)
        net, owners, clip, clips = network(), self.owners(folder), 0.3, []
        for _ in range(rounds):
            start, total, within = values_of(net), torch.zeros(0), 0
            total = torch.zeros_like(start, dtype=torch.float64)
            for client in range(clients):
                put(net, start)
                for _ in range(2):
                    net.zero_grad()
                    torch.nn.functional.cross_entropy(net(self.inputs[owners == client]), self.targets[owners == client]).backward()
                    with torch.no_grad():
                        for value in net.parameters():
                            value -= 0.5 * value.grad
                update = (values_of(net) - start).double()
                norm = float(update.norm())
                within += norm <= clip
                total += update * min(1, clip / norm)
            put(net, (start.double() + total / clients).float())
            clip *= math.exp(-0.2 * (within / clients - quantile))
            clips.append(clip)
        np.testing.assert_allclose(self.weights(folder), values_of(net).numpy(), rtol=0, atol=2e-6)
        np.testing.assert_allclose(privacy(folder)["clip_norm"], clips, rtol=1e-9)
        self.assertLess(min(clips), max(clips))

    def test_clipped_records_without_noise_are_a_loop_in_pytorch(self):
        clients, rounds, clip = 4, 3, 0.4
        folder = self.train("records", "--init-from", "start.h5", "--clients", clients, "--rounds", rounds, "--local-batch", "all", "--local-epochs", 2,
                            "--dp-clip", clip, "--dp-noise", 0, *SEEDED, ranks=2)
        net, owners = network(), self.owners(folder)
        for _ in range(rounds):
            start = values_of(net)
            total = torch.zeros_like(start, dtype=torch.float64)
            for client in range(clients):
                put(net, start)
                mine = owners == client
                for _ in range(2):
                    step = torch.zeros_like(start)
                    for x, y in zip(self.inputs[mine], self.targets[mine]):
                        net.zero_grad()
                        torch.nn.functional.cross_entropy(net(x[None]), y[None]).backward()
                        gradient = torch.cat([value.grad.flatten() for value in net.parameters()])
                        step += gradient * min(1, clip / float(gradient.double().norm()))
                    put(net, values_of(net) - 0.5 * step / int(mine.sum()))
                total += int(mine.sum()) / len(owners) * (values_of(net) - start).double()
            put(net, (start.double() + total).float())
        np.testing.assert_allclose(self.weights(folder), values_of(net).numpy(), rtol=0, atol=5e-6)

    def test_the_same_bits_on_any_number_of_ranks(self):
        cases = {"client": [*CLIENT, "--dp-noise", 0.8, "--dp-adaptive-clip", 0.5, "--server-optimizer", "momentum", "--drop-rate", 0.2],
                 "record": [*RECORD, "--dp-noise", 0.8, "--proximal-mu", 0.1],
                 "sparse": ["--dp-clip", 0.4, "--local-batch", 1, "--dp-noise", 0.8]}  # a local step often draws no record
        for name, options in cases.items():
            found = []
            for ranks in (1, 3):
                folder = self.train(f"{name}-{ranks}", "--clients", 7, "--clients-per-round", 4, "--rounds", 4, "--reproducible", *options, *SEEDED, ranks=ranks)
                found.append(checkpoint_tensors(last_step(folder), group=None))
            for key, value in found[0].items():
                np.testing.assert_array_equal(value, found[1][key], err_msg=f"{name} {key}")

    def test_the_epsilon_of_clients_is_that_of_the_accountant(self):
        folder = self.train("client-epsilon", "--clients", 8, "--clients-per-round", 2, "--rounds", 5, *CLIENT, "--dp-noise", 1.2, "--dp-delta", 1e-3, ranks=2)
        rows = privacy(folder)
        self.assertEqual(rows["releases"].tolist(), [1, 2, 3, 4, 5])
        self.assertEqual(read(folder, "rounds")["epsilon"].tolist(), rows["epsilon"].tolist())
        self.assertEqual(set(rows["unit"].tolist()), {b"client"})
        self.assertAlmostEqual(rows["epsilon"][-1], self.epsilon(1.2, 1e-3, 0.25, 5), places=4)
        self.assertIn("each client, one more or less", events(folder, "privacy")[0])
        self.assertIn("unit client", (folder / "privacy.ledger").read_text())
        drawn = set(read(folder, "rounds")["sampled"].tolist())
        self.assertGreater(len(drawn), 1, "by chance, not 2 of 8")

    def test_the_epsilon_of_records_is_that_of_the_worst_client(self):
        folder = self.train("record-epsilon", "--clients", 4, "--clients-per-round", 2, "--rounds", 5, *RECORD, "--dp-noise", 1.2, "--dp-delta", 1e-3, ranks=2)
        clients, samples = read(folder, "client_privacy"), read(folder, "clients")["samples"]
        each = np.ceil(samples / np.minimum(8, samples)).astype(int)
        rounds = clients["local_steps"] / each
        self.assertEqual(rounds.sum(), 5 * 2)
        for client, count in zip(clients, samples):
            steps, rate = int(client["local_steps"]), min(8, int(count)) / int(count)
            self.assertAlmostEqual(client["sampling_rate"], rate)
            self.assertAlmostEqual(client["epsilon"], self.epsilon(1.2, 1e-3, rate, steps) if steps else 0, places=4)
        self.assertEqual(privacy(folder)["epsilon"][-1], clients["epsilon"].max())
        self.assertIn("each record of a client, one more or less", events(folder, "privacy")[0])

    @unittest.skipUnless(FULL, "takes longer")
    def test_the_noise_is_found_for_all_rounds(self):
        for name, options in {"client": CLIENT, "record": RECORD}.items():
            folder = self.train(f"target-{name}", "--clients", 6, "--clients-per-round", 3, "--rounds", 4, *options, "--target-epsilon", 3, "--dp-delta", 1e-3)
            rows = privacy(folder)
            self.assertEqual(len(rows), 4)
            self.assertTrue(2.98 < rows["epsilon"][-1] <= 3, rows["epsilon"])

    def test_a_budget_without_room_for_a_round_is_refused(self):
        for options, words in (([*CLIENT, "--clients-per-round", 2], "first step"), (RECORD, "nothing was trained")):
            refused(BINARY, 2, 2, ["--target-epsilon", words, "--dp-noise"], *COMMON, "--name", "no-room", "--clients", 4, "--rounds", 3, *options,
                    "--dp-noise", 0.3, "--target-epsilon", 0.01, cwd=self.folder)

    def test_the_run_ends_when_the_budget_is_spent(self):
        for name, options in {"client": CLIENT, "record": RECORD}.items():
            folder = self.train(f"spent-{name}", "--clients", 4, "--clients-per-round", 2, "--rounds", 200, *options, "--dp-noise", 1, "--target-epsilon", 8,
                                "--dp-delta", 1e-3, ranks=2)
            rows = privacy(folder)
            self.assertTrue(4 < rows["epsilon"][-1] <= 8, rows)
            self.assertLess(len(rows), 200)
            self.assertIn("would release more than epsilon 8", events(folder, "privacy_spent")[0])

    def test_a_round_made_again_counts_again_and_none_is_lost(self):
        for name, options in {"client": CLIENT, "record": RECORD}.items():
            # A model that stays is never better than the first: no checkpoint before the end.
            options = ["--clients", 3, *options, "--dp-noise", 1, "--checkpoint-every", "end", "--server-rate", 1e-30]
            self.train(f"killed-{name}", *options, "--rounds", 4, "--limit-steps", 2)
            done = ["--rounds", 6, *options]
            run(BINARY, 1, "--name", f"killed-{name}", *COMMON, *done, "--inject", "kill:rank=0,phase=backward,step=5", cwd=self.folder, check=False)
            folder = self.train(f"killed-{name}", *done)
            rows = privacy(folder)
            if name == "client":
                self.assertEqual(rows["releases"][-1], 6 + 2)  # 3 and 4
            else:
                samples = read(folder, "clients")["samples"]
                each = np.ceil(samples / np.minimum(8, samples))
                np.testing.assert_array_equal(read(folder, "client_privacy")["local_steps"], 8 * each)
            self.assertTrue(any("made after the checkpoint count" in event for event in events(folder, "privacy")))

    @unittest.skipUnless(has_ulfm(), "this MPI has no ULFM")
    def test_a_round_in_which_a_rank_was_killed_counts_once(self):
        for name, options in {"client": CLIENT, "record": RECORD}.items():
            whole = ["--name", f"lost-{name}", *COMMON, "--clients", 5, "--rounds", 4, *options, "--dp-noise", 1, "--watchdog", 60,
                     "--inject", "kill:rank=1,phase=backward,step=3"]
            done = subprocess.run([str(MPIRUN), "3", str(BINARY), *map(str, whole)], cwd=self.folder, text=True, timeout=120,
                                  env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL, capture_output=True)
            folder = self.folder / f"runs/lost-{name}"
            self.assertEqual((folder / "state").read_text().strip(), "completed", done.stderr)
            if name == "client":
                self.assertEqual(privacy(folder)["releases"][-1], 4)
            else:
                samples = read(folder, "clients")["samples"]
                np.testing.assert_array_equal(read(folder, "client_privacy")["local_steps"], 4 * np.ceil(samples / np.minimum(8, samples)))

    def test_bad_input_is_refused(self):
        noise = ["--dp-noise", 1]
        cases = [(["--dp-unit", "someone"], ["--dp-unit", "record, client"], [*RECORD, *noise]),
                 (["--dp-unit", "client"], ["--dp-unit", "--dp-clip"], []),
                 (["--dp-adaptive-clip", 0.5], ["--dp-adaptive-clip", "--dp-unit client"], [*RECORD, *noise]),
                 (["--dp-adaptive-clip", 1.5], ["--dp-adaptive-clip", "no quantile"], [*CLIENT, *noise]),
                 (["--federated-rule", "fednova"], ["count alike"], [*CLIENT, *noise]),
                 (["--federated-rule", "scaffold"], ["without noise"], [*CLIENT, *noise]),
                 (["--round-deadline", 5], ["--round-deadline"], [*CLIENT, *noise]),
                 (["--dp-sampler", "once"], ["--dp-sampler", "fedavg"], [*RECORD, *noise]),
                 (["--target-epsilon", 1e-6], ["cannot be reached"], CLIENT),
                 (["--reproducible"], ["--noise-source seeded", "leave --reproducible out"], [*CLIENT, *noise]),
                 (["--reproducible"], ["--noise-source seeded", "leave --reproducible out"], [*RECORD, *noise]),
                 (["--dp-clip", 1e9], ["do not fit"], ["--dp-unit", "client", *noise]),
                 (["--dp-clip", 1e-15], ["rounded"], ["--dp-unit", "client", *noise])]
        for options, words, others in cases:
            with self.subTest(options=options):
                refused(BINARY, 1, 2, words, "--name", "bad", *COMMON, *others, *options, cwd=self.folder)
        refused(BINARY, 1, 2, ["BatchNorm", "GroupNorm"], "--strategy", "fedavg", "--model", "resnet18", *CLIENT, *noise, "--rounds", 1, cwd=self.folder)
        refused(BINARY, 1, 2, ["--dp-unit", "fedavg"], "--name", "bad", "--dataset", "rows", "--dp-unit", "client", "--dp-clip", 1, *noise, cwd=self.folder)

    def test_a_run_goes_on_with_the_unit_that_it_began_with(self):
        options = ["--clients", 3, "--dp-noise", 1, "--rounds"]
        self.train("unit", *CLIENT, *options, 2)
        refused(BINARY, 1, 2, ["--dp-unit was client and is record"], "--name", "unit", *COMMON, *RECORD, *options, 3, cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
