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

import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, ranks_of, refused, run, step_losses

FULL = "--full" in sys.argv
BINARY = [argument for argument in sys.argv[1:] if argument != "--full"].pop()
STRICT = ["--threads", 1, "--micro-batches", 12, "--schedule", "constant", "--warmup-steps", 0, "--reproducible", "--quiet"]
MODELS = {  # a tied weight and dropout; convolutions with channels last and BatchNorm's buffers; odd sizes
    "gpt": ["--model", "gpt", "--global-batch", 26, "--model-option", "layers=2", "--model-option", "heads=2",
            "--model-option", "width=16", "--model-option", "dropout=0.1"],
    "resnet18": ["--model", "resnet18", "--global-batch", 30, "--model-option", "width=4", "--learning-rate", 0.05],
    "mlp": ["--model", "mlp", "--global-batch", 50, "--model-option", "hidden=37,5", "--optimizer", "adam"]}
MODELS["mlp-bf16"] = [*MODELS["mlp"], "--precision", "bf16"]
ZERO1 = ["--strategy", "zero1"]
ZERO2 = ["--strategy", "zero2"]
ZERO3 = ["--strategy", "zero3"]
WITHIN = ["--shard-within", "node"]


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

    def nodes(self, *counts):
        """Options of a machine with so many ranks on each node."""
        path = self.folder / f"nodes-{'-'.join(map(str, counts))}.toml"
        first = np.cumsum([0, *counts]).tolist()
        path.write_text("".join(f"[[node]]\nranks = {list(range(begin, end))}\n" for begin, end in zip(first[:-1], first[1:])))
        return ["--emulate", path]

    def over_the_link(self, folder, first):
        """Bytes that the first ranks have sent to the others."""
        with h5py.File(folder / "results.h5") as file:
            rows = [file[f"ranks/{rank:05}/traffic"][:] for rank in range(first)]
        return sum(int(of_rank["bytes_sent"][of_rank["peer"] >= first].sum()) for of_rank in rows)

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
                 "mlp": [("zero1", "data=2,pipe=2"), ("zero2", "data=4"), ("zero3", "data=4")],
                 "mlp-bf16": [("zero3", "data=2")]}
        if FULL:
            meshes = [f"data={ranks}" for ranks in (2, 3, 4)]
            all_stages = [(stage, mesh) for stage in ("zero1", "zero2", "zero3") for mesh in meshes]
            cases = {model: list(dict.fromkeys([*of_model, *all_stages])) for model, of_model in cases.items()}
            cases["mlp"].append(("zero3", "data=2,pipe=2"))
        for model, of_model in cases.items():
            expected = self.state(self.train(f"{model}-one", 1, *MODELS[model], *STRICT))
            for stage, mesh in of_model:
                with self.subTest(model=model, stage=stage, mesh=mesh):
                    ranks = ranks_of(mesh)
                    folder = self.train(f"{model}-{stage}-{mesh}", ranks, *MODELS[model], *STRICT, "--strategy", stage, "--mesh", mesh,
                                        *self.apart(ranks))
                    self.assert_same(self.state(folder), expected)

    def test_of_one_rank_there_is_nothing_to_share_out(self):
        """Alone, with a pipeline, in half precision, and going on from several ranks."""
        for name, options in {"adam": [*STRICT], "bf16": [*STRICT, "--precision", "bf16"], "pipe": [*STRICT, "--mesh", "pipe=2"]}.items():
            model, ranks = [*MODELS["mlp"], *options], 2 if name == "pipe" else 1
            expected = self.state(self.train(f"alone-ddp-{name}", ranks, *model))
            for stage in ("zero1", "zero2", "zero3"):
                with self.subTest(name=name, stage=stage):
                    self.assert_same(self.state(self.train(f"alone-{stage}-{name}", ranks, *model, "--strategy", stage)), expected)
        model = [*MODELS["mlp"], *STRICT, *ZERO3]
        expected = self.state(self.train("alone-longer", 1, *model, steps=6), 6)
        self.train("alone-later", 2, *model, *self.apart(2))
        self.assert_same(self.state(self.train("alone-later", 1, *model, steps=6), 6), expected)

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

    def test_a_stage_without_anything_to_train_has_no_state(self):
        frozen = [*MODELS["mlp"], "--freeze", "input_fc.*", "--mesh", "data=2,pipe=2", *STRICT[:-2], "--quiet"]
        expected = self.train("frozen-ddp", 4, *frozen, "--strategy", "ddp", *self.apart(4))
        for name, options in {"zero1": ZERO1, "zero2": ZERO2, "zero3": ZERO3, "coded": [*ZERO2, "--optimizer-state-bits", 8]}.items():
            folder = self.train(f"frozen-{name}", 4, *frozen, *options, *self.apart(4))
            with self.subTest(strategy=name):
                with h5py.File(folder / "results.h5") as file, h5py.File(expected / "results.h5") as as_ddp:
                    np.testing.assert_allclose(step_losses(file), step_losses(as_ddp), rtol=1e-2 if name == "coded" else 1e-5)
        self.assertEqual(self.state(self.folder / "runs/frozen-zero3").keys(), self.state(expected).keys())

    def test_slices_of_layers_are_shared_out_as_well(self):
        usual = [*MODELS["gpt"], "--threads", 1, "--micro-batches", 6, "--precision", "fp64", "--quiet", "--grad-clip", 0.5, "--bucket-mb", 0.001]
        expected, later = (self.state(self.train("slices-one", 1, *usual, steps=steps), steps) for steps in (4, 6))
        for stage in (ZERO1, ZERO2, ZERO3):
            with self.subTest(stage=stage[1]):
                folder = self.train(f"slices-{stage[1]}", 4, *usual, *stage, "--mesh", "data=2,tensor=2", *self.nodes(2, 2))
                self.assert_close(self.state(folder), expected)
        gone_on = self.train("slices-on", 2, *usual, *ZERO2, *self.apart(2), "--resume", folder / "checkpoints/step-00000004", steps=6)
        self.assert_close(self.state(gone_on, 6), later)
        if FULL:
            images = [*MODELS["resnet18"], "--threads", 1, "--micro-batches", 4, "--precision", "fp64", "--quiet"]
            expected = self.state(self.train("channels-one", 1, *images))
            for stage in (ZERO1, ZERO3):
                folder = self.train(f"channels-{stage[1]}", 4, *images, *stage, "--mesh", "data=2,tensor=2", *self.apart(4))
                found = self.state(folder)
                for tensor in expected:
                    np.testing.assert_allclose(found[tensor], expected[tensor], rtol=0, atol=1e-9, err_msg=tensor)

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
        given = ["--strategy", "ddp", "--recompute", "none", "--micro-batches", 4]
        refused(BINARY, 4, 2, [f"take {16 * parameters // 1_000_000}"], *large, *given, "--name", "large-ddp", cwd=self.folder)
        folder = self.train("large", 4, *large, steps=3)  # LibTorch's memory is held to the limit
        self.assertEqual(sum(value.size for value in checkpoint_tensors(folder / "checkpoints/step-00000003").values()), parameters)
        self.assertTrue(self.events(folder, "memory_limit")[0].startswith("--strategy zero1 --recompute none --micro-batches 4 fits"))

    def events(self, folder, kind, rank=0):
        with h5py.File(folder / "results.h5") as file:
            return [event["detail"].decode() for event in file[f"ranks/{rank:05}/events"][:] if event["kind"].decode() == kind]

    def test_the_estimate_is_what_a_run_takes(self):
        images = ["--model", "resnet18", "--model-option", "width=16", "--global-batch", 32]
        text = ["--model", "gpt", "--model-option", "layers=4", "--model-option", "heads=4", "--model-option", "width=128", "--global-batch", 8]
        wide = ["--model", "mlp", "--model-option", "hidden=512,512,512,512", "--global-batch", 64, "--optimizer", "adam"]
        cases = {"images": [*images], "images-bf16": [*images, "--precision", "bf16"], "text": text, "text-bf16": [*text, "--precision", "bf16"],
                 "text-zero3": [*text, *ZERO3], "wide-zero2": [*wide, *ZERO2], "wide": wide, "repeated": [*text, "--recompute", "full"]}
        for name, options in cases.items() if FULL else [(name, cases[name]) for name in ("text-zero3", "text-bf16")]:
            with self.subTest(name=name):
                folder = self.train(f"estimated-{name}", 2, *options, "--threads", 1, "--quiet", *self.apart(2), steps=3)
                for rank in 0, 1:
                    words = self.events(folder, "tensor_memory", rank)[0]
                    taken, estimated = int(words.split("at most ")[1].split()[0]), int(words.split("estimated ")[1])
                    self.assertAlmostEqual(estimated / taken, 1, delta=0.05, msg=words)

    def test_a_limit_chooses_what_fits_and_holds_it(self):
        text = ["--model", "gpt", "--model-option", "layers=4", "--model-option", "heads=4", "--model-option", "width=128", "--global-batch", 8,
                "--threads", 1, *self.apart(2)]
        said = run(BINARY, 2, *text, "--memory-limit", "1GiB", "--dry-run", cwd=self.folder, limit_s=60)
        self.assertIn("memory: --strategy ddp --recompute none --micro-batches 2 fits", said.stdout)
        whole = float(said.stdout.split("memory of a rank, estimated: ")[1].split()[0])
        for share in (0.8, 0.7) if FULL else (0.7,):
            with self.subTest(share=share):
                folder = self.train(f"limited-{share}", 2, *text, "--memory-limit", f"{share * whole:.0f}MiB", steps=3)
                self.assertNotIn("--strategy ddp --recompute none --micro-batches 2 ", self.events(folder, "memory_limit")[0])

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
                if stage == "zero3":  # layer by layer from the beginning: no rank has had all parameters
                    start = self.events(folder, "start_memory")[0]
                    self.assertLess(int(start.split("at most ")[1].split()[0]) / parameters, 1.05 * promised)
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

    def test_a_node_sends_and_receives_everything_once(self):
        steps, model = 6, ["--model", "mlp", "--model-option", "hidden=256", "--global-batch", 16, "--threads", 1, "--quiet", *self.nodes(2, 2)]
        parameters = 784 * 256 + 256 + 256 * 10 + 10
        for name, options in {"zero1": ZERO1, "zero2": ZERO2}.items():
            with self.subTest(name=name):
                folder = self.train(f"once-{name}", 4, *model, *options, steps=steps)
                # Half of the gradients' sums go to the other node, and half of the parameters.
                self.assertAlmostEqual(self.over_the_link(folder, 2) / (4 * parameters * steps), 1, delta=0.01)
        for stage in (ZERO1, ZERO2, ZERO3):  # shards of all gradients, and no parameters
            with self.subTest(within=stage[1]):
                folder = self.train(f"within-{stage[1]}", 4, *model, *stage, *WITHIN, steps=steps)
                self.assertAlmostEqual(self.over_the_link(folder, 2) / (4 * parameters * steps), 1, delta=0.01)

    def test_within_nodes_sums_of_shards_are_compressed(self):
        steps, model = 6, ["--model", "mlp", "--model-option", "hidden=256", "--global-batch", 16, "--threads", 1, "--quiet", *self.nodes(2, 2)]
        parameters = 784 * 256 + 256 + 256 * 10 + 10
        plain = self.losses(self.train("all-bits", 4, *model, *ZERO2, *WITHIN, steps=steps))
        for stage, form, bytes_of_value in [(ZERO2, "int8", 1 + 1 / 64), (ZERO3, "bf16", 2)]:
            with self.subTest(stage=stage[1], form=form):
                folder = self.train(f"in-{form}", 4, *model, *stage, *WITHIN, "--compression", form, "--verify-every", 2, steps=steps)
                self.assertAlmostEqual(self.over_the_link(folder, 2) / (bytes_of_value * parameters * steps), 1, delta=0.03)
                np.testing.assert_allclose(self.losses(folder), plain, rtol=0.02)

    def losses(self, folder):
        with h5py.File(folder / "results.h5") as file:
            return step_losses(file)

    def test_within_nodes_it_has_the_bits_of_one_rank(self):
        cases = [("mlp", ZERO1, (2, 2), "data=4"), ("gpt", ZERO3, (2, 2), "data=4")]
        if FULL:
            cases += [("mlp", ZERO2, (3, 3), "data=6"), ("gpt", ZERO2, (4, 4), "data=4,pipe=2"), ("resnet18", ZERO3, (2, 2), "data=4"),
                      ("mlp", ZERO3, (2, 2, 2), "data=6")]
        for model, stage, nodes, mesh in cases:
            with self.subTest(model=model, stage=stage[1], mesh=mesh):
                expected = self.train(f"whole-{model}", 1, *MODELS[model], *STRICT, "--overwrite")
                folder = self.train(f"within-{model}-{stage[1]}-{len(nodes)}", sum(nodes), *MODELS[model], *STRICT, *stage, *WITHIN, "--mesh", mesh,
                                    *self.nodes(*nodes))
                self.assert_same(self.state(folder), self.state(expected))

    def test_within_nodes_it_agrees_with_ddp_and_goes_on_from_any(self):
        usual = [*MODELS["mlp"], "--threads", 1, "--micro-batches", 6, "--precision", "fp64", "--quiet", "--grad-clip", 0.05, "--bucket-mb", 0.01]
        expected = self.state(self.train("clipped-ddp", 4, *usual))  # of 6 micro-batches two ranks have 2
        for stage in (ZERO1, ZERO2, ZERO3):
            with self.subTest(stage=stage[1]):
                folder = self.train(f"clipped-within-{stage[1]}", 4, *usual, *stage, *WITHIN, *self.nodes(2, 2), "--verify-every", 2)
                self.assert_close(self.state(folder), expected)
        whole = self.state(self.train("clipped-whole", 1, *usual, steps=6), 6)
        gone_on = self.train("clipped-on", 3, *usual, *ZERO3, *self.apart(3), "--resume", folder / "checkpoints/step-00000004", steps=6)
        self.assert_close(self.state(gone_on, 6), whole)
        back = self.train("clipped-back", 4, *usual, *ZERO2, *WITHIN, *self.nodes(2, 2), "--resume", gone_on / "checkpoints/step-00000006", steps=8)
        self.assert_close(self.state(back, 8), self.state(self.train("clipped-whole", 1, *usual, steps=8), 8))

    def test_where_nothing_can_be_shared_out_within_nodes_that_is_said(self):
        model = [*MODELS["gpt"], "--name", "refused-within", *ZERO2, *WITHIN]
        refused(BINARY, 2, 2, ["--shard-within node", "each node has one rank"], *model, *self.apart(2), cwd=self.folder)
        refused(BINARY, 3, 2, ["--shard-within node", "as many ranks"], *model, *self.nodes(2, 1), cwd=self.folder)
        refused(BINARY, 1, 2, ["--shard-within node", "one rank"], *model, cwd=self.folder)
        refused(BINARY, 2, 2, ["--shard-within", "rack", "all, node"], *model[:-1], "rack", cwd=self.folder)
        named = [*MODELS["gpt"], "--name", "refused-within", *self.nodes(2, 2)]
        refused(BINARY, 4, 2, ["--shard-within node", "--compression"], *named, *ZERO1, *WITHIN, "--compression", "int8", cwd=self.folder)
        refused(BINARY, 4, 2, ["--compression int8", "--shard-within node"], *named, *ZERO2, "--compression", "int8", cwd=self.folder)
        refused(BINARY, 4, 2, ["--compression topk=0.1", "int8"], *named, *ZERO3, *WITHIN, "--compression", "topk=0.1", cwd=self.folder)
        refused(BINARY, 2, 2, ["--shard-within", "means nothing to the strategy ddp"], *MODELS["gpt"], "--name", "refused-within", *WITHIN, cwd=self.folder)

    def test_what_it_cannot_do_is_said(self):
        model = [*MODELS["gpt"], "--name", "refused"]
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
        alone = [(stage, 3, []) for stage in ((ZERO1, ZERO2, ZERO3) if FULL else (ZERO3,))]
        for stage, ranks, more in [*alone, (ZERO1, 2, []), (ZERO2, 4, [*WITHIN, *self.nodes(2, 2)])]:
            with self.subTest(stage=stage, more=more):
                name = f"lost-{stage[1]}-{ranks}"
                options = [*model, *stage, *more, "--checkpoint-every", "3steps", "--epochs", "2", "--inject", "kill:rank=1,phase=optimizer,step=8",
                           "--name", name, "--limit-steps", "10"]
                done = subprocess.run([str(MPIRUN), str(ranks), BINARY, *map(str, options)], cwd=self.folder, text=True, timeout=120,
                                      env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
                folder = self.folder / "runs" / name
                self.assertEqual((folder / "state").read_text(), "completed\n", done.stdout + done.stderr)
                self.assert_same(self.state(folder, 10), expected)


if __name__ == "__main__":
    drawn.main(argv=sys.argv[:1], share=1 / 3)
