"""Federated averaging: rounds give the weights of a plain loop in PyTorch and of ddp where it comes to the same, with the same bits on
any number of ranks, after a resume and without ranks that were killed; clients are recorded, and what cannot work is refused.

    federated.py BINARY
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np
import torch

import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run
from recovery import has_ulfm  # before pytorch_agrees, which brings a folder with another recovery.py
from pytorch_agrees import VALIDATION, batch, networks, random_images  # isort: skip

BINARY = sys.argv.pop()
SAMPLES = 70
FEDAVG = {"--model": "mlp", "--strategy": "fedavg", "--optimizer": "sgd", "--momentum": 0, "--learning-rate": 0.05, "--schedule": "constant",
          "--threads": 1, "--quiet": ""}
CLIENTS = {"--clients": 7, "--clients-per-round": 4, "--partition": "quantity=2", "--local-epochs": 2, "--local-batch": 8, "--rounds": 3}
SITES = {"north": 60, "south": 25, "west": 15}


def words_of(options):
    words = []
    for option, value in options.items():
        words += [option] if value == "" else [option, str(value)]
    return words


def write_patients(path):
    """A table of three hospitals."""
    random = np.random.default_rng(3)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "pressure", "hospital", "ill"])
        for hospital, count in SITES.items():
            for row in range(count):
                ill = row % 2
                writer.writerow([f"{50 + 9 * ill + random.normal():.3f}", f"{120 - 11 * ill + random.normal():.3f}", hospital, ["no", "yes"][ill]])


class FederatedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        torch.set_num_threads(1)
        random_images.stage(cls.folder / "images", shape=(1, 28, 28), train_samples=SAMPLES, other_samples=VALIDATION)
        write_patients(cls.folder / "patients.csv")
        run(BINARY, 1, "stage", "patients", "--from", cls.folder / "patients.csv", "--target", "ill", "--site", "hospital", cwd=cls.folder)

    def train(self, name, options, ranks=1):
        options = FEDAVG | {"--dataset": self.folder / "images", "--name": name} | options
        run(BINARY, ranks, *words_of(options), cwd=self.folder)
        return self.folder / "runs" / name

    def weights(self, folder, step, group="model"):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=group)

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [name for name in one if not np.array_equal(one[name], other[name])])

    def assert_close(self, one, other, tolerance=1e-6):
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance, err_msg=name)

    def test_the_same_bits_on_any_number_of_ranks(self):
        for name, options in {"plain": {}, "scaffold": {"--federated-rule": "scaffold"}, "adam": {"--optimizer": "adam", "--learning-rate": 0.001, "--server-optimizer": "yogi"}}.items():
            options = FEDAVG | CLIENTS | options
            if name == "adam":
                del options["--momentum"]
            with self.subTest(name=name):
                alone = None
                for ranks in (1, 2, 3):
                    whole = {"--dataset": self.folder / "images", "--name": f"{name}-{ranks}", "--reproducible": ""} | options
                    run(BINARY, ranks, *words_of(whole), cwd=self.folder)
                    found = self.weights(self.folder / "runs" / f"{name}-{ranks}", 3, group=None)
                    alone = alone or found
                    self.assert_same(found, alone)

    def test_one_client_with_one_local_step_is_ddp(self):
        federated = self.train("one-client", {"--clients": 1, "--rounds": 4, "--local-batch": "all"}, ranks=2)
        usual = self.train("ddp", {"--strategy": "ddp", "--global-batch": SAMPLES, "--epochs": 4}, ranks=2)
        self.assert_close(self.weights(federated, 4), self.weights(usual, 4))

    def test_the_weights_of_a_plain_loop_in_pytorch(self):
        cases = {"average": {}, "proximal": {"--proximal-mu": 0.5}, "nova": {"--federated-rule": "fednova", "--local-batch": "all"},
                 "server": {"--server-optimizer": "momentum", "--server-rate": 0.5, "--server-momentum": 0.8}}
        first = {name: torch.from_numpy(value) for name, value in self.weights(self.train("start", {"--clients": 1, "--rounds": 1,
                 "--learning-rate": 1e-300}), 1).items()}
        x, y = batch(self.folder, "train", networks.RECIPES["mlp"])
        for name, options in cases.items():
            with self.subTest(name=name):
                # A pass in one local step: its order does not matter.
                options = {"--clients": 5, "--partition": "quantity=1", "--local-batch": "all", "--local-epochs": 3, "--rounds": 3,
                           "--momentum": 0.5} | options
                folder = self.train(name, options, ranks=2)
                with h5py.File(folder / "results.h5") as file:
                    owners = torch.from_numpy(file["client_of_sample"][:])
                    self.assertEqual(file["clients"]["samples"].tolist(), torch.bincount(owners).tolist())
                self.assert_close(self.weights(folder, 3), self.plain_loop(first, x.float(), y, owners, options))

    def plain_loop(self, first, x, y, owners, options):
        network, criterion = networks.make_network("mlp", seed=1), torch.nn.CrossEntropyLoss()
        weights = {name: value.clone() for name, value in first.items()}
        mu, moment = options.get("--proximal-mu", 0), {name: torch.zeros_like(value) for name, value in first.items()}
        for _ in range(options["--rounds"]):
            update = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in weights.items()}
            for client in owners.unique():
                mine = owners == client
                network.load_state_dict(weights)
                optimizer = torch.optim.SGD(network.parameters(), lr=FEDAVG["--learning-rate"], momentum=options["--momentum"])
                for _ in range(options["--local-epochs"]):
                    optimizer.zero_grad()
                    loss = criterion(network(x[mine]), y[mine])
                    for name, parameter in network.named_parameters():
                        loss = loss + mu / 2 * (parameter - weights[name]).square().sum()
                    loss.backward()
                    optimizer.step()
                # All clients make as many local steps: FedNova divides and multiplies by the same.
                for name, value in network.state_dict().items():
                    update[name] += mine.sum() / len(owners) * (value.double() - weights[name].double())
            for name in weights:
                if "--server-optimizer" in options:
                    moment[name] = options["--server-momentum"] * moment[name] + update[name]
                    weights[name] = (weights[name] + options["--server-rate"] * moment[name]).float()
                else:
                    weights[name] = (weights[name] + update[name]).float()
        return {name: value.numpy() for name, value in weights.items()}

    def test_a_site_is_a_client(self):
        folder = self.train("sites", {"--dataset": "patients", "--rounds": 4, "--local-batch": 4, "--local-epochs": 2}, ranks=2)
        with h5py.File(folder / "results.h5") as file:
            self.assertEqual(file["clients"]["name"].tolist(), [name.encode() for name in SITES])
            samples = file["clients"]["samples"]
            self.assertEqual(samples.sum(), file["client_of_sample"].size)
            self.assertEqual(file["client_classes"][:].sum(axis=1).tolist(), samples.tolist())
            rounds = file["rounds"][:]
            self.assertEqual(rounds["round"].tolist(), [1, 2, 3, 4])
            self.assertEqual(rounds["handed_in"].tolist(), [3] * 4)
            self.assertEqual(file["epochs"]["samples"].tolist(), [2 * samples.sum()] * 4)
            self.assertLess(file["epochs"]["validation_loss"][-1], file["epochs"]["validation_loss"][0])
            sites = file["test_sites"][:]
            self.assertEqual(sites["site"].tolist(), [name.encode() for name in SITES])
            self.assertEqual(sites["samples"].sum(), file["test"]["samples"][0])
            self.assertAlmostEqual(np.average(sites["loss"], weights=sites["samples"]), file["test"]["loss"][0], places=5)
            self.assertAlmostEqual(np.average(sites["accuracy"], weights=sites["samples"]), file["test"]["accuracy"][0], places=6)
        report = run(BINARY, 1, "report", folder, cwd=self.folder).stdout
        self.assertIn("sites: accuracy at worst", report)
        self.assertRegex(report, r"(?m)^ *round +train loss")
        self.assertNotIn("epoch", report)
        self.assertIn("rounds 4: 12 clients were sampled, and 12 handed in", report)

    def test_clients_that_train_alone_are_plain_loops_of_their_own(self):
        options = {"--clients": 4, "--partition": "quantity=1", "--local-batch": "all", "--local-epochs": 3, "--rounds": 3, "--momentum": 0.5}
        folder = self.train("alone", options | {"--federated-rule": "local"}, ranks=2)
        start = self.weights(self.train("start-alone", {"--clients": 1, "--rounds": 1, "--learning-rate": 1e-300}), 1)
        first = {name: torch.from_numpy(value) for name, value in start.items()}
        x, y = batch(self.folder, "train", networks.RECIPES["mlp"])
        test_x, test_y = batch(self.folder, "test", networks.RECIPES["mlp"])
        with h5py.File(folder / "results.h5") as file:
            owners, scores = torch.from_numpy(file["client_of_sample"][:]), file["test_clients"][:]
        mean, network = {name: 0 for name in first}, networks.make_network("mlp", seed=1).eval()
        for client in range(4):
            mine = owners == client
            own = self.plain_loop(first, x[mine].float(), y[mine], owners[mine], options)
            network.load_state_dict({name: torch.from_numpy(value) for name, value in own.items()})
            right = network(test_x.float()).argmax(1) == test_y
            # All test samples, each class counting as among the client's own.
            weight = (torch.bincount(y[mine], minlength=10) / torch.bincount(test_y, minlength=10))[test_y]
            self.assertAlmostEqual(scores["accuracy"][client], float((weight * right).sum() / weight.sum()), places=5)
            self.assertEqual(scores["samples"][client], (weight > 0).sum())
            mean = {name: mean[name] + float(mine.sum()) / len(owners) * own[name] for name in own}
        self.assert_close(self.weights(folder, 3), mean)

    def test_hospitals_alone_together_and_in_one_place(self):
        options = {"--dataset": "patients", "--rounds": 4, "--local-batch": 8, "--local-epochs": 2}
        alone = self.train("hospitals-alone", options | {"--federated-rule": "local"}, ranks=2)
        pooled = self.train("hospitals-pooled", options | {"--partition": "pooled"})
        together = self.train("hospitals-together", options)
        self.train("hospitals-parts", options | {"--federated-rule": "local", "--rounds": 2})
        parts = self.train("hospitals-parts", options | {"--federated-rule": "local"}, ranks=3)
        with h5py.File(alone / "results.h5") as one, h5py.File(parts / "results.h5") as other, h5py.File(together / "results.h5") as joint:
            self.assertEqual(one["test_clients"]["name"].tolist(), [name.encode() for name in SITES])
            self.assertEqual(one["test_clients"]["samples"].tolist(), one["test_sites"]["samples"].tolist())
            self.assertEqual(one["test_clients"]["auc"].tolist(), other["test_clients"]["auc"].tolist())
            self.assertEqual(one["test_clients"]["loss"].tolist(), other["test_clients"]["loss"].tolist())
            self.assertNotEqual(one["test_clients"]["loss"].tolist(), one["test_sites"]["loss"].tolist())
            for column in ("loss", "accuracy", "f1", "auc"):
                np.testing.assert_array_equal(joint["test_clients"][column], joint["test_sites"][column])
        report = run(BINARY, 1, "report", alone, cwd=self.folder).stdout
        self.assertIn("clients trained alone", report)
        self.assertIn("rounds 4: 3 clients trained alone", report)
        self.assertIn("deviation", report)
        compared = run(BINARY, 1, "report", "--compare", pooled, alone, together, cwd=self.folder).stdout
        lines = compared[compared.index("test accuracy by owner"):].splitlines()
        rows = {line.split()[0]: line.split()[1:] for line in lines[2:13]}
        self.assertEqual([len(rows[name]) for name in ("north", "south", "west", "mean", "worst", "deviation", "rounds")], [3] * 7, compared)
        self.assertEqual(rows["clients"], ["1", "3", "3"])
        self.assertEqual(rows["epsilon"], ["-"] * 3)

    def test_a_run_in_two_parts_on_other_ranks_has_the_same_bits(self):
        options = CLIENTS | {"--federated-rule": "scaffold", "--server-optimizer": "adam", "--drop-rate": 0.3}
        whole = self.train("whole", options | {"--rounds": 6})
        self.train("parts", options | {"--rounds": 3}, ranks=2)
        rest = self.train("parts", options | {"--rounds": 6}, ranks=3)
        self.assert_same(self.weights(whole, 6, group=None), self.weights(rest, 6, group=None))
        with h5py.File(whole / "results.h5") as one, h5py.File(rest / "results.h5") as other:
            self.assertEqual(one["rounds"]["handed_in"].tolist(), other["rounds"]["handed_in"].tolist())
            self.assertLess(one["rounds"]["handed_in"].sum(), one["rounds"]["sampled"].sum())
            self.assertEqual(one["client_of_sample"][:].tolist(), other["client_of_sample"][:].tolist())

    def test_a_run_replaces_another_that_had_no_clients(self):
        for rule, ranks in {"scaffold": 1, "local": 2}.items():
            with self.subTest(rule=rule):
                clients = CLIENTS | {"--federated-rule": rule}
                if rule == "local":
                    del clients["--clients-per-round"]
                run(BINARY, 1, "--dataset", "synthetic", "--model", "mlp", "--limit-steps", 1, "--name", f"over-{rule}", cwd=self.folder, limit_s=60)
                self.train(f"over-{rule}", clients | {"--overwrite": ""}, ranks)
                self.train(f"fresh-{rule}", clients, ranks)
                self.assert_same(self.weights(self.folder / "runs" / f"over-{rule}", 3), self.weights(self.folder / "runs" / f"fresh-{rule}", 3))

    def test_a_run_that_goes_on_under_another_name_has_what_clients_keep(self):
        for rule in ("scaffold", "local"):
            with self.subTest(rule):
                options = {option: value for option, value in CLIENTS.items() if rule != "local" or option != "--clients-per-round"}
                options["--federated-rule"] = rule
                whole = self.train(f"whole-{rule}", options | {"--rounds": 6})
                first = self.train(f"first-{rule}", options)
                rest = self.train(f"rest-{rule}", options | {"--rounds": 6, "--resume": "runs/first-" + rule}, ranks=2)
                self.assert_same(self.weights(whole, 6, group=None), self.weights(rest, 6, group=None))
                shutil.rmtree(first / "clients")
                words = words_of(FEDAVG | {"--dataset": self.folder / "images", "--name": "lost"} | options | {"--rounds": 6, "--resume": "runs/first-" + rule})
                refused(BINARY, 2, 4, [f"first-{rule}/clients", "in the folder of its run"], *words, cwd=self.folder)

    def test_a_run_that_stops_after_each_round_records_what_one_that_does_not_does(self):
        options = CLIENTS | {"--drop-rate": 0.3}
        whole = self.train("unstopped", options)
        words = words_of(FEDAVG | {"--dataset": self.folder / "images", "--name": "stopped"} | options)
        for _ in range(2):
            self.assertEqual(run(BINARY, 2, *words, "--exit-after", "0.001s", cwd=self.folder, check=False).returncode, 75)
        stopped = self.train("stopped", options)
        with h5py.File(whole / "results.h5") as one, h5py.File(stopped / "results.h5") as other:
            for column in ("round", "sampled", "handed_in", "samples"):
                self.assertEqual(one["rounds"][column].tolist(), other["rounds"][column].tolist(), column)
            for column in ("epoch", "samples", "learning_rate"):
                self.assertEqual(one["epochs"][column].tolist(), other["epochs"][column].tolist(), column)

    @unittest.skipUnless(has_ulfm(), "this MPI has no ULFM")
    def test_clients_of_a_killed_rank_are_simulated_by_the_others(self):
        options = FEDAVG | CLIENTS | {"--dataset": self.folder / "images", "--rounds": 5, "--server-optimizer": "yogi",
                                      "--federated-rule": "scaffold", "--watchdog": 60}
        run(BINARY, 1, *words_of(options | {"--name": "undisturbed"}), cwd=self.folder)
        expected = self.weights(self.folder / "runs/undisturbed", 5, group=None)
        for phase in ("backward", "all_reduce"):
            with self.subTest(phase=phase):
                faulty = options | {"--name": f"killed-{phase}", "--inject": f"kill:rank=1,phase={phase},step=3"}
                command = [str(MPIRUN), "3", str(BINARY), *words_of(faulty)]
                done = subprocess.run(command, cwd=self.folder, env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, text=True,
                                      timeout=120, stdin=subprocess.DEVNULL, capture_output=True)
                self.assertEqual((self.folder / f"runs/killed-{phase}/state").read_text().strip(), "completed", done.stderr)
                self.assert_same(self.weights(self.folder / f"runs/killed-{phase}", 5, group=None), expected)

    def test_refuses_what_cannot_work(self):
        cases = [({"--clients": 3, "--clients-per-round": 4}, ["there are 3 clients", "use 1 to 3"]),
                 ({"--clients-per-round": 11}, ["there are 10 clients", "use 1 to 10"]),
                 ({"--clients": SAMPLES + 1}, ["leave clients without data", f"at most {SAMPLES}"]),
                 ({"--clients": 0}, ["--clients", "too small"]),
                 ({"--partition": "sites"}, ["names no owners", "--site COLUMN"]),
                 ({"--partition": "dirichlet=0.001", "--clients": SAMPLES}, ["would be without data", "larger A"]),
                 ({"--partition": "heap"}, ["no such partition"]),
                 ({"--epochs": 3}, ["--rounds"]), ({"--global-batch": 8}, ["--local-batch"]), ({"--micro-batches": 2}, ["--local-batch"]),
                 ({"--local-batch": "some"}, ["not a number of samples"]), ({"--rounds": 0}, ["--rounds"]),
                 ({"--proximal-mu": -1}, ["--proximal-mu"]), ({"--server-rate": 0}, ["--server-rate"]),
                 ({"--server-momentum": 0.5}, ["--server-optimizer"]), ({"--drop-rate": 1}, ["[0, 1)"]),
                 ({"--federated-rule": "mean"}, ["fedavg, fednova, scaffold, local"]),
                 ({"--federated-rule": "local", "--clients-per-round": 3}, ["--clients-per-round", "train alone"]),
                 ({"--federated-rule": "local", "--drop-rate": 0.5}, ["--drop-rate"]), ({"--federated-rule": "local", "--round-deadline": 9}, ["--round-deadline"]),
                 ({"--federated-rule": "local", "--server-optimizer": "adam"}, ["no server"]), ({"--federated-rule": "local", "--server-rate": 0.5}, ["no server"]),
                 ({"--federated-rule": "local", "--proximal-mu": 1}, ["no global weights"]), ({"--partition": "pooled", "--clients": 2}, ["one client", "leave it out"]), ({"--precision": "fp16"}, ["fp16"]), ({"--federated-rule": "scaffold", "--momentum": 0.9}, ["plain sgd"]),
                 ({"--round-deadline": 1, "--reproducible": ""}, ["--round-deadline"]), ({"--strategy": "ddp", "--rounds": 2}, ["fedavg"])]
        for options, words in cases:
            with self.subTest(options=options):
                whole = FEDAVG | {"--dataset": self.folder / "images", "--name": "refused"} | options
                refused(BINARY, 1, 2, words, *words_of(whole), cwd=self.folder)
        whole = FEDAVG | {"--dataset": self.folder / "images", "--name": "refused", "--mesh": "pipe=2"}
        refused(BINARY, 2, 2, ["one rank"], *words_of(whole), cwd=self.folder)

    def test_an_update_that_is_not_finite_ends_the_run_naming_the_round_alone(self):
        whole = FEDAVG | CLIENTS | {"--dataset": self.folder / "images", "--name": "spoiled", "--inject": "nan:rank=1,step=2"}
        done = run(BINARY, 2, *words_of(whole), cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("round 2: an update is not finite", done.stderr)
        self.assertNotIn("client", done.stderr)

    def test_an_effective_configuration_can_be_fed_back(self):
        options = FEDAVG | CLIENTS | {"--dataset": self.folder / "images", "--server-optimizer": "adam"}
        text = run(BINARY, 1, *words_of(options), "--print-config", cwd=self.folder).stdout
        (self.folder / "printed.toml").write_text(text)
        again = run(BINARY, 1, "--config", self.folder / "printed.toml", "--print-config", cwd=self.folder).stdout
        self.assertEqual(text, again)
        run(BINARY, 1, "--config", self.folder / "printed.toml", "--name", "fed-back", "--quiet", cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
