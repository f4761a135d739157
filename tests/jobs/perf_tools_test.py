"""What the scripts of perf/ do beside measuring: they keep what was measured before, refuse what they do not know, and say what a
program said. With stand-ins for dtrain and mpirun.

    perf_tools_test.py
"""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "perf" / "training"), str(ROOT / "perf" / "notebooks")]
import efficiency  # noqa: E402
import exported  # noqa: E402
import federated_mnist  # noqa: E402
import niid  # noqa: E402
import private_accuracy  # noqa: E402
import private_steps  # noqa: E402
import recovery  # noqa: E402
import roofline  # noqa: E402
import runs  # noqa: E402
from dtrain_plots import peers  # noqa: E402

DRY_RUN = ("memory of a rank, estimated: 1,007.0 MiB (parameters 0.5 MiB, gradients 0.5 MiB, optimizer 1.0 MiB, activations 1,000.5 MiB, "
           "in exchange 0.5 MiB, copies 4.0 MiB; without activations 6.5 MiB)\n")


class PerfTools(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name).resolve()

    def script(self, path, *lines):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
        path.chmod(0o755)
        return path

    def call(self, *command, cwd=None, **environment):
        return subprocess.run([str(word) for word in command], cwd=cwd or self.folder, env=os.environ | environment, text=True, timeout=100,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def parsed(self, module, *words):
        with mock.patch.object(sys, "argv", ["script", *map(str, words)]):
            return module.parse()

    def refused(self, words, call, *arguments):
        """The call ends the program as argparse does, and says this."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            call(*arguments)
        self.assertEqual(ended.exception.code, 2)
        self.assertIn(words, said.getvalue())

    def test_activations_are_not_the_sum_without_them(self):
        said = roofline.bytes_said(DRY_RUN)
        self.assertEqual({name: value / 2 ** 20 for name, value in said.items()},
                         {"parameters": 0.5, "gradients": 0.5, "optimizer": 1.0, "activations": 1000.5})

    def test_figures_of_the_same_day_stay(self):
        for seconds in (1, 2, 3):
            with contextlib.redirect_stdout(io.StringIO()):
                runs.write_results(self.folder, "mlp", [{"peer_samples_per_s": 1, "seconds": seconds}], f"page {seconds}")
        stems = [f"mlp-{runs.today()}{behind}" for behind in ("", "-2", "-3")]
        self.assertEqual([(self.folder / f"{stem}.md").read_text() for stem in stems], ["page 1\n", "page 2\n", "page 3\n"])
        self.assertEqual([runs.read_rows(self.folder / f"{stem}.csv")[0]["seconds"] for stem in stems], ["1", "2", "3"])
        self.assertEqual(peers.read(self.folder)["mlp"][0]["seconds"], "3")

    def test_no_script_names_its_files_by_the_day_alone(self):
        for file in sorted((ROOT / "perf").glob("[!n]*/*.py")):
            lines = [line for line in file.read_text().splitlines() if re.search(r"\{(runs|date)\.today\(\)\}\.|\{date\.today\(\)\}", line)]
            self.assertEqual([line for line in lines if "stem" in line or "path" in line or "write" in line], [], file)

    def test_program_is_found_from_where_the_script_was_started(self):
        self.script("bin/mine", "true")
        with contextlib.chdir(self.folder), mock.patch.dict(os.environ, DTRAIN="bin/mine"):
            self.assertEqual(runs.program(), str(self.folder / "bin/mine"))
            self.assertEqual(runs.relative([runs.program(), "--quick"]), "./dtrain --quick")
        with mock.patch.dict(os.environ, DTRAIN="bin"), contextlib.chdir(self.folder), self.assertRaisesRegex(SystemExit, "not a program"):
            runs.program()

    def test_what_a_failed_run_said_is_shown(self):
        self.script("dtrain", "echo 'dtrain: error: --replicate: needs stages' >&2", "exit 2")
        launcher = self.script("mpirun.sh", '[[ $DTRAIN_MPIRUN_FLAGS == "--with-ft ulfm" ]] || exit 9', "shift", 'exec "$@"')
        with mock.patch.dict(os.environ, DTRAIN=str(self.folder / "dtrain")), mock.patch.object(recovery, "MPIRUN", launcher):
            with self.assertRaisesRegex(SystemExit, "(?s)ended with 2.*--replicate: needs stages"):
                recovery.median_step(self.folder, "run", 1)

    def test_a_quick_study_takes_the_place_of_no_real_one(self):
        launcher = self.script("mpirun", 'echo "$*" >>calls')
        for options in ([], ["--output", "mine"]):
            self.call(sys.executable, ROOT / "perf/study/runs.py", "--quick", "--models", "mlp", "--mpirun", launcher, "--dtrain", "dtrain", *options)
        outputs = re.findall(r"--output (\S+)", (self.folder / "calls").read_text())
        self.assertEqual(set(outputs[:4]), {"runs/study-quick"})
        self.assertEqual(set(outputs[4:]), {"mine"})

    def test_unknown_names_are_refused(self):
        self.refused("there is no model vgg12; use mlp", self.parsed, private_steps, "mlp", "vgg12")
        self.refused("there is no case mnist-2; use mnist-1.16", self.parsed, private_accuracy, "mnist-2")
        self.refused("invalid choice: 'gpt'", self.parsed, efficiency, "--model", "gpt")
        with mock.patch.object(sys, "argv", ["script", "--cell", "32,classes=2,fedsgd", "--work", str(self.folder / "work")]):
            self.refused("--cell 32,classes=2,fedsgd: with --dataset mnist there are 32,dirichlet=0.5,fedavg", niid.main)
        self.assertFalse((self.folder / "work").exists())

    def test_a_case_is_changed_by_numbers_of_both_kinds(self):
        given = self.parsed(private_accuracy, "imdb-3", "--set", "rate=0.5", "--set", "epochs=2", "--set", "model=mlp")
        self.assertEqual(given.set, {"rate": 0.5, "epochs": 2, "model": "mlp"})
        self.assertEqual(self.parsed(private_accuracy, "--set", "rate=0.5").set, {"rate": 0.5})
        self.refused("--set speed=1: of a case", self.parsed, private_accuracy, "--set", "speed=1")
        self.refused("--set rate=fast: rate is a number", self.parsed, private_accuracy, "--set", "rate=fast")

    def test_runs_by_processor_time_end_within_an_epoch(self):
        with mock.patch.dict(private_steps.MODELS, mlp=(512, 1, 20, [])):
            folder = private_steps.dataset_of("mlp", self.folder)
        self.assertGreater(int(re.search(r'"train": \{"samples": (\d+)', (folder / "dataset.json").read_text())[1]), 512 * 22)
        self.assertEqual(private_steps.dataset_of("seq2seq", self.folder), "synthetic")

    def test_efficiency_takes_cores_that_it_may_use(self):
        (self.folder / "mnist").mkdir()
        (self.folder / "mnist/dataset.json").touch()
        with mock.patch.object(os, "sched_getaffinity", return_value={7, 3, 5}):
            self.assertEqual(self.parsed(efficiency, "--data-root", self.folder).cores, [3, 5])
        with mock.patch.object(os, "sched_getaffinity", return_value={7}):
            self.refused("two cores are needed", self.parsed, efficiency, "--data-root", self.folder)

    def test_each_seed_of_federated_mnist_has_its_weights(self):
        self.assertEqual(federated_mnist.program_of(self.folder, 1).name, "mcmahan.pt2")
        self.assertEqual(federated_mnist.program_of(self.folder, 2).name, "mcmahan-seed2.pt2")

    def test_a_quick_comparison_leaves_no_folder(self):
        with mock.patch.dict(os.environ, TMPDIR=str(self.folder)), mock.patch.object(tempfile, "tempdir", str(self.folder)), \
                mock.patch.object(exported, "measure", return_value={}), mock.patch.object(sys, "argv", ["script", "mlp", "--quick"]):
            exported.main()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_all_reduce_replaces_its_tables_when_all_is_measured(self):
        (self.folder / "perf/results/all_reduce").mkdir(parents=True)
        shutil.copy(ROOT / "perf/all_reduce.sh", self.folder / "perf")
        self.script("jobs/env.sh", "export BENCH_MPI=chosen")
        self.script("tests/support/mpirun.sh", '[[ $BENCH_MPI == chosen ]] || exit 9', "shift", 'exec "$@"')
        self.script("python", 'case $1 in -m) echo gloo ;; *) echo table >"$2" ;; esac')
        self.script("build/all_reduce_bench", '[[ $4 != "$(cat "$BREAKS")" ]] || exit 1', "echo new")
        (self.folder / "breaks").write_text("2")  # invented nodes: the third of five
        old = self.folder / "perf/results/all_reduce/ranks-2.csv"
        old.write_text("old\n")
        environment = {"DTRAIN_PYTHON": str(self.folder / "python"), "BREAKS": str(self.folder / "breaks"), "TMPDIR": str(self.folder)}
        self.assertEqual(self.call("perf/all_reduce.sh", self.folder / "build", **environment).returncode, 1)
        self.assertEqual(old.read_text(), "old\n")
        (self.folder / "breaks").write_text("none")
        done = self.call("perf/all_reduce.sh", self.folder / "build", **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual({file.name: file.read_text() for file in old.parent.iterdir()},
                         {**{f"ranks-{of}.csv": "new\n" for of in ("2", "4", "4-nodes-2")}, **{f"gloo-{ranks}.csv": "gloo\n" for ranks in (2, 4)},
                          "table.md": "table\n"})
        self.assertEqual(list(self.folder.glob("tmp*")), [])

    def test_a_profile_that_is_ended_ends_what_it_started(self):
        self.script("dtrain", f"echo $$ >{self.folder}/started.part && mv {self.folder}/started.part {self.folder}/started", "exec sleep 100")
        (self.folder / "scratch").mkdir()
        profile = subprocess.Popen([sys.executable, str(ROOT / "perf/gpu/step_profile.py"), "--dtrain", str(self.folder / "dtrain"), "--cases", "gpt2-124M"],
                                   env=os.environ | {"TMPDIR": str(self.folder / "scratch")}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(profile.kill)
        until = time.monotonic() + 60
        while not (self.folder / "started").exists():
            self.assertIsNone(profile.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        profile.send_signal(signal.SIGTERM)
        self.assertEqual(profile.wait(30), 143)
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.folder / "started").read_text()), 0)
        self.assertEqual(list((self.folder / "scratch").iterdir()), [])

    def test_benchmarks_do_without_packages_that_are_optional(self):
        for file in (ROOT / "perf").glob("*/CMakeLists.txt"):
            self.assertNotRegex(file.read_text(), r"find_package\([^)]*REQUIRED", file)
        for folder in re.search(r"foreach\(folder ([^)]*)\)", (ROOT / "perf/CMakeLists.txt").read_text())[1].split():
            self.assertTrue((ROOT / "perf" / folder / "CMakeLists.txt").exists(), folder)


if __name__ == "__main__":
    unittest.main()
