"""Copies that share out the optimizer's state (zero1), the gradients (zero2) and the parameters (zero3): they have ddp's bits on any
ranks, save what any other run loads, go on after a loss, and need the memory that they promise.

    sharded.py BINARY [--full]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import MPIRUN, checkpoint_tensors, ranks_of, refused, run

FULL = "--full" in sys.argv
BINARY = [argument for argument in sys.argv[1:] if argument != "--full"].pop()
STRICT = ["--threads", 1, "--micro-batches", 12, "--schedule", "constant", "--warmup-steps", 0, "--reproducible", "--quiet"]
MODELS = {  # a tied weight and dropout; convolutions with channels last and BatchNorm's buffers; odd sizes
    "gpt": ["--model", "gpt", "--global-batch", 26, "--model-option", "layers=2", "--model-option", "heads=2",
            "--model-option", "width=16", "--model-option", "dropout=0.1"],
    "resnet18": ["--model", "resnet18", "--global-batch", 30, "--model-option", "width=4", "--learning-rate", 0.05],
    "mlp": ["--model", "mlp", "--global-batch", 50, "--model-option", "hidden=37,5", "--optimizer", "adam"]}
ZERO1 = ["--strategy", "zero1"]
ZERO2 = ["--strategy", "zero2"]
ZERO3 = ["--strategy", "zero3"]


class ShardedRuns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def apart(self, ranks, more=""):
        """Options of a machine on which each rank has a node of its own, so that no two share memory."""
        path = self.folder / f"apart-{ranks}{'-clock' if more else ''}.toml"
        path.write_text(more + "".join(f"[[node]]\nranks = [{rank}]\n" for rank in range(ranks)))
        return ["--emulate", path]

    def train(self, name, ranks, *options, steps=4):
        run(BINARY, ranks, *options, "--epochs", 2, "--name", name, "--limit-steps", steps, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def state(self, folder, step=4):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        self.assertEqual([], [name for name in one if not np.array_equal(one[name], other[name])])


class ShardedTest(ShardedRuns):
    def test_it_has_the_bits_of_one_rank(self):
        cases = {"gpt": [("zero1", "data=2,pipe=2"), ("zero2", "data=2,pipe=2"), ("zero3", "data=2,pipe=2")],
                 "resnet18": [("zero1", "data=2"), ("zero3", "data=2")],
                 "mlp": [("zero1", "data=2,pipe=2"), ("zero2", "data=4"), ("zero3", "data=4")]}
        if FULL:
            meshes = [f"data={ranks}" for ranks in (2, 3, 4)]
            cases = {model: [*of_model, *[(stage, mesh) for stage in ("zero1", "zero2", "zero3") for mesh in meshes]]
                     for model, of_model in cases.items()}
            cases["mlp"].append(("zero3", "data=2,pipe=2"))
        for model, of_model in cases.items():
            expected = self.state(self.train(f"{model}-one", 1, *MODELS[model], *STRICT))
            for stage, mesh in of_model:
                with self.subTest(model=model, stage=stage, mesh=mesh):
                    ranks = ranks_of(mesh)
                    folder = self.train(f"{model}-{stage}-{mesh}", ranks, *MODELS[model], *STRICT, "--strategy", stage, "--mesh", mesh,
                                        *self.apart(ranks))
                    self.assert_same(self.state(folder), expected)

    def assert_close(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for tensor in expected:
            np.testing.assert_allclose(found[tensor], expected[tensor], rtol=0, atol=1e-12, err_msg=tensor)

    def test_without_reproducible_it_agrees_with_ddp_to_rounding(self):
        usual = [*MODELS["mlp"], "--threads", 1, "--micro-batches", 4, "--precision", "fp64", "--quiet", "--grad-clip", 0.05]
        expected = self.state(self.train("usual-ddp", 3, *usual))
        for stage in (ZERO1, ZERO2, ZERO3):  # of 4 micro-batches a rank has 2, the others one
            for name, options in {"apart": self.apart(3), **({"together": []} if FULL or stage is ZERO2 else {})}.items():
                with self.subTest(stage=stage, name=name):
                    self.assert_close(self.state(self.train(f"usual-{stage[1]}-{name}", 3, *usual, *stage, *options)), expected)

    def test_gradients_of_stages_and_tied_weights_come_to_their_shards(self):
        usual = [*MODELS["gpt"], "--threads", 1, "--micro-batches", 7, "--precision", "fp64", "--quiet", "--optimizer", "sgd",
                 "--schedule", "constant", "--warmup-steps", 0, "--bucket-mb", 0.001]
        expected = self.state(self.train("stages-one", 1, *usual))
        split = "data=2,pipe=2"  # one copy has 3 of 7 micro-batches, the other one 4
        for name, mesh, options in [("1f1b", split, ZERO2), ("interleaved", split, [*ZERO2, "--pipeline", "interleaved"]),
                                    ("1f1b-layers", split, ZERO3), ("interleaved-layers", split, [*ZERO3, "--pipeline", "interleaved"]),
                                    ("repeated", "data=4", [*ZERO3, "--recompute", "full"]),
                                    *([("layers", "data=3", ZERO3), ("gpipe", split, [*ZERO3, "--pipeline", "gpipe"])] if FULL else [])]:
            with self.subTest(name=name):
                ranks = ranks_of(mesh)
                folder = self.train(f"stages-{name}", ranks, *usual, "--mesh", mesh, *options, *self.apart(ranks))
                self.assert_close(self.state(folder), expected)

    def test_any_strategy_loads_what_it_has_saved(self):
        model = [*MODELS["mlp"], *STRICT]
        expected = self.state(self.train("whole", 1, *model, steps=8), 8)
        saved = self.train("saved", 3, *model, *ZERO3, *self.apart(3))
        manifest = json.loads((saved / "checkpoints/step-00000004/manifest.json").read_text())
        for name in ("optimizer/exp_avg/input_fc.weight", "model/input_fc.weight"):
            slices = [tensor["slices"] for tensor in manifest["tensors"] if tensor["name"] == name]
            self.assertGreater(len(slices[0]), 1, f"{name} is not in shards")
        for name, ranks, options in [("ddp", 1, []), ("zero1", 2, [*ZERO1, *self.apart(2)]), ("zero2", 4, [*ZERO2, *self.apart(4)]),
                                     ("zero3", 2, [*ZERO3, *self.apart(2)])]:
            with self.subTest(name=name):
                gone_on = self.train(f"on-{name}", ranks, *model, *options, "--resume", saved / "checkpoints/step-00000004", steps=8)
                self.assert_same(self.state(gone_on, 8), expected)
        from_ddp = self.train("ddp-saved", 2, *model)
        for stage in (ZERO1, ZERO2, ZERO3):
            gone_on = self.train(f"{stage[1]}-on", 3, *model, *stage, *self.apart(3), "--resume", from_ddp / "checkpoints/step-00000004",
                                 steps=8)
            self.assert_same(self.state(gone_on, 8), expected)

    def test_the_state_takes_its_share_of_memory(self):
        # Adam in fp32 on 4 ranks: 16 bytes of each parameter with ddp, 10 with zero1; 3 more for the copy that is being saved.
        parameters = 6_062_090
        large = ["--model", "mlp", "--model-option", "hidden=1024,1024,1024,1024,1024,1024", "--global-batch", 16, "--threads", 1, "--quiet",
                 "--optimizer", "adam", "--bucket-mb", 1, "--memory-limit", f"{14 * parameters / 2**20:.0f}MiB", *self.apart(4)]
        refused(BINARY, 4, 2, [f"take {16 * parameters // 1_000_000}"], *large, "--name", "large-ddp", cwd=self.folder)
        folder = self.train("large-zero1", 4, *large, *ZERO1, steps=3)  # LibTorch's memory is held to the limit
        self.assertEqual(sum(value.size for value in checkpoint_tensors(folder / "checkpoints/step-00000003").values()), parameters)

    def test_each_stage_takes_the_bytes_of_a_parameter_that_it_promises(self):
        widths = [784, 64, *[256] * 160, 10]  # no tensor is a large part of all
        parameters = sum(inputs * outputs + outputs for inputs, outputs in zip(widths, widths[1:]))
        model = ["--model", "mlp", "--model-option", "hidden=" + ",".join(map(str, widths[1:-1])), "--global-batch", 4, "--threads", 1,
                 "--quiet", "--optimizer", "adam", "--bucket-mb", 0.25, "--eval-batch", 256, *self.apart(4)]
        for stage, promised in {"ddp": 16, "zero1": 10, "zero2": 7, "zero3": 4}.items():
            with self.subTest(stage=stage):
                limit = ["--memory-limit", f"{7.6 * parameters / 2**20:.0f}MiB"] if stage == "zero3" else []  # 3 to save, too
                folder = self.train(f"bytes-of-{stage}", 4, *model, "--strategy", stage, *limit, steps=2)
                with h5py.File(folder / "results.h5") as file:
                    told = [event["detail"].decode() for rank in file["ranks"].values() for event in rank["events"][:]
                            if event["kind"] == b"tensor_memory"]
                self.assertEqual(len(told), 4)
                for words in told:
                    self.assertAlmostEqual(int(words.split("at most ")[1].split()[0]) / parameters / promised, 1, delta=0.05, msg=words)

    def test_as_many_bytes_travel_as_with_ddp(self):
        ranks, steps, model = 4, 6, ["--model", "mlp", "--model-option", "hidden=256", "--global-batch", 16, "--threads", 1, "--quiet"]
        parameters = 784 * 256 + 256 + 256 * 10 + 10
        for name, options in {"ddp": ["--all-reduce", "ring"], "zero1": ZERO1, "zero2": ZERO2}.items():
            with self.subTest(name=name):
                folder = self.train(f"bytes-{name}", ranks, *model, *options, *self.apart(ranks), steps=steps)
                with h5py.File(folder / "results.h5") as file:
                    sent = [int(file[f"ranks/{rank:05}/traffic"]["bytes_sent"].sum()) for rank in range(ranks)]
                expected = 2 * (ranks - 1) / ranks * 4 * parameters * steps
                for of_rank in sent:  # and the message at the end of each step
                    self.assertAlmostEqual(of_rank / expected, 1, delta=0.01)

    def test_what_it_cannot_do_is_said(self):
        model = [*MODELS["gpt"], "--name", "refused"]
        for stage in (ZERO1, ZERO2, ZERO3):
            refused(BINARY, 2, 2, [f"--strategy {stage[1]}", "slice"], *model, *stage, "--mesh", "tensor=2", cwd=self.folder)
        refused(BINARY, 2, 2, ["--adaptive-batch", "zero2", "gradient of its copy"], *model, *ZERO2, "--adaptive-batch", cwd=self.folder)
        refused(BINARY, 2, 2, ["--replicate", "copies of the model"], *model, *ZERO1, "--replicate", "5", cwd=self.folder)
        refused(BINARY, 2, 2, ["zero9", "zero1", "ddp"], *model, "--strategy", "zero9", cwd=self.folder)


class LossTest(ShardedRuns):
    def test_after_a_loss_the_others_go_on_from_the_newest_checkpoint(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        model = [*MODELS["mlp"], *STRICT]
        expected = self.state(self.train("undisturbed", 1, *model, steps=10), 10)
        for stage in (ZERO1, ZERO2, ZERO3) if FULL else (ZERO3,):
            with self.subTest(stage=stage):
                name = f"lost-{stage[1]}"
                options = [*model, *stage, "--checkpoint-every", "3steps", "--epochs", "2", "--inject", "kill:rank=1,phase=optimizer,step=8",
                           "--name", name, "--limit-steps", "10"]
                done = subprocess.run([str(MPIRUN), "3", BINARY, *map(str, options)], cwd=self.folder, text=True, timeout=120,
                                      env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                folder = self.folder / "runs" / name
                self.assertEqual((folder / "state").read_text(), "completed\n", done.stdout + done.stderr)
                self.assert_same(self.state(folder, 10), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
