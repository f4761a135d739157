"""Gradients compressed between two emulated nodes: the bytes of the formula, the same bits again, and losses near the ones of all bits.

    compression.py BINARY [--full]     without --full a sample of each
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from functools import partial
from pathlib import Path

import h5py
import numpy as np

import drawn
from dtrain_run import MPIRUN, checkpoint_tensors, refused, run, step_losses

FULL = "--full" in sys.argv
if FULL:
    sys.argv.remove("--full")
BINARY = sys.argv.pop()
HIDDEN = 256
MODEL = ["--model", "mlp", "--model-option", f"hidden={HIDDEN}", "--global-batch", 32, "--threads", 1, "--quiet", "--schedule", "constant"]
MATRICES = [(HIDDEN, 784), (10, HIDDEN)]
BIASES = HIDDEN + 10
VALUES = sum(rows * columns for rows, columns in MATRICES) + HIDDEN + 64  # of the flat gradient: each parameter begins at a multiple of 64
BLOCKS = (VALUES + 255) // 256
BYTES = {"none": 4 * VALUES, "int8": VALUES + 4 * BLOCKS, "fp16": 2 * VALUES + 4 * BLOCKS, "bf16": 2 * VALUES,
         "powersgd=2": 4 * (2 * sum(map(sum, MATRICES)) + BIASES), "topk=0.01": 8 * round(0.01 * VALUES)}
STEPS = 6
# A training whose loss falls to less than half, and how far the losses may be apart from those of all bits, as a share of that fall. 1 is a
# run that learns nothing. A low rank and the largest values take more steps for the same.
LEARNS = ["--optimizer", "sgd", "--momentum", 0, "--learning-rate", 0.1]
LEARNING_STEPS = 20
APART = {"none": 0.001, "int8": 0.01, "fp16": 0.01, "bf16": 0.01, "powersgd=2": 0.35, "topk=0.01": 0.65}


class CompressionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def nodes(self, ranks, link):
        """Options of a machine with so many ranks on each node."""
        path = self.folder / f"nodes-{'-'.join(map(str, ranks))}{'-slow' if link else ''}.toml"
        first = np.cumsum([0, *ranks])
        path.write_text("".join(f"[[node]]\nranks = {list(range(begin, end))}\n" for begin, end in zip(first[:-1].tolist(), first[1:].tolist())) + link)
        return ["--emulate", path]

    def train(self, name, ranks, *options, steps=STEPS, link=""):
        run(BINARY, sum(ranks), *MODEL, *self.nodes(ranks, link), "--name", name, "--limit-steps", steps, *options, cwd=self.folder, limit_s=100)
        return self.folder / "runs" / name

    def over_the_link(self, folder, ranks):
        """Bytes that the ranks of the first node have sent to those of the second."""
        first = ranks[0]
        with h5py.File(folder / "results.h5") as file:
            rows = [file[f"ranks/{rank:05}/traffic"][:] for rank in range(first)]
        return sum(int(of_rank["bytes_sent"][of_rank["peer"] >= first].sum()) for of_rank in rows)

    def losses(self, folder):
        with h5py.File(folder / "results.h5") as file:
            return step_losses(file)

    def assert_near(self, losses, plain, apart):
        fall = plain[0] - plain[-3:].min()
        self.assertGreater(fall, 0.4 * plain[0])
        self.assertLess(np.abs(losses - plain).max(), apart * fall)

    def assert_same(self, one, other, step):
        first, second = (checkpoint_tensors(folder / f"checkpoints/step-{step:08}", group=None) for folder in (one, other))
        self.assertEqual(first.keys(), second.keys())
        self.assertEqual([], [name for name in first if not np.array_equal(first[name], second[name])])

    def events(self, folder, kind):
        with h5py.File(folder / "results.h5") as file:
            rows = file["ranks/00000/events"][:]
        return [row["detail"].decode() for row in rows if row["kind"].decode() == kind]

    def test_the_link_carries_the_bytes_of_the_formula_and_the_losses_are_near(self):
        for ranks in ([1, 1], [2, 2], [1, 2]) if FULL else ([1, 1],):
            others = 0
            for name, expected in BYTES.items() if FULL or ranks == [1, 1] else ():
                with self.subTest(ranks=ranks, compression=name):
                    folder = self.train(f"{name}-{'-'.join(map(str, ranks))}", ranks, *LEARNS, "--compression", name, "--verify-every", 2, steps=LEARNING_STEPS)
                    sent = self.over_the_link(folder, ranks) / LEARNING_STEPS
                    losses = self.losses(folder)
                    if name == "none":  # the other messages are the end of each step
                        others, plain = sent - expected, losses
                        self.assertLess(others, 0.01 * expected)
                    self.assertAlmostEqual((sent - others) / expected, 1, delta=0.002)
                    self.assert_near(losses, plain, APART[name])

    def test_the_same_run_has_the_same_bits_and_goes_on_with_them(self):
        for name in ("int8", "powersgd=2", "topk=0.05") if FULL else ("powersgd=2",):
            with self.subTest(compression=name):
                options = ["--compression", name, "--checkpoint-every", "4steps"]
                one, again = (self.train(f"again-{name}-{part}", [1, 2], *options, steps=8) for part in "ab")
                self.assert_same(one, again, 8)
                middle = one / "checkpoints/step-00000004"
                gone_on = self.train(f"gone-on-{name}", [1, 2], *options, "--resume", middle, steps=8)
                self.assert_same(one, gone_on, 8)
                self.assertEqual([], self.events(gone_on, "starts_anew"))
                if not FULL:
                    continue
                self.train(f"plain-{name}", [1, 2], "--resume", middle, steps=8)
                self.train(f"three-{name}", [1, 1, 1], *options, "--resume", middle, steps=8)

    def test_a_short_last_step_of_an_epoch_learns_as_the_others_do(self):
        last, first = {}, {}
        for samples in (320, 321):  # the last step has 64 samples, or one
            run(BINARY, 1, "stage", f"short-{samples}", "--format", "synthetic", "--samples", samples, cwd=self.folder)
            for name in ("powersgd=2", "none"):
                options = ["--dataset", f"short-{samples}", "--compression", name, "--optimizer", "sgd", "--momentum", 0, "--learning-rate", 0.05, "--global-batch", 64]
                folder = self.train(f"short-{samples}-{name}", [1, 1], *options, "--epochs", 4, steps=1000)
                with h5py.File(folder / "results.h5") as file:
                    last[samples, name], first[name] = file["epochs"]["validation_loss"][-1], step_losses(file)[0]
        for name, loss in first.items():
            fall = loss - last[320, name]
            self.assertGreater(fall, 0.15 * loss, name)
            self.assertLess(abs(last[321, name] - last[320, name]), 0.35 * fall, name)  # six steps in an epoch in place of five

    def test_the_first_steps_may_travel_in_all_bits(self):
        options = ["--compression", "powersgd=2", "--compression-after", 3, "--checkpoint-every", "2steps", "--keep", 9]
        later = self.train("later", [1, 1], *options)
        plain = self.train("plain-first", [1, 1], steps=4)
        np.testing.assert_array_equal(self.losses(later)[:4], self.losses(plain), "what step 4 leaves out is seen in step 5")
        sent, first = self.over_the_link(later, [1, 1]), self.over_the_link(plain, [1, 1]) * 3 / 4
        self.assertAlmostEqual(sent / (first + 3 * BYTES["powersgd=2"]), 1, delta=0.01)
        gone_on = self.train("later-gone-on", [1, 1], *options, "--resume", later / "checkpoints/step-00000002")
        self.assert_same(later, gone_on, STEPS)
        for folder in (later, gone_on):
            self.assertIn("from step 4 on", ", ".join(self.events(folder, "compression")))

    def test_what_is_left_out_of_another_compression_starts_anew(self):
        saved = self.train("saved", [1, 1], "--compression", "topk=0.05", steps=2)
        errors = {name: value for name, value in checkpoint_tensors(saved / "checkpoints/step-00000002", group=None).items() if "topk_residual" in name}
        self.assertEqual(len(errors), 2 * 2 * len(MATRICES), "a weight and a bias of each layer on each node")
        self.assertGreater(sum(float(np.abs(value).sum()) for value in errors.values()), 0)
        resumed = self.train("resumed", [1, 1], "--compression", "powersgd=1", "--resume", saved / "checkpoints/step-00000002", steps=3)
        self.assertIn("starts anew", self.events(resumed, "starts_anew")[0])

    def test_auto_compresses_where_the_link_is_slow(self):
        for gbit_per_s, words in ((0.1, "int8 for"), (None, "none for")) if FULL else ((0.1, "int8 for"),):
            with self.subTest(gbit_per_s=gbit_per_s):
                link = f"[[link]]\ngbit_per_s = {gbit_per_s}\n" if gbit_per_s else ""
                folder = self.train(f"auto-{gbit_per_s}", [1, 1], "--compression", "auto", "--verify-every", 5, steps=16, link=link)
                self.assertIn(words, self.events(folder, "compression")[0])

    def test_auto_goes_by_a_virtual_clock_where_there_is_one(self):
        steps = 16
        for gbit_per_s, encode_us, words in ((1, 100, "int8 for"), (10, 5000, "none for"), (None, 100, "none for")):
            with self.subTest(gbit_per_s=gbit_per_s):
                machine = f'clock = "virtual"\ncompute_us_per_sample = 25\nencode_us_per_mb = {encode_us}\n'
                path = self.folder / f"clock-{gbit_per_s}.toml"
                path.write_text(machine + "[[node]]\nranks = [0]\n[[node]]\nranks = [1]\n" + (f"[[link]]\ngbit_per_s = {gbit_per_s}\n" if gbit_per_s else ""))
                last = {}
                for form in ("none", "auto"):
                    name = f"clock-{gbit_per_s}-{form}"
                    run(BINARY, 2, *MODEL, "--emulate", path, "--name", name, "--limit-steps", steps, "--compression", form, cwd=self.folder, limit_s=100)
                    with h5py.File(self.folder / "runs" / name / "results.h5") as file:
                        last[form] = np.diff(file["ranks/00000/virtual_times"]["virtual_time_s"])[-3:]
                self.assertIn(words, self.events(self.folder / "runs" / name, "compression")[0])
                self.assertTrue((last["auto"] <= 1.02 * last["none"]).all(), last)

    def test_an_eager_pipeline_saves_whole_tensors_and_their_errors(self):
        for name in ("topk=0.05", "powersgd=2"):
            with self.subTest(compression=name):
                options = ["--mesh", "data=2,pipe=2", "--pipeline", "eager-1f1b", "--compression", name]
                saved = self.train(f"eager-{name}", [2, 2], *options, steps=4)
                self.train(f"from-eager-{name}", [1], "--resume", saved / "checkpoints/step-00000004", steps=6)

    def test_ranks_of_a_tensor_group_keep_what_they_have_in_common(self):
        """Beside slices of other sizes the same bias lies elsewhere in memory, and in other blocks: rounding alone would set its copies apart."""
        nodes = self.nodes([2, 2], "")
        for name, *options in (("int8", "--compression", "int8", *nodes), ("bf16", "--compression", "bf16", *nodes), ("codes", "--optimizer-state-bits", 8),
                               ("shards", "--optimizer-state-bits", 8, "--strategy", "zero1", *nodes)):
            with self.subTest(rounds=name):
                run(BINARY, 4, "--model", "mlp", "--model-option", "hidden=3,700", "--global-batch", 32, "--threads", 1, "--quiet", "--mesh", "data=2,tensor=2",
                    *LEARNS[:2], "--momentum", 0.9, "--verify-every", 1, "--limit-steps", STEPS, "--name", f"common-{name}", *options, cwd=self.folder, limit_s=60)

    def test_what_a_tensor_group_has_in_common_is_whole_in_a_checkpoint(self):
        """Shards of layers, and differences that travel in 8 bits: a run in two parts, of which the second begins with one copy, ends as one in one part."""
        for name, copies, *options in (("shards", 4, "--strategy", "zero3", "--shard-within", "node", "--compression", "int8"),
                                       ("differences", 2, "--strategy", "local_sgd", "--sync-period", 2, "--exchange-type", "int8")):
            with self.subTest(strategy=name):
                train = partial(run, BINARY, 2 * copies, "--model", "mlp", "--model-option", "hidden=5,700,7,300", "--global-batch", 32, "--threads", 1,
                                "--quiet", "--mesh", f"data={copies},tensor=2", *self.nodes([copies, copies], ""), *LEARNS[:2], "--momentum", 0.9,
                                "--schedule", "constant", "--checkpoint-every", "8steps", "--limit-steps", 16, *options, cwd=self.folder, limit_s=60)
                train("--name", f"whole-{name}")
                whole, cut = (self.folder / f"runs/{part}-{name}" for part in ("whole", "cut"))
                shutil.copytree(whole, cut, symlinks=True)
                shutil.rmtree(cut / "checkpoints/step-00000016")
                (cut / "checkpoints/best").unlink(missing_ok=True)
                (cut / "state").write_text("failed\n")
                train("--name", cut.name, "--resume", "auto")
                self.assert_same(whole, cut, 16)

    @unittest.skipUnless(FULL, "with --full")
    def test_zero1_and_pipelines_compress_as_well(self):
        plain = self.losses(self.train("plain", [1, 2], *LEARNS, steps=LEARNING_STEPS))
        sharded = self.train("sharded", [1, 2], *LEARNS, "--strategy", "zero1", "--compression", "fp16", "--verify-every", 2, steps=LEARNING_STEPS)
        self.assert_near(self.losses(sharded), plain, APART["fp16"])
        for name in ("bf16", "powersgd=2"):
            piped = self.train(f"piped-{name}", [2, 2], *LEARNS, "--mesh", "data=2,pipe=2", "--compression", name, "--verify-every", 2, steps=LEARNING_STEPS)
            self.assert_near(self.losses(piped), plain, APART[name])

    @unittest.skipUnless(FULL, "with --full")
    def test_after_a_loss_the_others_go_on(self):
        version = subprocess.run([os.environ.get("DTRAIN_MPIRUN", "mpirun"), "--version"], capture_output=True, text=True, check=True).stdout
        if "Open MPI) 5" not in version and "prterun" not in version:
            self.skipTest("this MPI cannot go on without a rank")
        for ranks, name, words in (([1, 1, 1], "int8", "between nodes: int8"), ([1, 1, 1], "powersgd=2", "recovered"), ([1, 1], "topk=0.05", "one is left")):
            with self.subTest(ranks=ranks, compression=name):
                options = ["--compression", name, "--micro-batches", 6, "--checkpoint-every", "3steps", "--inject", "kill:rank=1,phase=optimizer,step=9",
                           "--name", f"lost-{name}", "--limit-steps", 12, *self.nodes(ranks, ""), "--model", "mlp", "--global-batch", 32, "--threads", 1]
                done = subprocess.run([str(MPIRUN), str(len(ranks)), BINARY, *map(str, options)], cwd=self.folder, text=True, timeout=120,
                                      env={**os.environ, "DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, check=False)
                self.assertEqual((self.folder / f"runs/lost-{name}/state").read_text(), "completed\n", done.stdout + done.stderr)
                self.assertIn("recovered", done.stdout)
                self.assertIn(words, done.stdout)

    def test_what_it_cannot_do_is_said(self):
        wanted = ["--compression", "int8"]
        cases = [
            (2, wanted, ["--compression int8", "nothing to compress", "one node"]),
            (1, wanted, ["--compression int8", "nothing to compress", "one rank"]),
            (2, [*wanted, "--reproducible"], ["--compression int8", "--reproducible", "same bits"]),
            (2, ["--compression", "topk=2"], ["--compression", "topk=2", "topk=0.01"]),
            (2, [*wanted, "--precision", "fp64"], ["--compression int8", "fp64"]),
            (2, ["--compression", "powersgd=2", "--precision", "fp16"], ["--compression powersgd=2", "bf16"]),
            (2, ["--compression", "powersgd=2", "--mesh", "data=1,tensor=2"], ["--compression powersgd=2", "slice"]),
            (4, ["--compression", "topk=0.1", "--mesh", "data=2,tensor=2"], ["--compression topk=0.1", "slice"]),
            (2, [*wanted, "--device", "cuda"], ["--compression int8", "device"]),
            (2, [*wanted, "--adaptive-batch"], ["--compression int8", "noise"]),
            (2, [*wanted, "--all-reduce", "ring"], ["--compression int8", "--all-reduce"]),
            (2, [*wanted, "--strategy", "local_sgd"], ["--compression", "local_sgd", "ddp or zero1"]),
            (2, ["--compression-after", "3"], ["--compression-after", "nothing is compressed", "powersgd=2"]),
            (2, [*wanted, "--compression-after", "-1"], ["--compression-after", "-1", "use 0"]),
            (2, ["--compression", "auto", "--compression-after", "3"], ["--compression-after", "auto begins"]),
            (2, ["--compression", "int9"], ["--compression", "int9", "fp16, bf16, int8"])]
        for ranks, options, words in cases:
            with self.subTest(options=options, ranks=ranks):
                refused(BINARY, ranks, 2, words, *MODEL, *options, "--name", "refused", cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
