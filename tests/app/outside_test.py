"""What comes from outside: checkpoints, runs, datasets and files that others wrote, and folders that others use."""
import hashlib
import json
import os
import re
import shutil
import unittest

import drawn
from program import SHORT, ProgramTest

SYNTHETIC = ("stage", "table", "--format", "synthetic", "--task", "table_classification")
TABLE = (*SYNTHETIC, "--samples", "64")
TRAIN = ("--model", "mlp", "--model-option", "hidden=8", "--dataset", "table", "--threads", "1", *SHORT)


def contents(folder):
    """Of all files below, by path."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class OutsideTest(ProgramTest):
    def checkpoint(self):
        """The folder of a checkpoint of a short run."""
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "given")
        return (self.folder / "runs/given/checkpoints/best").resolve()

    def change_config(self, checkpoint, *lines):
        """A copy of a checkpoint whose configuration says something else; its checksum is right."""
        other = self.folder / "other"
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(checkpoint, other)
        manifest = json.loads((other / "manifest.json").read_text())
        keys = [line.split(" = ")[0] for line in lines]
        kept = [line for line in manifest["config"].splitlines() if line.split(" = ")[0] not in keys]
        manifest["config"] = "\n".join([*kept, *lines]) + "\n"
        text = json.dumps(manifest)
        (other / "manifest.json").write_text(text)
        (other / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest() + "  manifest.json\n")
        return other

    # ---- a checkpoint's configuration is data ------------------------------------------------------------------------
    def test_a_checkpoints_configuration_gives_no_orders(self):
        given = self.checkpoint()
        (self.folder / "target").mkdir()
        other = self.change_config(
            given, f'staging = "local={self.folder}/target"', "threads = 1000", f'output = "{self.folder}/elsewhere"', 'name = "mine"',
            'inject = "kill:rank=0,phase=forward,step=1"', "trace = true", "tensorboard = true", "overwrite = true", 'mesh = "data=64"',
            "watchdog = 0.001", 'init-from = "gone.h5"', 'memory-limit = "1KiB"', 'resume = "gone"', "dry-run = true")
        expected = self.succeed("evaluate", given, "--threads", "1")
        before = contents(self.folder)
        found = self.succeed("evaluate", other, "--threads", "1")
        loss = re.compile(r"loss\s+([0-9.]+)")
        self.assertEqual(loss.findall(found), loss.findall(expected))
        self.assertEqual(contents(self.folder), before)
        self.assertEqual(list((self.folder / "target").iterdir()), [])
        threads = self.succeed("evaluate", other)  # 1000 threads would be refused, or started
        self.assertEqual(len(loss.findall(threads)), len(loss.findall(expected)))

    def test_a_checkpoint_with_a_wrong_configuration_is_a_bad_checkpoint(self):
        given = self.checkpoint()
        for line, words in {'model = "gone"': ["no model gone"], "frobnicate = 1": ["frobnicate"], "global-batch = 0": ["global-batch"],
                            'global-batch = "many"': ["global-batch"], 'precision = "fp8"': ["--precision"], "x = " + "[" * 5000: ["nested"],
                            'model-option = ["hidden=16777216,16777216"]': ["--model-option"]}.items():
            with self.subTest(line[:40]):
                other = self.change_config(given, line)
                self.refuse(4, [*words, "other/manifest.json"], "evaluate", other, ranks=1)

    # ---- runs --------------------------------------------------------------------------------------------------------
    def test_overwrite_removes_what_a_run_wrote_and_says_what_it_leaves(self):
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "mine", "--trace", "--tensorboard")
        run = self.folder / "runs/mine"
        (run / "thesis.txt").write_text("years of work")
        (run / "checkpoints/notes.txt").write_text("mine")
        (run / "checkpoints/step-00000004/photo.jpg").write_text("mine")
        (run / "plots").mkdir()
        (run / "plots/state").write_text("mine")
        (self.folder / "precious").mkdir()
        (self.folder / "precious/rank-00000.h5").write_text("years of work")
        (run / "ranks/more").symlink_to(self.folder / "precious")
        done = self.run_program(*TRAIN, "--name", "mine", "--overwrite", "--seed", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        for left in "thesis.txt", "checkpoints/notes.txt", "checkpoints/step-00000004.left/photo.jpg", "plots", "ranks/more":
            self.assertIn(f"dtrain: runs/mine/{left} is left", done.stderr)
        self.assertEqual((run / "thesis.txt").read_text(), "years of work")
        self.assertEqual((run / "plots/state").read_text(), "mine")
        self.assertEqual((run / "checkpoints/step-00000004.left/photo.jpg").read_text(), "mine")
        self.assertTrue((self.folder / "precious/rank-00000.h5").exists())
        self.assertFalse((run / "trace.json").exists())
        self.assertEqual((run / "state").read_text(), "completed\n")
        self.assertIn("seed = 2", (run / "config.toml").read_text())

    def test_overwrite_removes_nothing_for_a_run_that_is_refused(self):
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "mine")
        run = self.folder / "runs/mine"
        before = contents(run)
        best = "runs/mine/checkpoints/best"
        for words, options in ((["tabel"], ["--dataset", "tabel"]), (["--model-option"], ["--model-option", "hiden=8"]),
                               (["nowhere"], ["--init-from", "nowhere"]), (["warm-up"], ["--warmup-steps", 1000]),
                               (["--staging"], ["--staging", "moon"]), (["--loss"], ["--loss", "mse"]),
                               (["cannot be reached"], ["--dp-clip", 1, "--target-epsilon", 1e-9]),
                               (["--epsilon", "--target-epsilon"], ["--dp-clip", 1, "--dp-noise", 1, "--optimizer", "adam", "--epsilon", 3]),
                               (["--init-from", "another --name"], ["--init-from", best]), (["--resume", "another --name"], ["--resume", best])):
            for ranks in 1, 2:
                with self.subTest(f"{options} on {ranks}"):
                    done = self.run_program(*TRAIN, "--name", "mine", "--overwrite", *map(str, options), ranks=ranks)
                    self.assertIn(done.returncode, (2, 3, 4), done.stderr)
                    for word in words:
                        self.assertIn(word, done.stderr)
                    self.assertEqual(contents(run), before)
        self.refuse(2, ["--loss"], *TRAIN, "--name", "never", "--overwrite", "--loss", "mse", ranks=1)
        self.assertFalse((self.folder / "runs/never").exists())

    def test_overwrite_removes_what_clients_keep(self):
        clients = ["--model", "mlp", "--model-option", "hidden=8", "--dataset", "table", "--threads", "1", "--strategy", "fedavg", "--clients", "3",
                   "--rounds", "2", "--optimizer", "sgd", "--momentum", "0", "--federated-rule", "scaffold"]
        self.succeed(*TABLE)
        self.succeed("--name", "mine", *clients)
        self.assertTrue(list((self.folder / "runs/mine/clients").glob("*/round-*")))
        done = self.run_program(*TRAIN, "--name", "mine", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("is left", done.stderr)
        self.assertFalse((self.folder / "runs/mine/clients").exists())

    def test_overwrite_mixes_no_two_runs_behind_a_link(self):
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "mine")
        run, away = self.folder / "runs/mine", self.folder / "away"
        (run / "checkpoints").rename(away)
        (run / "checkpoints").symlink_to(away)
        before = contents(run), contents(away)
        self.refuse(2, ["runs/mine/checkpoints", "is a link", "--name"], *TRAIN, "--name", "mine", "--overwrite", ranks=1)
        self.assertEqual((contents(run), contents(away)), before)
        (run / "checkpoints").unlink()
        self.succeed(*TRAIN, "--name", "mine", "--overwrite")

    def test_overwrite_takes_nothing_that_only_looks_like_a_runs(self):
        self.succeed(*TABLE)
        run = self.folder / "runs/mine"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.toml").write_text("of another program")
        self.refuse(2, ["runs/mine", "names of a run's", "--name"], *TRAIN, "--name", "mine", "--overwrite", ranks=1)
        self.assertEqual((run / "config.toml").read_text(), "of another program")
        (run / "config.toml").rename(run / "other.toml")
        (run / "checkpoints").rmdir()
        done = self.run_program(*TRAIN, "--name", "mine", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("runs/mine/other.toml is left", done.stderr)

    def test_measurements_take_the_place_of_no_file_of_a_run(self):
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "mine")
        before = contents(self.folder / "runs/mine")
        self.refuse(2, ["--output", "results.h5"], "topology", "--benchmark", "--sizes", "4KiB", "--output", "runs/mine/results.h5", ranks=2)
        self.refuse(2, ["--output", "is for --benchmark"], "topology", "--output", "t.h5", ranks=1)
        self.assertEqual(contents(self.folder / "runs/mine"), before)

    def test_a_report_writes_nothing_into_a_run(self):
        self.succeed(*TABLE)
        self.succeed(*TRAIN, "--name", "given")
        run = self.folder / "runs/given"
        (run / "state").write_text("running\n")
        before = contents(run)
        for more in (), ("--csv",), ("--compare",):
            self.succeed("report", "runs/given", *more)
        self.assertEqual(contents(run), before)

    # ---- datasets ----------------------------------------------------------------------------------------------------
    def test_stage_overwrite_says_what_it_leaves_and_spares_what_others_wrote(self):
        self.succeed(*TABLE)
        place = self.folder / "data/staged/table"
        (place / "notes.txt").write_text("mine")
        done = self.run_program(*TABLE, "--overwrite", "--seed", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dtrain: data/staged/table/notes.txt is left", done.stderr)
        self.assertEqual((place / "notes.txt").read_text(), "mine")
        (place / "dataset.json").unlink()
        self.refuse(3, ["data/staged/table", "was not written by dtrain", "notes.txt"], *TABLE, "--overwrite")
        self.assertEqual((place / "notes.txt").read_text(), "mine")

    def test_names_of_datasets_are_names(self):
        for name in "../up", "/tmp/dtrain-absolute", "a/b", ".", "..", ".hidden", "a\x1b[2J", "a\nb", "x" * 300, os.fsdecode(b"a\xff"):
            with self.subTest(name[:20]):
                sentence = self.refuse(2, ["is no name for a dataset"], "stage", name, *TABLE[2:])
                self.assertNotRegex(sentence, r"[\x00-\x1f\x7f]")
        self.assertFalse((self.folder / "data").exists())

    def test_local_copies_of_two_jobs_and_a_trap(self):
        self.succeed(*TABLE)
        local = self.folder / "local"
        local.mkdir()
        local.chmod(0o1777)
        trap = self.folder / "trap"
        trap.mkdir()
        (local / f"dtrain-{os.geteuid()}-aaaaaa").symlink_to(trap)
        for name in "first", "second":
            self.succeed(*TRAIN, "--name", name, "--staging", f"local={local}", ranks=2)
        own = [path for path in local.iterdir() if not path.is_symlink()]
        self.assertEqual(len(own), 1)
        self.assertEqual(own[0].stat().st_mode & 0o7777, 0o700)
        self.assertEqual(list(trap.iterdir()), [])
        local.chmod(0o777)
        self.refuse(2, ["--staging local=", "chmod +t"], *TRAIN, "--name", "third", "--staging", f"local={local}", ranks=2)

    # ---- limits ------------------------------------------------------------------------------------------------------
    def test_what_is_no_regular_file_is_refused_at_once(self):
        given = self.checkpoint()
        os.mkfifo(self.folder / "fifo")
        for place, code, arguments in ((None, 2, (*TRAIN, "--config", "fifo")), (None, 2, (*TRAIN, "--config", "/dev/zero")),
                                       (None, 3, ("stage", "set", "--from", "fifo", "--format", "csv")), (None, 3, ("stage", "set", "--from", "fifo")),
                                       (None, 3, ("stage", "set", "--from", "/dev/zero", "--format", "csv")),
                                       (None, 2, ("export", given, "fifo.h5")),
                                       ("data/staged/table/dataset.json", 3, TRAIN), ("data/staged/table/train-00000-of-00001.h5", 3, TRAIN),
                                       ("other/manifest.json", 4, ("evaluate", "other")), ("other/manifest.sha256", 4, ("evaluate", "other")),
                                       ("other/part-00000.h5", 4, ("export", "other", "out.h5")),
                                       ("runs/given/results.h5", 3, ("report", "runs/given"))):
            with self.subTest(f"{place} {arguments[:3]}"):
                shutil.rmtree(self.folder / "other", ignore_errors=True)
                shutil.copytree(given, self.folder / "other")
                if arguments[0] == "export" and place is None and not (self.folder / "fifo.h5").exists():
                    os.mkfifo(self.folder / "fifo.h5")
                aside = self.folder / "aside"
                if place:
                    (self.folder / place).rename(aside)
                    os.mkfifo(self.folder / place)
                self.refuse(code, [], *arguments, *(("--name", "out") if arguments[0].startswith("--") else ()), ranks=0)
                if place:
                    (self.folder / place).unlink()
                    aside.rename(self.folder / place)

    def test_configuration_files_are_limited(self):
        for text, words in {"x = " + "[" * 100_000: "nested", "[" + "a." * 50_000 + "a]\nx = 1\n": "nested", "x = " + "{a = " * 50_000: "nested",
                            'model = "' + "x" * 2_000_000 + '"\n': "larger than 1 MiB", '"\x1b[2J" = 1\n': "c.toml", '"\\u001b[2J" = 1\n': "\\x1b[2J",
                            'model = "\\u001b[2Jmlp"\n': "\\x1b[2J"}.items():
            with self.subTest(text[:20]):
                self.write("c.toml", text)
                sentence = self.refuse(2, [words], *SHORT, "--config", "c.toml")
                self.assertLess(len(sentence), 800)
                self.assertNotRegex(sentence, r"[\x00-\x1f\x7f]")

    def test_numbers_that_no_machine_has_a_use_for(self):
        for option, value in (("--threads", 100_000), ("--micro-batches", 2_147_483_647), ("--virtual-stages", 2_147_483_647),
                              ("--global-batch", 2_147_483_647), ("--watchdog", "1e300"), ("--watchdog", "-inf"), ("--watchdog", "nan"),
                              ("--model-option", "hidden=16777216,16777216"), ("--model-option", "hidden=" + ",".join(["8"] * 2000))):
            with self.subTest(f"{option} {str(value)[:30]}"):
                self.refuse(2, [option], *SHORT[:2], "--quiet", option, value, ranks=1)
        for option, value in ("--shards", 2_147_483_647), ("--samples", 2_147_483_647):
            self.refuse(2, [option, "is too large"], *SYNTHETIC, option, value)
        self.refuse(2, ["--vocab-size", "is too large"], "stage", "set", "--format", "synthetic", "--task", "text_classification",
                    "--vocab-size", 2_147_483_647)

    def test_a_watchdog_without_a_limit(self):
        printed = self.succeed("--watchdog", "inf", "--print-config")
        self.assertIn("watchdog = inf\n", printed)
        self.write("c.toml", "watchdog = inf\n")
        self.assertIn("watchdog = inf\n", self.succeed("--config", "c.toml", "--print-config"))
        self.succeed("--model", "mlp", "--watchdog", "inf", *SHORT, ranks=2)

    # ---- sentences ---------------------------------------------------------------------------------------------------
    def test_foreign_text_in_sentences_is_short_and_plain(self):
        for code, arguments in ((2, ("fr\x1b[2Job",)), (2, ("x" * 100_000,)), (2, ("--model", "\x1b[2Jmlp\x07")), (2, ("--model", "x" * 100_000)),
                                (3, ("--dataset", "gone\x1b[2J")), (3, ("--dataset", "x" * 100_000)), (2, ("--fr\x1b[2Job", "1")),
                                (2, ("--loss", "\x1b[31m")), (2, ("--model", os.fsdecode(b"m\xff\xfelp"))), (2, ("report", "x" * 100_000))):
            with self.subTest(f"{arguments[0][:20]} {arguments[-1][:20]!r}"):
                sentence = self.refuse(code, [], *arguments)
                self.assertLess(len(sentence), 800)
                self.assertNotRegex(sentence, r"[\x00-\x1f\x7f]")
                self.assertRegex(sentence, r"dtrain: (rank \d+: )?\S.*: \S.*; \S.*")

    def test_a_files_own_text_is_escaped(self):
        self.succeed(*TABLE)
        file = self.folder / "data/staged/table/dataset.json"
        facts = json.loads(file.read_text())
        facts["task"] = "\x1b[31m" + "x" * 100_000
        file.write_text(json.dumps(facts))
        sentence = self.refuse(3, ["dataset.json", "unknown task", "\\x1b[31m"], *TRAIN)
        self.assertLess(len(sentence), 800)
        file.write_text("{")
        self.refuse(3, ["dataset.json", "JSON"], *TRAIN)
        facts["task"], facts["splits"]["train"]["shards"] = "table_classification", 7
        file.write_text(json.dumps(facts))
        self.assertNotIn("json.exception", self.refuse(3, ["dataset.json"], *TRAIN))

    def test_latin_1_in_a_table_is_refused_before_anything_is_written(self):
        for name, text in {"a header": "a,b,k\xf6nd\n1,2,x\n", "a label": "a,b,kind\n1,2,zw\xf6lf\n", "a word": "a,b,kind\nf\xfcnf,2,x\n"}.items():
            with self.subTest(name):
                (self.folder / "in.csv").write_bytes((text + "3,4,y\n" * 40).encode("latin-1"))
                self.refuse(3, ["in.csv", "UTF-8"], "stage", "set", "--from", "in.csv")
                self.assertFalse((self.folder / "data").exists())


if __name__ == "__main__":
    drawn.main()
