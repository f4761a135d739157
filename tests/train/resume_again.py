"""Runs that are given a command once more, with more to do, with their own file, or one that is refused."""

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import refused, run, step_losses

BINARY = sys.argv.pop()
MLP = ["--model", "mlp", "--global-batch", 20, "--threads", 1]


class ResumeAgainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        cls.stage("small")

    @classmethod
    def stage(cls, dataset, *options):
        run(BINARY, 1, "stage", dataset, "--format", "synthetic", "--samples", 400, *options, cwd=cls.folder)

    def train(self, name, *options, dataset="small"):
        return run(BINARY, 1, *options, "--dataset", dataset, "--name", name, cwd=self.folder)

    def refuse(self, code, words, name, *options, dataset="small"):
        refused(BINARY, 1, code, words, *options, "--dataset", dataset, "--name", name, cwd=self.folder)

    def state(self, name):
        return (self.folder / "runs" / name / "state").read_text().strip()

    def resumed(self, name):
        """The steps from which the run went on, and the newest that it has done."""
        with h5py.File(self.folder / "runs" / name / "results.h5") as file:
            rank = file["ranks/00000"]
            words = [row["detail"].decode() for row in rank["events"] if row["kind"] == b"resumed"]
            return [line.split()[1] for line in words], int(rank["steps"]["step"][-1])

    def test_a_run_that_was_killed_has_the_rows_of_all_its_steps(self):
        options = [*MLP[:2], "--model-option", "hidden=16", "--global-batch", 12, "--micro-batches", 4, "--limit-steps", 8, "--threads", 1,
                   "--precision", "fp64", "--dataset", "small"]
        run(BINARY, 2, *options, "--name", "straight", cwd=self.folder)
        with h5py.File(self.folder / "runs/straight/results.h5") as results:
            straight = step_losses(results)
        for phase in ("forward", "optimizer"):
            run(BINARY, 2, *options, "--checkpoint-every", "1steps", "--inject", f"kill:rank=1,phase={phase},step=6", "--name", phase,
                cwd=self.folder, check=False)
            run(BINARY, 2, *options, "--checkpoint-every", "1steps", "--resume", "auto", "--name", phase, cwd=self.folder)
            with h5py.File(self.folder / "runs" / phase / "results.h5") as results:
                np.testing.assert_allclose(step_losses(results), straight, rtol=1e-12, err_msg=phase)

    def test_a_finished_federated_run_goes_on_to_more_rounds(self):
        clients = [*MLP[:2], *MLP[4:], "--strategy", "fedavg", "--clients", 4, "--clients-per-round", 1]
        self.train("rounds", *clients, "--rounds", 12)
        self.refuse(2, ["finished run", "--rounds"], "rounds", *clients, "--rounds", 11)
        self.assertEqual(self.state("rounds"), "completed")
        self.train("rounds", *clients, "--rounds", 13)
        with h5py.File(self.folder / "runs/rounds/results.h5") as file:
            self.assertEqual(len(file["epochs"]), 13)

    def test_fewer_rounds_than_a_run_has_done_leave_it_completed(self):
        clients = [*MLP[:2], *MLP[4:], "--strategy", "fedavg", "--clients", 4, "--clients-per-round", 1]
        self.train("five", *clients, "--rounds", 5)
        self.refuse(2, ["finished run", "--rounds"], "five", *clients, "--rounds", 3)
        self.assertEqual(self.state("five"), "completed")

    def test_a_finished_run_that_was_begun_from_another_goes_on_by_its_command(self):
        self.train("source", *MLP, "--limit-steps", 4)
        begun = [*MLP, "--resume", "runs/source"]
        self.train("further", *begun, "--limit-steps", 10)
        self.refuse(2, ["finished run"], "further", *begun, "--limit-steps", 10)
        shutil.rmtree(self.folder / "runs/source")
        self.train("further", *begun, "--limit-steps", 14)
        self.assertEqual(self.resumed("further"), (["step-00000004", "step-00000010"], 14))

    def test_the_file_of_a_run_does_not_make_the_recipes_warm_up_the_users(self):
        gpt = ["--model", "gpt", "--threads", 1, "--model-option", "layers=1", "--model-option", "heads=2", "--model-option", "width=8"]
        run(BINARY, 1, *gpt, "--limit-steps", 6, "--name", "short", cwd=self.folder)
        own = ["--config", "runs/short/config.toml", "--name", "short"]
        done = run(BINARY, 1, *own, "--limit-steps", 9, cwd=self.folder)
        self.assertIn("of the model's recipe", done.stdout)
        self.assertEqual(self.resumed("short")[1], 9)
        # The recipe's number, given, is no other setting; another one is.
        refused(BINARY, 1, 2, ["--warmup-steps was 100 and is 5"], *gpt, "--limit-steps", 12, "--warmup-steps", 5, "--name", "short",
                cwd=self.folder)
        refused(BINARY, 1, 2, ["--warmup-steps 100", "all of them would be warm-up"], *gpt, "--limit-steps", 12, "--warmup-steps", 100,
                "--name", "short", cwd=self.folder)
        self.assertEqual(self.state("short"), "completed")

    def test_a_file_of_an_earlier_version_with_the_recipes_warm_up_fits(self):
        """Earlier ones always had a number: also of a schedule that has a warm-up of its own."""
        self.train("with", *MLP, "--schedule", "one_cycle", "--warmup-steps", 0, "--limit-steps", 6)
        self.train("with", *MLP, "--schedule", "one_cycle", "--limit-steps", 9)
        self.assertEqual(self.resumed("with")[1], 9)

    def test_a_refused_command_leaves_the_state_of_the_run(self):
        self.train("stands", *MLP, "--limit-steps", 12)
        run_folder = self.folder / "runs/stands"
        (run_folder / "state").write_text("preempted\n")
        file = (run_folder / "config.toml").read_text()
        self.refuse(2, ["12 steps", "only 8", "--limit-steps"], "stands", *MLP, "--limit-steps", 8)
        self.assertEqual((self.state("stands"), (run_folder / "config.toml").read_text()), ("preempted", file))
        self.assertRegex(run(BINARY, 1, "report", "runs/stands", cwd=self.folder).stdout, "preempted")

    def test_a_completed_run_that_has_lost_its_tests_is_not_called_completed(self):
        self.train("longer", *MLP, "--epochs", 3, "--limit-steps", 30)
        self.refuse(2, ["has done 30 steps"], "longer", *MLP, "--epochs", 1, "--limit-steps", 0)
        self.assertEqual(self.state("longer"), "failed")
        self.train("longer", *MLP, "--epochs", 3, "--limit-steps", 30)  # tests again
        self.assertEqual(self.state("longer"), "completed")

    def test_samples_in_other_files_are_not_called_other_samples(self):
        self.stage("split", "--shards", 2)
        self.train("shards", *MLP, "--limit-steps", 4, dataset="split")
        self.stage("split", "--shards", 4, "--overwrite")
        self.refuse(3, ["was staged anew", "or into other files", "--shards"], "shards", *MLP, "--limit-steps", 8, dataset="split")
        self.stage("split", "--shards", 2, "--overwrite")
        self.train("shards", *MLP, "--limit-steps", 8, dataset="split")

    def test_a_checkpoint_that_is_whole_is_not_called_missing_for_want_of_a_link(self):
        for link in ("last", "best"):
            with self.subTest(link=link):
                self.train(link, *MLP, "--epochs", 1)
                checkpoints = self.folder / "runs" / link / "checkpoints"
                whole = os.readlink(checkpoints / link)
                (checkpoints / link).unlink()
                shutil.copytree(checkpoints / whole, checkpoints / link)  # as a copy that followed links has it
                self.refuse(4, [f"checkpoints/{link}", "is a folder", "cp -a"], link, *MLP, "--epochs", 2)
                self.assertEqual(self.state(link), "completed")
                done = self.train(link, *MLP, "--epochs", 1, "--overwrite")
                self.assertIn("is whole, but the folder is not in order", done.stderr)
                self.assertIn(f"checkpoints/{link}", done.stderr)
                self.assertNotIn("missing", done.stderr)
                self.assertEqual(self.state(link), "completed")
                self.assertTrue((checkpoints / whole / "manifest.json").exists())
                other = checkpoints / ("best" if link == "last" else "last")
                self.assertEqual(os.readlink(other), whole)


if __name__ == "__main__":
    unittest.main()
