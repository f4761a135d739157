"""Copies that make steps of their own: local_sgd and easgd train, save, resume, recover and are evaluated, and say what they cannot do.

    local_sgd.py BINARY
"""

import json
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
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run, sample_hash
from resume import after_steps, stopped_by

BINARY = sys.argv.pop()
RECIPE = {"--model": "mlp", "--threads": 1, "--global-batch": 128, "--micro-batches": 2, "--schedule": "constant", "--epochs": 1}
SGD = {"--optimizer": "sgd", "--momentum": 0.9, "--learning-rate": 0.05}
LOCAL = {"--strategy": "local_sgd", "--sync-period": 4}
OUTER = {"--outer-optimizer": "nesterov"}
EASGD = {"--strategy": "easgd", "--sync-period": 4}


def words_of(options):
    """Of a list each value, with the option before it."""
    words = []
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [option] if one == "" else [option, str(one)]
    return words


class StrategyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, options, ranks=2, steps=32):
        options = RECIPE | {"--name": name, "--quiet": "", "--limit-steps": steps} | options
        run(BINARY, ranks, *words_of(options), cwd=self.folder)
        return self.folder / "runs" / name

    def state(self, folder, step):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [name for name in one if not np.array_equal(one[name], other[name])])

    def assert_close(self, one, other, tolerance):
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance, err_msg=name)


class LocalSgdTest(StrategyTest):
    def test_with_one_step_a_round_it_has_the_bits_of_ddp(self):
        strict = SGD | {"--reproducible": "", "--micro-batches": 8}
        ddp = self.state(self.train("strict-ddp", strict, steps=6), 6)
        self.assert_same(self.state(self.train("strict-local", strict | LOCAL | {"--sync-period": 1}, steps=6), 6), ddp)
        outer = OUTER | {"--outer-learning-rate": 1, "--outer-momentum": 0}
        self.assert_same(self.state(self.train("strict-outer", strict | LOCAL | outer | {"--sync-period": 1}, steps=6), 6), ddp)

    def test_rounds_of_any_length_use_each_sample_once_and_learn(self):
        # 3 micro-batches on 2 ranks, 60 samples in the last step, rounds that do not divide an epoch.
        odd = SGD | {"--global-batch": 100, "--micro-batches": 3, "--verify-every": 5}
        usual = self.train("odd-ddp", odd, steps=0)
        with h5py.File(usual / "results.h5") as file:
            expected, samples = sample_hash(file), file["epochs"]["samples"].tolist()
        for name, options in {"odd-local": LOCAL | {"--sync-period": 7}, "odd-easgd": EASGD | {"--sync-period": 7}}.items():
            with self.subTest(name=name), h5py.File(self.train(name, odd | options, steps=0) / "results.h5") as file:
                self.assertEqual(file.attrs["strategy"].decode(), options["--strategy"])
                self.assertEqual(sample_hash(file), expected)
                self.assertEqual(file["epochs"]["samples"].tolist(), samples)
                rows = np.concatenate([rank["steps"][:] for rank in file["ranks"].values()])
                mean = np.sum(rows["loss"] * rows["weight"]) / np.sum(rows["weight"])
                self.assertAlmostEqual(file["epochs"]["train_loss"][0], mean, delta=1e-6 * mean)  # the copies' own losses
                self.assertLess(file["epochs"]["validation_loss"][-1], 0.1 * rows["loss"][0])

    def test_a_run_in_two_parts_has_the_same_bits(self):
        cases = {"keep": {}, "average": {"--sync-optimizer": "average"}, "reset": {"--sync-optimizer": "reset"}, "outer": OUTER,
                 "late": {"--local-after": 4}, "early": {"--local-after": 24}, "parts": OUTER | {"--fragments": 3, "--exchange-type": "int8"}}
        for name, options in cases.items():
            with self.subTest(name=name):
                options = LOCAL | options | ({"--optimizer": "adam", "--learning-rate": 0.001} if name not in ("outer", "parts") else SGD)
                self.check_two_parts(name, options)

    def test_an_adaptive_period_is_resumed_within_its_interval(self):
        options = SGD | {"--strategy": "local_sgd", "--sync-period": "adaptive", "--mesh": "data=2,pipe=2", "--micro-batches": 4}
        begun = self.train("adaptive-first", options | {"--epochs": 2}, steps=0, ranks=4)
        whole = self.train("adaptive-whole", options | {"--epochs": 5}, steps=0, ranks=4)
        newest = max((begun / "checkpoints").glob("step-????????"))
        rest = self.train("adaptive-rest", options | {"--epochs": 5, "--resume": newest}, steps=0, ranks=4)
        last = int(max((whole / "checkpoints").glob("step-????????")).name[5:])
        self.assert_same(self.state(whole, last), self.state(rest, last))
        with h5py.File(whole / "results.h5") as file:
            told = [row["detail"].decode() for row in file["ranks/00000/events"] if row["kind"] == b"sync_period"]
        self.assertTrue(told and told[0].endswith("steps, was 16"), told)

    def check_two_parts(self, name, options, steps=32, first=16):
        whole = self.train(f"{name}-whole", options, steps=steps)
        begun = self.train(f"{name}-first", options, steps=first)
        rest = self.train(f"{name}-rest", options | {"--resume": begun / f"checkpoints/step-{first:08}"}, steps=steps)
        self.assert_same(self.state(whole, steps), self.state(rest, steps))

    def test_copies_of_optimizer_state_are_saved_and_go_to_other_numbers_of_ranks(self):
        first = self.train("copies", SGD | LOCAL, steps=8)
        saved = self.state(first, 8)
        for copy in ("copy-00000", "copy-00001"):
            self.assertIn(f"optimizer/momentum_buffer.{copy}/output_fc.weight", saved)
        self.assertFalse(np.array_equal(saved["optimizer/momentum_buffer.copy-00000/output_fc.weight"],
                                        saved["optimizer/momentum_buffer.copy-00001/output_fc.weight"]))
        self.assertNotIn("optimizer/momentum_buffer/output_fc.weight", saved)
        for ranks in (1, 3):
            rest = self.train(f"copies-{ranks}", SGD | LOCAL | {"--micro-batches": 3, "--resume": first / "checkpoints/step-00000008",
                                                                "--optimizer-state": "keep"}, ranks=ranks, steps=12)
            self.assertIn(f"optimizer/momentum_buffer.copy-{ranks - 1:05}/output_fc.weight", self.state(rest, 12))

    def test_goes_on_from_another_strategy_and_back(self):
        begun = self.train("from-ddp", SGD, steps=6)
        local = self.train("to-local", SGD | LOCAL | {"--resume": begun / "checkpoints/step-00000006", "--optimizer-state": "keep"}, steps=12)
        back = self.train("to-ddp", SGD | {"--resume": local / "checkpoints/step-00000012", "--optimizer-state": "keep"}, steps=18)
        self.assertIn("optimizer/momentum_buffer/output_fc.weight", self.state(back, 18))
        # What was saved has no values of the outer optimizer, nor of parts on their way.
        on = {"--resume": local / "checkpoints/step-00000012", "--optimizer-state": "keep"}
        for name, more in (("outer", OUTER), ("overlap", {"--overlap-steps": 2})):
            with self.subTest(name):
                refused(BINARY, 2, 4, ["optimizer/", "the checkpoint lacks this state", "--optimizer-state reset"], *words_of(
                    RECIPE | SGD | LOCAL | on | more | {"--name": f"lacks-{name}", "--quiet": "", "--limit-steps": 18}), cwd=self.folder)
                self.train(f"lacks-{name}", SGD | LOCAL | on | more | {"--optimizer-state": "reset", "--overwrite": ""}, steps=18)

    def test_a_checkpoint_that_is_due_within_a_round_comes_with_its_end(self):
        folder = self.train("due", SGD | LOCAL | {"--checkpoint-every": "6steps", "--keep": 9}, steps=16)
        kept = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
        self.assertEqual(kept, ["step-00000008", "step-00000012", "step-00000016"])
        plain = self.train("not-due", SGD | LOCAL, steps=16)
        self.assert_same(self.state(folder, 16), self.state(plain, 16))

    def test_a_request_to_stop_waits_for_the_end_of_a_round(self):
        long = RECIPE | SGD | LOCAL | {"--sync-period": 50, "--epochs": 16, "--name": "asked", "--quiet": ""}
        folder = self.folder / "runs/asked"
        stopped_by(BINARY, self.folder, after_steps(folder, 80), *words_of(long))
        step = int(max((folder / "checkpoints").glob("step-????????")).name[5:])
        self.assertIn(step % 64, (0, 50))  # of 8192 samples an epoch makes a round of 50 steps and one of 14
        run(BINARY, 2, *words_of(long), cwd=self.folder)
        usual = self.train("not-asked", long | {"--name": "not-asked"}, steps=0)
        with h5py.File(folder / "results.h5") as stopped, h5py.File(usual / "results.h5") as whole:
            for name in ("train_loss", "validation_loss", "samples"):
                self.assertEqual(stopped["epochs"][name].tolist(), whole["epochs"][name].tolist())
        self.assert_same(self.state(folder, 16 * 64), self.state(usual, 16 * 64))

    def test_running_statistics_are_the_same_on_all_copies(self):
        network = {"--model": "resnet18", "--model-option": "width=4", "--global-batch": 8, "--augment": "off", "--learning-rate": 0.05}
        folder = self.train("statistics", network | LOCAL | {"--sync-period": 2, "--verify-every": 1}, steps=5)
        saved = self.state(folder, 5)
        self.assertEqual(saved["model/bn1.num_batches_tracked"], 5)
        self.assertGreater(np.abs(saved["model/bn1.running_mean"]).max(), 0)

    def test_on_other_axes_it_is_the_same_training(self):
        options = SGD | LOCAL | {"--precision": "fp64", "--micro-batches": 4, "--grad-clip": 0.5}
        usual = self.state(self.train("whole-copies", options | {"--mesh": "data=2"}, ranks=2, steps=8), 8)
        for mesh, rounding in {"data=2,pipe=2": 1e-10, "data=2,tensor=2": 1e-10}.items():
            with self.subTest(mesh=mesh):
                cut = self.state(self.train(mesh.replace(",", "-"), options | {"--mesh": mesh}, ranks=4, steps=8), 8)
                self.assertEqual(usual.keys(), cut.keys())
                self.assert_close(cut, usual, rounding)

    def test_parts_of_slices_end_at_the_same_tensors(self):
        """Of 3 features one rank has 1 and the other 2: halves of what each holds would end at different tensors, and a bias that both
        have would be averaged after different steps."""
        options = SGD | LOCAL | {"--precision": "fp64", "--micro-batches": 4, "--model-option": "hidden=3,300,3,300", "--fragments": 2}
        usual = self.state(self.train("whole-parts", options | {"--mesh": "data=2"}, ranks=2, steps=10), 10)
        cut = self.state(self.train("cut-parts", options | {"--mesh": "data=2,tensor=2"}, ranks=4, steps=10), 10)
        self.assertEqual(usual.keys(), cut.keys())
        self.assert_close(cut, usual, 1e-10)

    def test_a_tied_weight_on_two_stages_stays_one(self):
        network = {"--model": "gpt", "--model-option": ["layers=2", "heads=4", "width=16"], "--global-batch": 8, "--micro-batches": 4,
                   "--precision": "fp64"}
        options = network | LOCAL | {"--sync-period": 2, "--verify-every": 1, "--learning-rate": 0.001}
        usual = self.state(self.train("tied-whole", options | {"--mesh": "data=2"}, ranks=2, steps=4), 4)
        cut = self.state(self.train("tied-cut", options | {"--mesh": "data=2,pipe=2"}, ranks=4, steps=4), 4)
        self.assert_close(cut, usual, 1e-9)

    def test_a_loss_that_is_no_number_ends_the_run_with_its_round(self):
        done = run(BINARY, 2, *words_of(RECIPE | SGD | LOCAL | {"--inject": "nan:rank=1,step=2", "--name": "nan"}),
                   cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("step 2", done.stderr)
        self.assertIn("is not finite", done.stderr)

    def test_bytes_follow_their_formula(self):
        rounds = LOCAL | {"--sync-period": 8}
        cases = {"ddp": {}, "rounds": rounds, "fragments": rounds | {"--fragments": 4}, "bfloat16": rounds | {"--exchange-type": "bfloat16"},
                 "int8": rounds | OUTER | {"--fragments": 4, "--exchange-type": "int8"},
                 "late": rounds | {"--fragments": 4, "--overlap-steps": 2}, "easgd": EASGD | {"--sync-period": 8}}
        sent = {}
        for name, options in cases.items():
            folder = self.train(f"bytes-{name}", SGD | {"--all-reduce": "ring", "--verify-every": 0} | options, steps=64)
            with h5py.File(folder / "results.h5") as file:
                sent[name] = int(file["ranks/00000/epochs"]["bytes_sent"][0])
                self.assertLess(file["epochs"]["validation_loss"][0], 0.2 * file["ranks/00000/steps"]["loss"][0], name)
        weights = sum(value.nbytes for name, value in self.state(self.folder / "runs/bytes-rounds", 64).items() if name.startswith("model/"))
        # A ring of two sends two halves of the weights in each of 8 rounds, or of the gradients in each of 64 steps, late or not. In 16 or 8 bits a
        # rank sends everything to the other, 8 bits with a scale of 4 bytes for 256 weights. Messages of control and the gaps between
        # parameters are less than a hundredth of all that.
        formula = {"ddp": 64, "rounds": 8, "fragments": 8, "bfloat16": 8 / 2, "int8": 8 / 4 * (1 + 4 / 256), "late": 8, "easgd": 8}
        for name, times in formula.items():
            self.assertAlmostEqual(sent[name], times * weights, delta=0.01 * times * weights, msg=name)

    def test_a_part_on_its_way_is_saved_and_arrives_after_a_resumption(self):
        late = SGD | LOCAL | OUTER | {"--fragments": 2, "--overlap-steps": 2, "--verify-every": 4}
        usual = self.state(self.train("aside", late), 32)
        whole = self.train("aside-saved", late | {"--checkpoint-every": "8steps", "--keep": 9})
        begun = whole / "checkpoints/step-00000008"
        saved = self.state(whole, 8)
        on_the_way = [name for name, value in saved.items() if name.startswith("optimizer/late_steps/") and np.all(value == 2)]
        self.assertTrue(on_the_way)
        self.assertLess(len(on_the_way), sum(name.startswith("model/") for name in saved))
        rest = self.train("aside-rest", late | {"--resume": begun})
        for other in (whole, rest):
            self.assert_same(self.state(other, 32), usual)
        for ranks in (1, 3):
            more = {"--micro-batches": 3, "--resume": begun, "--optimizer-state": "keep"}
            self.train(f"aside-{ranks}", late | more, ranks=ranks, steps=16)
        with h5py.File(rest / "results.h5") as file:
            self.assertLess(file["epochs"]["validation_loss"][-1], 0.5 * file["ranks/00000/steps"]["loss"][0])

    def test_late_parts_of_stages_with_a_tied_weight(self):
        """Stages hold different numbers of late parts, and after a resumption others than before."""
        network = {"--model": "gpt", "--model-option": ["layers=2", "heads=4", "width=40"], "--global-batch": 8, "--micro-batches": 4,
                   "--mesh": "data=2,pipe=2", "--learning-rate": 0.001}
        for fragments in (1, 8):
            late = network | LOCAL | {"--sync-period": 8, "--fragments": fragments, "--overlap-steps": 2, "--verify-every": 4}
            usual = self.state(self.train(f"tied-late-{fragments}", late | {"--checkpoint-every": "8steps", "--keep": 9}, ranks=4, steps=16), 16)
            begun = self.folder / f"runs/tied-late-{fragments}/checkpoints/step-00000008"
            rest = self.train(f"tied-rest-{fragments}", late | {"--resume": begun}, ranks=4, steps=16)
            self.assert_same(self.state(rest, 16), usual)

    def test_parts_of_the_parameters_on_other_axes(self):
        options = SGD | LOCAL | OUTER | {"--fragments": 2, "--precision": "fp64", "--micro-batches": 4, "--verify-every": 1}
        usual = self.state(self.train("cut-whole", options | {"--mesh": "data=2"}, ranks=2, steps=8), 8)
        for copy in ("copy-00000", "copy-00001"):
            self.assertIn(f"optimizer/copy.{copy}/output_fc.weight", usual)
        start = self.state(self.train("cut-start", options | {"--mesh": "data=2", "--learning-rate": 1e-30}, ranks=2, steps=1), 1)
        cut = self.state(self.train("cut-stages", options | {"--mesh": "data=2,pipe=2"}, ranks=4, steps=8), 8)
        self.assertEqual(usual.keys(), cut.keys())
        for name, value in usual.items():
            moved = np.linalg.norm(value - (0 if "momentum" in name else start[name]))
            self.assertGreater(moved, 0, name)
            # A stage cuts its own parameters: this tensor is exchanged half-way through the round or at its end. All others are in the same part.
            apart = 0.75 if name.endswith("hidden_fc.weight") else 0.15
            self.assertLess(np.linalg.norm(cut[name] - value), apart * moved, name)


class EasgdTest(StrategyTest):
    def test_a_run_in_two_parts_has_the_same_bits(self):
        whole = self.train("whole", SGD | {"--nesterov": ""} | EASGD, steps=32)
        begun = self.train("first", SGD | {"--nesterov": ""} | EASGD, steps=16)
        rest = self.train("rest", SGD | {"--nesterov": ""} | EASGD | {"--resume": begun / "checkpoints/step-00000016"}, steps=32)
        self.assert_same(self.state(whole, 32), self.state(rest, 32))

    def test_the_centre_is_evaluated_and_saved(self):
        folder = self.train("centre", SGD | EASGD | {"--micro-batches": 4}, steps=40, ranks=2)
        saved = self.state(folder, 40)
        centre = saved["model/output_fc.weight"]
        for copy in range(2):
            self.assertFalse(np.array_equal(centre, saved[f"optimizer/copy.copy-{copy:05}/output_fc.weight"]))
        said = run(BINARY, 1, "evaluate", folder / "checkpoints/step-00000040", "--split", "validation", cwd=self.folder).stdout
        shown = re.search(r"loss (\d\.(\d+))", said)
        with h5py.File(folder / "results.h5") as file:
            self.assertAlmostEqual(file["epochs"]["validation_loss"][0], float(shown[1]), delta=0.51 * 10.0 ** -len(shown[2]))

    def test_it_learns_on_a_mesh_with_stages(self):
        folder = self.train("stages", SGD | EASGD | {"--mesh": "data=2,pipe=2", "--micro-batches": 4, "--verify-every": 1}, ranks=4, steps=48)
        with h5py.File(folder / "results.h5") as file:
            rows = np.concatenate([rank["steps"][:] for rank in file["ranks"].values() if np.any(rank["steps"]["weight"] > 0)])
            self.assertLess(rows["loss"][rows["step"] > 40].mean(), 0.8 * rows["loss"][rows["step"] < 8].mean())


class RefusalTest(StrategyTest):
    def test_says_what_does_not_work_and_what_does(self):
        cases = [
            (LOCAL | {"--sync-period": 0}, ["--sync-period", "not a number of steps"]),
            (LOCAL | {"--sync-period": "often"}, ["--sync-period", "adaptive"]),
            (LOCAL | {"--sync-optimizer": "forget"}, ["--sync-optimizer", "keep, average, reset"]),
            (LOCAL | {"--local-after": -1}, ["--local-after", "0 or more"]),
            (LOCAL | {"--outer-optimizer": "adam"}, ["--outer-optimizer", "none, nesterov"]),
            (LOCAL | {"--outer-momentum": 0.5}, ["--outer-momentum", "--outer-optimizer nesterov"]),
            (LOCAL | OUTER | {"--outer-momentum": 1}, ["--outer-momentum", "outside [0, 1)"]),
            (LOCAL | OUTER | {"--outer-learning-rate": 0}, ["--outer-learning-rate", "positive"]),
            (LOCAL | {"--fragments": 0}, ["--fragments", "0 is not a number of parts"]),
            (LOCAL | {"--fragments": 5}, ["--fragments", "a round has 4 steps", "5 parts"]),
            (LOCAL | {"--overlap-steps": -1}, ["--overlap-steps", "-1 is not a number of steps"]),
            (LOCAL | {"--overlap-steps": 4}, ["--overlap-steps", "sent again after 4 steps", "--sync-period"]),
            (EASGD | {"--overlap-steps": 1}, ["--overlap-steps", "use --strategy local_sgd"]),
            (LOCAL | {"--exchange-type": "int4"}, ["--exchange-type", "full, bfloat16, int8"]),
            (EASGD | {"--fragments": 2}, ["--fragments", "use --strategy local_sgd"]),
            (LOCAL | {"--precision": "fp16"}, ["--strategy local_sgd", "fp16"]),
            (LOCAL | {"--reproducible": ""}, ["--strategy local_sgd", "depends on their number"]),
            (LOCAL | {"--replicate": 3}, ["--replicate", "differ within a round"]),
            (EASGD | {"--replicate": 3}, ["--replicate", "the copies differ"]),
            (LOCAL | {"--elasticity": 0.2}, ["--elasticity", "use --strategy easgd"]),
            (EASGD | {"--easgd-mode": "alone"}, ["--easgd-mode", "rounds, asynchronous"]),
            (EASGD | {"--servers": 1}, ["--servers", "no servers", "--easgd-mode asynchronous"]),
            (EASGD | {"--easgd-mode": "asynchronous", "--servers": 2}, ["--servers", "2 of 2 data ranks would serve"]),
            (EASGD | {"--easgd-mode": "asynchronous", "--sync-period": "adaptive"}, ["--strategy easgd", "needs rounds"]),
            (EASGD | {"--easgd-mode": "asynchronous", "--reproducible": ""}, ["--strategy easgd", "order in which they come"]),
            (EASGD | {"--elasticity": 0}, ["--elasticity", "outside (0, 1)"]),
            (EASGD | {"--elasticity": 1}, ["--elasticity", "outside (0, 1)"]),
            (EASGD | {"--elasticity": "nan"}, ["--elasticity", "outside (0, 1)"]),
            (EASGD | {"--elasticity": 0.6}, ["2 copies", "--strategy easgd"]),
            (EASGD | {"--reproducible": ""}, ["--strategy easgd", "number of copies"]),
            (EASGD | {"--spares": 1}, ["--spares 1", "--strategy easgd cannot", "newest checkpoint"]),
            (LOCAL | {"--spares": 1}, ["--spares 1", "--strategy local_sgd cannot", "newest checkpoint"]),
            (EASGD | {"--outer-optimizer": "nesterov"}, ["--outer-optimizer", "use --strategy local_sgd"]),
            ({"--sync-period": 8}, ["--sync-period", "ddp", "local_sgd or easgd"]),
            ({"--strategy": "ddp", "--outer-optimizer": "nesterov"}, ["--outer-optimizer", "local_sgd"]),
        ]
        for options, words in cases:
            with self.subTest(options=options):
                refused(BINARY, 2, 2, words, *words_of(RECIPE | options | {"--name": "refused"}), cwd=self.folder)


class LossTest(StrategyTest):
    def test_after_a_loss_the_others_go_on_from_the_newest_checkpoint(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        environment = {**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}
        late = LOCAL | {"--fragments": 2, "--overlap-steps": 3}
        for name, options in {"local": LOCAL, "late": late, "easgd": EASGD}.items():
            with self.subTest(name=name):
                options = RECIPE | SGD | options | {"--micro-batches": 3, "--checkpoint-every": "8steps", "--inject":
                                                    "kill:rank=1,phase=backward,step=22", "--name": f"lost-{name}", "--limit-steps": 32}
                done = subprocess.run([str(MPIRUN), "3", BINARY, *words_of(options)], cwd=self.folder, text=True, timeout=120, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                folder = self.folder / "runs" / f"lost-{name}"
                self.assertEqual((folder / "state").read_text(), "completed\n", done.stdout + done.stderr)
                manifest = json.loads((folder / "checkpoints/step-00000032/manifest.json").read_text())
                self.assertEqual(manifest["step"], 32)
                with h5py.File(folder / "results.h5") as file:
                    kinds = {row["kind"].decode(): row["detail"].decode() for row in file["ranks/00000/events"]}
                self.assertRegex(kinds["resumed"], "step-000000(08|16)")  # the newer one may still have been written
                self.assertIn("nothing", kinds["saved_after_loss"])


if __name__ == "__main__":
    drawn.main(share=1 / 3)
