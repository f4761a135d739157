"""Copies that share out the optimizer's state: zero1 has ddp's bits on any ranks, saves what any other run loads, goes on after a
loss, and needs the memory that it promises.

    sharded.py BINARY
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

from dtrain_run import MPIRUN, checkpoint_tensors, refused, run

BINARY = sys.argv.pop()
STRICT = ["--threads", 1, "--micro-batches", 12, "--schedule", "constant", "--warmup-steps", 0, "--reproducible", "--quiet"]
MODELS = {  # a tied weight and dropout; convolutions with channels last and BatchNorm's buffers; odd sizes
    "gpt": ["--model", "gpt", "--global-batch", 26, "--model-option", "layers=2", "--model-option", "heads=2",
            "--model-option", "width=16", "--model-option", "dropout=0.1"],
    "resnet18": ["--model", "resnet18", "--global-batch", 30, "--model-option", "width=4", "--learning-rate", 0.05],
    "mlp": ["--model", "mlp", "--global-batch", 50, "--model-option", "hidden=37,5", "--optimizer", "adam"]}
ZERO1 = ["--strategy", "zero1"]


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
        meshes = {"gpt": ["data=3", "data=2,pipe=2"], "resnet18": ["data=2"], "mlp": ["data=4", "data=2,pipe=2"]}
        for model, of_model in meshes.items():
            expected = self.state(self.train(f"{model}-one", 1, *MODELS[model], *STRICT))
            for mesh in of_model:
                with self.subTest(model=model, mesh=mesh):
                    ranks = int(np.prod([int(part.split("=")[1]) for part in mesh.split(",")]))
                    folder = self.train(f"{model}-{mesh}", ranks, *MODELS[model], *STRICT, *ZERO1, "--mesh", mesh, *self.apart(ranks))
                    self.assert_same(self.state(folder), expected)

    def test_without_reproducible_it_agrees_with_ddp_to_rounding(self):
        usual = [*MODELS["mlp"], "--threads", 1, "--micro-batches", 4, "--precision", "fp64", "--quiet", "--grad-clip", 0.05]
        expected = self.state(self.train("usual-ddp", 3, *usual))
        for name, options in {"apart": self.apart(3), "together": []}.items():
            with self.subTest(name=name):
                found = self.state(self.train(f"usual-{name}", 3, *usual, *ZERO1, *options))
                for tensor in expected:
                    np.testing.assert_allclose(found[tensor], expected[tensor], rtol=0, atol=1e-12, err_msg=tensor)

    def test_any_strategy_loads_what_it_has_saved(self):
        model = [*MODELS["mlp"], *STRICT]
        expected = self.state(self.train("whole", 1, *model, steps=8), 8)
        saved = self.train("saved", 3, *model, *ZERO1, *self.apart(3))
        manifest = json.loads((saved / "checkpoints/step-00000004/manifest.json").read_text())
        moments = [tensor for tensor in manifest["tensors"] if tensor["name"] == "optimizer/exp_avg/input_fc.weight"]
        self.assertGreater(sum(len(tensor["slices"]) for tensor in moments), 1, "the state is not in shards")
        for name, ranks, options in [("ddp", 1, []), ("zero1", 2, [*ZERO1, *self.apart(2)])]:
            with self.subTest(name=name):
                gone_on = self.train(f"on-{name}", ranks, *model, *options, "--resume", saved / "checkpoints/step-00000004", steps=8)
                self.assert_same(self.state(gone_on, 8), expected)
        from_ddp = self.train("ddp-saved", 2, *model)
        gone_on = self.train("zero1-on", 3, *model, *ZERO1, *self.apart(3), "--resume", from_ddp / "checkpoints/step-00000004", steps=8)
        self.assert_same(self.state(gone_on, 8), expected)

    def test_the_state_takes_its_share_of_memory(self):
        # Adam in fp32 on 4 ranks: 16 bytes of each parameter with ddp, 10 with zero1; 3 more for the copy that is being saved.
        parameters = 6_062_090
        large = ["--model", "mlp", "--model-option", "hidden=1024,1024,1024,1024,1024,1024", "--global-batch", 16, "--threads", 1, "--quiet",
                 "--optimizer", "adam", "--bucket-mb", 1, "--memory-limit", f"{14 * parameters / 2**20:.0f}MiB", *self.apart(4)]
        refused(BINARY, 4, 2, [f"take {16 * parameters // 1_000_000}"], *large, "--name", "large-ddp", cwd=self.folder)
        folder = self.train("large-zero1", 4, *large, *ZERO1, steps=3)  # LibTorch's memory is held to the limit
        self.assertEqual(sum(value.size for value in checkpoint_tensors(folder / "checkpoints/step-00000003").values()), parameters)

    def test_as_many_bytes_travel_as_with_ddp(self):
        ranks, steps, model = 4, 6, ["--model", "mlp", "--model-option", "hidden=256", "--global-batch", 16, "--threads", 1, "--quiet"]
        parameters = 784 * 256 + 256 + 256 * 10 + 10
        for name, options in {"ddp": ["--all-reduce", "ring"], "zero1": ZERO1}.items():
            with self.subTest(name=name):
                folder = self.train(f"bytes-{name}", ranks, *model, *options, *self.apart(ranks), steps=steps)
                with h5py.File(folder / "results.h5") as file:
                    sent = [int(file[f"ranks/{rank:05}/traffic"]["bytes_sent"].sum()) for rank in range(ranks)]
                expected = 2 * (ranks - 1) / ranks * 4 * parameters * steps
                for of_rank in sent:  # and the message at the end of each step
                    self.assertAlmostEqual(of_rank / expected, 1, delta=0.01)

    def test_what_it_cannot_do_is_said(self):
        model = [*MODELS["gpt"], "--name", "refused"]
        refused(BINARY, 2, 2, ["--strategy zero1", "slice"], *model, *ZERO1, "--mesh", "tensor=2", cwd=self.folder)
        refused(BINARY, 2, 2, ["--replicate", "copies of the model"], *model, *ZERO1, "--replicate", "5", cwd=self.folder)
        refused(BINARY, 2, 2, ["zero9", "zero1", "ddp"], *model, "--strategy", "zero9", cwd=self.folder)


class LossTest(ShardedRuns):
    def test_after_a_loss_the_others_go_on_from_the_newest_checkpoint(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        model = [*MODELS["mlp"], *STRICT]
        expected = self.train("undisturbed", 1, *model, steps=10)
        options = [*model, *ZERO1, "--checkpoint-every", "3steps", "--epochs", "2", "--inject", "kill:rank=1,phase=optimizer,step=8",
                   "--name", "lost", "--limit-steps", "10"]
        done = subprocess.run([str(MPIRUN), "3", BINARY, *map(str, options)], cwd=self.folder, text=True, timeout=120,
                              env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        folder = self.folder / "runs/lost"
        self.assertEqual((folder / "state").read_text(), "completed\n", done.stdout + done.stderr)
        self.assert_same(self.state(folder, 10), self.state(expected, 10))


if __name__ == "__main__":
    unittest.main()
