"""Whole runs: the folder they leave, its checkpoints, exports, and bad input met on the way."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

import h5py
import numpy as np
import drawn
from faults import fault_library
from program import DTRAIN, MPIRUN, SHORT, ProgramTest


def flip_byte(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


class RunTest(ProgramTest):
    def train(self, *arguments, ranks=2):
        return self.succeed(*SHORT, "--name", "mine", *arguments, ranks=ranks)

    def checkpoint(self):
        return self.folder / "runs/mine/checkpoints/best"

    def test_its_own_file_resumes_it_and_never_replaces_it(self):
        self.train("--overwrite", "--learning-rate", 0.01, "--limit-steps", 4)
        own = self.folder / "runs/mine/config.toml"
        self.assertIn("\noverwrite = false\n", own.read_text())
        marked = self.folder / "runs/mine/checkpoints/step-00000004/manifest.json"
        before = marked.read_bytes()
        self.refuse(2, ["learning-rate", "--config runs/mine/config.toml --name mine"], *SHORT, "--name", "mine", "--learning-rate", 0.02,
                               "--limit-steps", 6, ranks=2)
        own.write_text(own.read_text().replace("overwrite = false", "overwrite = true"))  # as earlier versions wrote it
        self.succeed("--config", "runs/mine/config.toml", "--name", "mine", "--limit-steps", 6, ranks=2)
        self.assertEqual(marked.read_bytes(), before, "the run was begun anew")

    def test_says_when_its_output_cannot_be_written(self):
        self.train(ranks=1)
        self.assertEqual(self.run_program("report", "runs/mine").returncode, 0)
        for words in (["report", "runs/mine"], ["export", "runs/mine", "mine.h5"], ["--print-config"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([DTRAIN, *words], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stderr.count("standard output: cannot be written"), 1, done.stderr)

    def test_leaves_a_completed_run_whose_name_is_taken(self):
        self.train()
        run = self.folder / "runs/mine"
        self.assertEqual((run / "state").read_text(), "completed\n")
        with h5py.File(run / "results.h5") as results:
            self.assertEqual(results.attrs["status"], b"completed")
            self.assertIn("model = \"mlp\"", results.attrs["config"].decode())
            self.assertIn("--limit-steps 4", results.attrs["command_line"].decode())
        before = hashlib.sha256((run / "results.h5").read_bytes()).digest()
        self.refuse(2, ["runs/mine", "finished", "--overwrite"], *SHORT, "--name", "mine", ranks=2)
        self.assertEqual(hashlib.sha256((run / "results.h5").read_bytes()).digest(), before)
        note = self.write("runs/mine/notes.txt", "x")
        self.train("--overwrite", "--seed", "2")
        self.assertTrue(note.exists(), "only what a run leaves is replaced")
        self.assertNotEqual(hashlib.sha256((run / "results.h5").read_bytes()).digest(), before)

    def spin_setting(self, threads, environment):
        """GOMP_SPINCOUNT of a process that trains; None where it has none."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_WAIT", "GOMP_"))}
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        with subprocess.Popen([DTRAIN, "--threads", str(threads), "--epochs", "100000", "--quiet", "--name", "spin"], cwd=self.folder,
                              env={**clean, **environment}) as process:
            while not (self.folder / "runs/spin/state").exists() and process.poll() is None:
                time.sleep(0.01)
            words = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            self.assertIsNone(process.poll())
            process.kill()
        return {word.partition(b"=")[0]: word.partition(b"=")[2] for word in words}.get(b"GOMP_SPINCOUNT")

    def test_threads_that_wait_spin_for_a_moment_only(self):
        self.assertEqual(self.spin_setting(2, {}), b"400")
        self.assertIsNone(self.spin_setting(1, {}), "one thread waits for no other")
        self.assertIsNone(self.spin_setting(2, {"OMP_WAIT_POLICY": "active"}), "what the user has set counts")
        self.assertEqual(self.spin_setting(2, {"GOMP_SPINCOUNT": "7"}), b"7")

    def test_name_follows_the_slurm_job(self):
        self.succeed(*SHORT, ranks=1, environment={"SLURM_JOB_ID": "4711"})
        self.assertTrue((self.folder / "runs/mlp-synthetic-4711/state").exists())
        self.succeed(*SHORT, ranks=2)
        names = [path.name for path in (self.folder / "runs").iterdir()]
        self.assertTrue(any(re.fullmatch(r"mlp-synthetic-\d{8}-\d{6}", name) for name in names), names)

    def start(self, *arguments, environment=None, name="long", launcher=(), stdin=None):
        """A run by one process, or under `launcher`, that lasts until it is asked to stop, and is in its first steps."""
        command = [*launcher, DTRAIN, "--model", "mlp", "--threads", "1", "--epochs", "10000", "--schedule", "constant", "--name", name,
                   "--quiet", *arguments]
        process = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **(environment or {})}, text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=stdin)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        limit = time.monotonic() + 60
        while not (self.folder / "runs" / name / "results.h5").exists():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.02)
        return process

    def test_ctrl_c_leaves_a_checkpoint(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 75, said)
        self.assertEqual((self.folder / "runs/long/state").read_text(), "preempted\n")
        self.assertIn("once more: ends at once", said)
        self.assertFalse((self.folder / "runs/long/alive").exists())

    def test_ctrl_c_twice_ends_at_once_and_the_dead_run_is_told_from_a_live_one(self):
        slow = {"LD_PRELOAD": str(fault_library(self.folder)), "DTRAIN_FAULTS": "slow_sync,"}  # seconds for a checkpoint
        process = self.start("--checkpoint-every", "100000steps", environment=slow)
        alive = (self.folder / "runs/long/alive").read_text().split()
        self.assertEqual(alive[:2], [os.uname().nodename, str(process.pid)])
        self.assertIn("running", self.succeed("report", "runs/long"))
        process.send_signal(signal.SIGINT)
        process.stderr.readline()
        self.assertIn("once more", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        self.assertEqual((self.folder / "runs/long/state").read_text(), "running\n")
        said = self.succeed("report", "runs/long")
        self.assertIn("incomplete", said)
        self.assertIn("the same command resumes it", said)
        done = self.run_program("--model", "mlp", "--threads", "1", "--epochs", "10000", "--schedule", "constant", "--name", "long",
                                "--exit-after", "0.01s")
        self.assertEqual(done.returncode, 75, done.stderr)

    def test_a_launcher_that_closes_the_input_ends_the_run(self):
        """As Open MPI's mpirun does at Ctrl-C, half a second before it kills its ranks."""
        process = self.start(stdin=subprocess.PIPE)
        process.send_signal(signal.SIGCONT)  # a suspended job goes on: the input is open
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "it goes on")
        process.stdin.close()
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(timeout=60), 75)
        self.assertEqual((self.folder / "runs/long/state").read_text(), "preempted\n")

    def test_a_job_whose_input_has_ended_long_ago_goes_on_when_it_is_continued(self):
        process = self.start(stdin=subprocess.PIPE)
        process.stdin.close()
        time.sleep(1)
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "it goes on")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(timeout=60), 75)

    def test_ctrl_c_to_mpirun_leaves_runs_that_resume_and_most_of_them_saved(self):
        """It kills its ranks after half a second. A small run has written its checkpoint by then; on a busy machine one of three may not have."""
        states = []
        for name in "abc":
            process = self.start(name=name, launcher=[MPIRUN, "2"], stdin=subprocess.PIPE)
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
            process.stdin.close()
            states.append((self.folder / "runs" / name / "state").read_text().strip())
            self.assertIn("the same command resumes it", self.succeed("report", f"runs/{name}"))
        self.assertLessEqual(set(states), {"preempted", "running"})
        self.assertGreaterEqual(states.count("preempted"), 2, states)

    def test_a_live_run_is_left_alone(self):
        process = self.start()
        for more in [], ["--overwrite"], ["--resume", "none"]:
            self.refuse(2, ["runs/long", "under way", str(process.pid)], *SHORT, "--name", "long", *more)
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.wait(timeout=60), 75, "its folder is there")

    def test_a_start_that_has_nothing_written_yet_is_left_alone(self):
        (self.folder / "runs/mine").mkdir(parents=True)
        start = pathlib.Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(") ")[2].split()[19]
        holder = self.write("runs/mine/alive", f"{os.uname().nodename} {os.getpid()} {start}\n")
        self.refuse(2, ["runs/mine", "under way"], *SHORT, "--name", "mine")
        self.assertTrue(holder.exists())
        holder.write_text(f"{os.uname().nodename} {os.getpid()} {int(start) + 1}\n")  # an earlier process of that number
        self.train(ranks=1)
        self.assertFalse(holder.exists())

    def test_runs_of_one_moment_have_folders_of_their_own(self):
        command = [DTRAIN, *SHORT, "--threads", "1"]
        runs = [subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for run in runs:
            self.assertEqual((run.wait(timeout=60), run.communicate()[1]), (0, ""))
        states = [path.read_text() for path in self.folder.glob("runs/*/state")]
        self.assertEqual(states, 4 * ["completed\n"])

    def test_checkpoint_is_whole_and_exports_equal_it(self):
        self.train()
        folder = self.checkpoint()
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual((manifest["step"], manifest["model"], manifest["dataset"]), (4, "mlp", "synthetic"))
        for entry in manifest["files"]:
            self.assertEqual(hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest(), entry["sha256"])
        self.succeed("export", folder, "out.h5")
        self.succeed("export", folder, "out.safetensors")
        data = (self.folder / "out.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        with h5py.File(folder / "part-00000.h5") as part, h5py.File(self.folder / "out.h5") as out:
            names = list(part["model"])
            self.assertIn("input_fc.weight", names)
            self.assertEqual(list(out["model"]), names)
            for name in names:
                weights = part["model"][name][()]
                self.assertTrue(np.isfinite(weights).all() and weights.std() > 0)
                np.testing.assert_array_equal(out["model"][name][()], weights)
                begin, end = header[name]["data_offsets"]
                flat = np.frombuffer(data[8 + length + begin:8 + length + end], np.float32)
                np.testing.assert_array_equal(flat.reshape(header[name]["shape"]), weights)

    def test_export_refuses_damage_and_nonsense(self):
        self.train(ranks=1)
        folder = self.checkpoint()
        self.refuse(2, ["out.txt", ".safetensors"], "export", folder, "out.txt")
        self.refuse(4, ["runs", "manifest.json"], "export", "runs", "out.h5")
        part = folder / "part-00000.h5"
        flip_byte(part, part.stat().st_size // 2)
        self.refuse(4, ["part-00000.h5", "damaged"], "export", folder, "out.h5")
        self.assertFalse((self.folder / "out.h5").exists())

    def test_missing_dataset_leaves_the_name_free(self):
        arguments = [*SHORT, "--dataset", "absent", "--name", "mine"]
        self.refuse(3, ["absent"], *arguments, ranks=2)
        self.assertFalse((self.folder / "runs/mine").exists())
        (self.folder / "half").mkdir()
        self.refuse(3, ["dataset.json"], *SHORT, "--dataset", "./half", ranks=2)

    def test_staged_dataset_trains_until_a_byte_flips(self):
        self.succeed("stage", "small", "--format", "synthetic", "--samples", "512")
        self.train("--dataset", "small")
        shard = self.folder / "data/staged/small/train-00000-of-00001.h5"
        with h5py.File(shard) as file:
            inputs = file["inputs"]
            places = [inputs.id.get_chunk_info(i).byte_offset for i in range(inputs.id.get_num_chunks())]
        for place in places:
            flip_byte(shard, place + 5)
        sentence = self.refuse(3, ["train-00000-of-00001.h5"], *SHORT, "--dataset", "small", "--name", "other", ranks=2)
        self.assertIn("dtrain:", sentence)

    def test_staging_refuses_bad_originals(self):
        self.refuse(3, ["absent"], "stage", "x", "--from", "absent")
        (self.folder / "raw").mkdir()
        self.write("raw/train-images-idx3-ubyte", "this is no IDX file")
        self.refuse(3, ["raw"], "stage", "x", "--from", "raw")
        self.assertFalse((self.folder / "data/staged/x").exists())

    def test_report_reads_the_run_and_refuses_another_version(self):
        self.train()
        self.assertIn("mine", self.succeed("report", "runs/mine"))
        self.refuse(2, ["absent"], "report", "absent")
        shutil.copytree(self.folder / "runs/mine", self.folder / "runs/later")
        with h5py.File(self.folder / "runs/later/results.h5", "r+") as results:
            results.attrs["version"] = 99
        self.refuse(3, ["results.h5", "99"], "report", "runs/later")

    def test_dry_run_leaves_nothing(self):
        text = self.succeed("--dry-run", "--model", "cnn", ranks=2)
        self.assertIn("data=2", text)
        self.assertFalse((self.folder / "runs").exists())

    def test_dry_run_of_a_model_too_large_for_any_machine_here(self):
        text = self.succeed("--dry-run", "--model", "gpt", "--model-option", "preset=gpt3-175b", "--cluster", "384x8",
                            "--mesh", "data=24,pipe=16,tensor=8", "--global-batch", 1536, "--memory-limit", "80GiB")
        parameters = int(re.search(r"(\d+) parameters", text)[1])  # a slow start has lines of its own
        self.assertEqual(parameters, 174604259328)  # with GPT-2's vocabulary of 50257
        self.assertRegex(text, r"input +\[1, 2048\]")
        self.assertIn("mesh data=24,pipe=16,tensor=8", text)
        stages = [line for line in text.splitlines() if line.startswith("memory of pipeline rank")]
        self.assertEqual(len(stages), 16)
        held = [float(line.split("parameters ")[1].split()[0]) for line in stages]
        # What all ranks hold is the model; positions, and six norms and biases a layer, each of a tensor group has.
        common = 12288 * (2048 + 96 * 6 + 2)
        self.assertAlmostEqual(8 * sum(held) * 2**20 / 4 / (parameters + 7 * common), 1, delta=1e-5)
        self.assertLess(max(float(line.split("estimated: ")[1].split()[0]) for line in stages), 80 * 1024)
        # 96 layers have 4 sums each of [1536, 2048, 12288] floats; each of 8 ranks sends 14 / 8 of it.
        volume = float(text.split("sums of slices on the tensor axis: ")[1].split()[0])
        self.assertAlmostEqual(volume / (96 * 4 * 1536 * 2048 * 12288 * 4 * 14), 1, delta=0.02)
        between = [line for line in text.splitlines() if line.endswith(" of them between nodes")]
        self.assertEqual([line.split(",")[1].split()[0] for line in between], ["gradients", "activations"])
        rows = lambda said: [line for line in said.splitlines() if re.match(r" *\d+ +\d+  node\d", line)]  # noqa: E731
        self.assertEqual(len(rows(text)), 16)
        self.assertIn("and 3056 more, of 384 nodes in all: --all-ranks lists them", text)
        every = self.succeed("--dry-run", "--all-ranks", "--cluster", "8x4", "--mesh", "data=32")
        self.assertEqual([int(line.split()[0]) for line in rows(every)], list(range(32)))
        across = self.succeed("--dry-run", "--cluster", "2x2", "--mesh", "tensor=4")
        self.assertRegex(across, r"tensor axis: \d+ bytes, \d+ of them between nodes")
        self.refuse(2, ["--memory-limit", "the nearest, --strategy zero3"], "--dry-run", "--model", "gpt", "--model-option", "preset=gpt3-175b",
                    "--cluster", "384x8", "--mesh", "data=384,tensor=8", "--global-batch", 1536, "--memory-limit", "4GiB")

    def test_topology_shows_every_rank_once(self):
        lines = self.succeed("topology", "--mesh", "data=3", ranks=3).splitlines()
        self.assertIn("data=3,pipe=1,tensor=1", lines[0])
        self.assertEqual([line.split()[0] for line in lines[2:5]], ["0", "1", "2"])
        self.refuse(2, ["--mesh data=2", "3"], "topology", "--mesh", "data=2", ranks=3)

    def test_topology_shows_who_talks_to_whom(self):
        text = self.succeed("topology", "--mesh", "data=2,pipe=2", ranks=4)
        self.assertRegex(text, r"pipe groups, 2 of 2 ranks, pass on activations\n  0 1 +memory.*\n  2 3 +memory")
        self.assertRegex(text, r"data groups, 2 of 2 ranks, pass on gradients\n  0 2 +memory.*\n  1 3 +memory")
        self.assertNotIn("tensor groups", text)
        self.refuse(2, ["--rank-order random", "placed or launched"], "topology", "--rank-order", "random")

    def test_the_single_core_that_mpirun_binds_to_is_widened(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2 or "Open MPI) 5" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
            self.skipTest("needs two cores and Open MPI 5")
        clean = {key: value for key, value in os.environ.items() if "rmaps" not in key}
        clean.update({f"{who}_ALLOW_RUN_AS_ROOT{how}": "1" for who in ("OMPI", "PRTE") for how in ("", "_CONFIRM")})

        def masks(*options):
            done = subprocess.run(["mpirun", "-np", "1", *options, DTRAIN, "topology"], env=clean, text=True, timeout=60,
                                  capture_output=True)
            return done.stdout.splitlines()[2].split()[-1]

        self.assertNotIn(masks(), [str(core) for core in cores])  # a run of cores, not a single one
        self.assertIn(masks("--bind-to", "core"), [str(core) for core in cores])  # as it was asked for

    def test_topology_benchmark_keeps_what_it_measured(self):
        text = self.succeed("topology", "--benchmark", "--sizes", "4KiB,1MiB", "--output", "links.h5", ranks=2)
        with h5py.File(self.folder / "links.h5") as file:
            self.assertEqual(file.attrs["format"], b"dtrain.measurements")
            self.assertEqual(len(file["topology"]), 2)
            rows = file["measurements"][:]
        self.assertEqual(len(rows), 2 * (4 + 5))  # sizes x (algorithms of all_reduce + other collectives)
        for row in rows:
            self.assertTrue(0 < row["least_s"] <= row["median_s"] <= row["greatest_s"], row)
            self.assertIn(row["operation"].decode(), text)
        self.refuse(2, ["--sizes 4KB", "4KiB"], "topology", "--benchmark", "--sizes", "4KB", ranks=2)
        self.refuse(2, ["nowhere/links.h5", "--output"], "topology", "--benchmark", "--output", "nowhere/links.h5", ranks=2)


if __name__ == "__main__":
    drawn.main()
