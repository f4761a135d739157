"""Which model is the best and when a run ends: --validate-every, --best-by, --early-stopping; the figures beside loss and
accuracy; and --optimizer-state, another update from another run's checkpoint.

    model_selection.py BINARY
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

import drawn
from dtrain_run import checkpoint_tensors, refused, run

BINARY = sys.argv.pop()
MLP = ["--model", "mlp", "--model-option", "hidden=20", "--threads", 1, "--global-batch", 128, "--micro-batches", 2]


class ModelSelectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def train(self, name, *options, ranks=1, **arguments):
        run(BINARY, ranks, "--name", name, "--quiet", *options, cwd=self.folder, **arguments)
        return self.folder / "runs" / name

    def table(self, folder, name):
        with h5py.File(folder / "results.h5") as results:
            return results[name][:]

    def events(self, folder, kind):
        with h5py.File(folder / "results.h5") as results:
            rows = results["ranks/00000/events"][:]
        return [row["detail"].decode() for row in rows if row["kind"].decode() == kind]

    def weights(self, folder, step):
        return checkpoint_tensors(folder / "checkpoints" / f"step-{step:08}", group=None)

    def best(self, folder):
        return int((folder / "checkpoints" / "best").resolve().name.removeprefix("step-"))

    def same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)

    # An epoch of the synthetic dataset has 64 steps of 128 samples.

    def test_validations_within_epochs_change_nothing_but_what_is_known(self):
        plain = self.train("plain", *MLP, "--epochs", 2, "--keep", 9)
        often = self.train("often", *MLP, "--epochs", 2, "--keep", 9, "--validate-every", "20steps", ranks=2)
        once = self.train("once", *MLP, "--epochs", 2, "--keep", 9, "--validate-every", "20steps")
        rows = self.table(often, "validations")
        self.assertEqual(list(rows["step"]), [20, 40, 60, 64, 80, 100, 120, 128])
        self.assertEqual(list(rows["epoch"]), [1] * 4 + [2] * 4)
        self.assertEqual(list(self.table(plain, "validations")["step"]), [64, 128])
        np.testing.assert_allclose(self.table(once, "validations")["loss"], rows["loss"], rtol=1e-4)
        self.assertEqual(self.best(often), rows["step"][np.argmin(rows["loss"])])
        self.same(self.weights(plain, 128), self.weights(once, 128))
        for column in ("train_loss", "validation_loss", "validation_f1", "samples"):
            np.testing.assert_array_equal(self.table(plain, "epochs")[column], self.table(once, "epochs")[column])

    def test_a_run_that_was_stopped_validates_as_one_that_was_not(self):
        options = [*MLP, "--epochs", 2, "--validate-every", "10steps", "--keep", 99]
        whole = self.train("whole", *options)
        self.train("stopped", *options, "--limit-steps", 30)
        stopped = self.train("stopped", *options, "--limit-steps", 128)  # goes on after step 30, which was validated
        self.assertEqual(list(self.table(stopped, "validations")["step"]), list(self.table(whole, "validations")["step"]))
        self.same(self.weights(whole, 128), self.weights(stopped, 128))
        self.assertEqual(self.best(whole), self.best(stopped))

    def test_a_validation_that_a_stop_prevents_is_done_when_the_run_goes_on(self):
        options = [*MLP, "--epochs", 1, "--limit-steps", 6, "--validate-every", "1steps", "--keep", 99]
        whole = self.train("six", *options)
        for _ in range(3):
            done = run(BINARY, 1, "--name", "six-stopped", *options, "--exit-after", "0.001s", cwd=self.folder, check=False)
            self.assertEqual(done.returncode, 75, done.stderr)
        stopped = self.train("six-stopped", *options)
        for column in ("step", "loss", "accuracy", "f1"):
            np.testing.assert_array_equal(self.table(stopped, "validations")[column], self.table(whole, "validations")[column])
        self.assertEqual(self.best(whole), self.best(stopped))

    def test_early_stopping_does_not_count_a_validation_that_a_stop_prevents(self):
        # An epoch is one step, so that each stop prevents the validation after it.
        options = [*MLP, "--global-batch", 8192, "--learning-rate", 0.001, "--epochs", 4, "--early-stopping", 1, "--keep", 99]
        whole = self.train("patient", *options)
        self.assertEqual(list(self.table(whole, "validations")["step"]), [1, 2, 3, 4], "each epoch is to be better than the last")
        for _ in range(3):
            done = run(BINARY, 1, "--name", "patient-stopped", *options, "--exit-after", "0.001s", cwd=self.folder, check=False)
            self.assertEqual(done.returncode, 75, done.stderr)
        stopped = self.train("patient-stopped", *options)
        for table in ("validations", "epochs"):
            for column in ("epoch", "samples", *(("validation_loss", "train_loss", "learning_rate") if table == "epochs" else ("loss",))):
                np.testing.assert_array_equal(self.table(stopped, table)[column], self.table(whole, table)[column], err_msg=f"{table}/{column}")
        self.assertEqual(self.best(whole), self.best(stopped))

    def test_early_stopping_ends_a_run_that_gets_no_better(self):
        # A rate at which nothing gets better after the first validations.
        options = [*MLP, "--learning-rate", 1, "--epochs", 30, "--keep", 99]
        for name, more, ranks in (("epochs", [], 2), ("steps", ["--validate-every", "16steps"], 1)):
            folder = self.train(f"early-{name}", *options, "--early-stopping", 3, *more, ranks=ranks)
            rows = self.table(folder, "validations")
            since_best = len(rows) - 1 - list(rows["step"]).index(self.best(folder))
            self.assertEqual(since_best, 3, rows)
            self.assertLess(rows["step"][-1], 30 * 64)
            self.assertIn("3 validations in a row", self.events(folder, "early_stopping")[0])
            self.assertEqual((folder / "state").read_text().strip(), "completed")
            self.assertEqual(self.table(folder, "epochs")["samples"][-1], 128 * ((rows["step"][-1] - 1) % 64 + 1))
        longer = self.train("early-steps", *options, "--early-stopping", 4, "--validate-every", "16steps")
        self.assertEqual(len(self.table(longer, "validations")), len(rows) + 1)

    def test_the_best_by_accuracy(self):
        folder = self.train("accurate", *MLP, "--optimizer", "sgd", "--learning-rate", 2, "--epochs", 6, "--keep", 9,
                            "--best-by", "accuracy")
        rows = self.table(folder, "validations")
        order = np.lexsort((rows["loss"], -rows["accuracy"]))
        self.assertEqual(self.best(folder), rows["step"][order[0]])
        manifest = json.loads((folder / "checkpoints" / "best" / "manifest.json").read_text())
        self.assertAlmostEqual(manifest["best"]["accuracy"], rows["accuracy"].max())

    def test_figures_of_a_classifier(self):
        folder = self.train("figures", *MLP, "--epochs", 1, ranks=2)
        run(BINARY, 1, "evaluate", folder / "checkpoints" / "best", "--predictions", "figures.h5", cwd=self.folder)
        with h5py.File(self.folder / "figures.h5") as file, h5py.File(folder / "results.h5") as results:
            outputs, targets = file["outputs"][:], file["targets"][:]
            confusion = results["test_confusion"][:]
            np.testing.assert_array_equal(file["confusion"][:], confusion)
            test = results["test"][0]
        expected = np.zeros((10, 10), np.int64)
        np.add.at(expected, (targets, outputs.argmax(1)), 1)
        np.testing.assert_array_equal(confusion, expected)
        among = np.argsort(-outputs, axis=1)[:, :5] == targets[:, None]
        self.assertAlmostEqual(test["top5"], among.any(1).mean(), places=12)
        f1 = 2 * np.diag(expected) / (expected.sum(0) + expected.sum(1))
        self.assertAlmostEqual(test["f1"], f1.mean(), places=12)
        done = run(BINARY, 2, "evaluate", folder / "checkpoints" / "best", cwd=self.folder)
        self.assertIn(f"f1 {test['f1']:.4f}", done.stdout)
        for line in (" ".join(f"{count:>6}" for count in row) for row in confusion):
            self.assertIn(line, done.stdout)

    def test_figures_of_text_do_not_depend_on_the_ranks(self):
        gpt = ["--model", "gpt", *"--model-option layers=2 --model-option heads=2 --model-option width=32".split(),
               "--limit-steps", 12, "--global-batch", 16, "--micro-batches", 4, "--threads", 1, "--precision", "fp64"]
        one = self.table(self.train("text-1", *gpt), "epochs")[-1]
        self.assertAlmostEqual(one["validation_perplexity"], np.exp(one["validation_loss"]), places=9)
        self.assertGreater(one["validation_token_accuracy"], 0)
        for mesh in ("data=2", "tensor=2", "pipe=2"):
            other = self.table(self.train(f"text-{mesh}", *gpt, "--mesh", mesh, ranks=2), "epochs")[-1]
            for column in ("validation_perplexity", "validation_token_accuracy"):
                self.assertAlmostEqual(one[column], other[column], places=9, msg=f"{mesh} {column}")

    def test_another_update_keeps_or_forgets_the_optimizers_state(self):
        first = self.train("first", *MLP, "--epochs", 1)
        start = first / "checkpoints" / "step-00000064"
        again = [*MLP, "--epochs", 2, "--keep", 9]
        same = self.train("same", *again, "--resume", start)
        kept = self.train("kept", *again, "--resume", start, "--optimizer-state", "keep")
        forgotten = self.train("forgotten", *again, "--resume", start, "--optimizer-state", "reset")
        weights = self.weights(same, 128)
        self.same(weights, self.weights(kept, 128))
        other = self.weights(forgotten, 128)
        self.assertTrue(any(not np.array_equal(weights[name], other[name]) for name in weights))
        refused(BINARY, 1, 2, ["--learning-rate", "--optimizer-state keep"], *again, "--name", "no", "--resume", start,
                "--learning-rate", 0.01, cwd=self.folder)
        refused(BINARY, 1, 2, ["--precision", "with another --name, from its weights with --init-from"], *again, "--name", "no", "--resume", start,
                "--precision", "fp64", cwd=self.folder)
        rate = self.train("rate", *again, "--resume", start, "--optimizer-state", "keep", "--learning-rate", 0.01)
        self.assertEqual(self.events(rate, "schedule"), [])

    def test_a_run_from_anothers_checkpoint_saves_its_own_options(self):
        start = self.train("theirs", *MLP, "--epochs", 1) / "checkpoints" / "step-00000064"
        mine = [*MLP, "--learning-rate", 0.0005]
        idle = self.train("mine", *mine, "--epochs", 1, "--resume", start, "--optimizer-state", "keep")  # nothing to do
        manifest = json.loads((idle / "checkpoints/step-00000064/manifest.json").read_text())
        self.assertIn("0.0005", manifest["config"])
        self.assertEqual(manifest["total_steps"], 64)
        longer = self.train("mine", *mine, "--epochs", 2)  # not refused for the other run's options
        self.assertEqual(self.table(longer, "epochs")["epoch"].tolist(), [2])

    def test_without_a_validation_split_the_best_is_the_newest_of_an_epochs_end(self):
        rows = [f"{number % 7},{number % 11},{'odd' if number % 2 else 'even'}" for number in range(4000)]
        (self.folder / "rows.csv").write_text("\n".join(["a,b,which", *rows]) + "\n")
        run(BINARY, 1, "stage", "unvalidated", "--from", "rows.csv", "--target", "which", "--validation", "none", cwd=self.folder)
        options = [*MLP, "--dataset", "unvalidated", "--epochs", 1, "--keep", 9]
        folder = self.train("unvalidated", *options, "--limit-steps", 5)
        self.assertEqual(self.best(folder), 5)
        self.train("unvalidated", *options, "--limit-steps", 20)  # goes on within the same epoch
        self.assertEqual(self.best(folder), 20)
        self.assertEqual(self.table(folder, "test")["checkpoint"].tolist(), [b"checkpoints/step-00000020"])

    def test_strategies_beyond_lock_step_count_updates_alike(self):
        # One rank, whose every micro-batch is a step: all of them make ddp's updates.
        options = ["--model", "mlp", "--model-option", "hidden=20", "--threads", 1, "--micro-batches", 1, "--kernels", "libtorch", "--optimizer", "adam"]
        start = self.train("counted", *options, "--global-batch", 512, "--epochs", 1) / "checkpoints/step-00000016"
        for state, batch in (("reset", 512), ("keep", 1024)):
            expected = None
            for strategy in (["ddp"], ["local_sgd", "--sync-period", 4], ["asgd", "--servers", 0]):
                name = f"counted-{state}-{strategy[0]}"
                folder = self.train(name, *options, "--global-batch", batch, "--epochs", 2, "--resume", start, "--optimizer-state", state, "--strategy", *strategy)
                found = checkpoint_tensors((folder / "checkpoints/last").resolve(), group="model")
                expected = expected or found
                with self.subTest(name):
                    for tensor in expected:
                        np.testing.assert_allclose(found[tensor], expected[tensor], rtol=0, atol=1e-6, err_msg=tensor)

    def test_other_batches_count_their_own_steps_and_adams_updates_go_on(self):
        first = self.train("batches", *MLP, "--epochs", 1)
        start = first / "checkpoints" / "step-00000064"
        larger = ["--model", "mlp", "--model-option", "hidden=20", "--threads", 1, "--global-batch", 256,
                  "--epochs", 2, "--keep", 9]
        from_start = ["--resume", start, "--optimizer-state", "keep"]
        whole = self.train("larger", *larger, *from_start)
        self.assertEqual(list(self.table(whole, "validations")["step"]), [64])
        self.assertEqual(self.table(whole, "epochs")["epoch"].tolist(), [2])
        done = run(BINARY, 1, "--name", "larger-stopped", *larger, *from_start, "--exit-after", "0.001s", cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 75, done.stderr)
        stopped = self.train("larger-stopped", *larger)  # its own checkpoint has the count of updates
        self.same(self.weights(whole, 64), self.weights(stopped, 64))
        manifest = json.loads((whole / "checkpoints" / "step-00000064" / "manifest.json").read_text())
        self.assertEqual(manifest["loss_scale"]["left_out"], 64 - (64 + 32))
        self.train("within", *MLP, "--epochs", 1, "--limit-steps", 30)
        within = self.folder / "runs/within/checkpoints/step-00000030"
        refused(BINARY, 1, 2, ["stands within an epoch", "epoch's end"], *larger, "--resume", within,
                "--optimizer-state", "keep", "--name", "no", cwd=self.folder)

    def test_bad_input_is_refused_with_a_remedy(self):
        run(BINARY, 1, "stage", "numbers", "--format", "synthetic", "--task", "regression", "--samples", 200, cwd=self.folder)
        for words, options in (
                (["--best-by", "loss, accuracy"], ["--best-by", "f1"]),
                (["--best-by accuracy", "--best-by loss"], ["--best-by", "accuracy", "--dataset", "numbers"]),
                (["--early-stopping", "0 or more"], ["--early-stopping", -1]),
                (["--validate-every", "500steps"], ["--validate-every", "10min"]),
                (["--validate-every", "500steps"], ["--validate-every", "often"]),
                (["--optimizer-state", "exact, keep, reset"], ["--optimizer-state", "drop"]),
                (["--optimizer-state", "--resume"], ["--optimizer-state", "keep"])):
            refused(BINARY, 1, 2, words, *options, "--name", "bad", cwd=self.folder)


if __name__ == "__main__":
    drawn.main()
