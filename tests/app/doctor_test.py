"""What `dtrain doctor` and the look before a training run say: each finding provoked, with its remedy and the exit code."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import faults
from program import DTRAIN, SHORT, ProgramTest, has_ulfm


SANITIZED = "libasan" in subprocess.run(["ldd", DTRAIN], capture_output=True, text=True, check=True).stdout


class DoctorTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """A rank that does not come is waited for for half a minute; the other tests run meanwhile."""
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.library = faults.fault_library(pathlib.Path(scratch.name))
        waiting = ThreadPoolExecutor(1)
        cls.addClassCleanup(waiting.shutdown)
        cls.without_a_rank = None if SANITIZED else waiting.submit(cls.look_without_a_rank)

    @classmethod
    def look_without_a_rank(cls):
        test = cls()
        try:
            test.setUp()
            return test.run_program("doctor", ranks=3, **test.suffer("stopped"))
        finally:
            test.doCleanups()

    def find(self, level, words, remedy, *arguments, **how):
        """A line of that level with all of `words`, its remedy beneath, and the exit code that belongs to it."""
        done = self.run_program("doctor", *arguments, **how)
        said = done.stdout + done.stderr
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 1 if "PROBLEM" in done.stdout else 0, said)
        for line, below in zip(lines, lines[1:]):
            if line.startswith(level) and all(word in line for word in words):
                self.assertRegex(below, r"^ {23} -> ")
                self.assertIn(remedy, below)
                return done.stdout
        return self.fail(f"no {level} with {words}:\n{said}")

    def suffer(self, *names, **more):
        """How the program runs with these faults."""
        return self.preload(self.library, f"DTRAIN_FAULTS={''.join(name + ',' for name in names)}",
                            *(f"{key}={value}" for key, value in more.items()))

    def preload(self, library, *variables):
        if SANITIZED:
            self.skipTest("a sanitizer wants to be loaded first")
        return {"under": ("env", f"LD_PRELOAD={library}", *variables)}

    def test_says_what_it_looked_at(self):
        for ranks in 0, 1, 2:
            with self.subTest(ranks=ranks):
                text = self.succeed("doctor", ranks=ranks)
                for word in ("launch", "build", "cores", "LibTorch", "Open MPI", "HDF5", "threads", "shared memory", "output"):
                    self.assertIn(word, text)
                self.assertRegex(text.splitlines()[-1], r"^no problems, \w+ notes?$")
                self.assertEqual(len(re.findall("^ok       MPI  ", text, re.MULTILINE)), 1, "alike on all ranks: said once")
        self.assertFalse((self.folder / "runs").exists())
        self.assertEqual(list(self.folder.glob(".dtrain*")), [])

    def test_ranks_that_became_jobs_of_their_own(self):
        step = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
        self.find("PROBLEM", ["launch", "Slurm started 4 tasks but MPI sees 4 jobs of one rank"], "srun --mpi=pmix", environment=step)
        silent = self.run_program("doctor", environment={**step, "SLURM_PROCID": "2"})
        self.assertEqual((silent.returncode, silent.stdout), (1, ""))
        self.find("PROBLEM", ["launch", "mpirun started 2 tasks but MPI sees 2 jobs of one rank"], "jobs/env.sh",
                  environment={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
        self.refuse(2, ["launch", "mpirun started 2 tasks", "jobs/env.sh"], *SHORT,
                    environment={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})

    def test_slurm_variables_that_contradict(self):
        self.find("note", ["launch", "2 ranks in a Slurm job of 4 tasks"], "leave -np out", ranks=2,
                  under=("env", "SLURM_NTASKS=4", "SLURM_JOB_NUM_NODES=2"))
        self.find("PROBLEM", ["launch", "all 2 ranks are on 1 of the job's 2 nodes"], "ppr:N:node", ranks=2,
                  under=("env", "SLURM_NTASKS=2", "SLURM_JOB_NUM_NODES=2"))
        script = self.write("other_job.sh", 'SLURM_JOB_ID=$OMPI_COMM_WORLD_RANK exec "$@"\n')
        self.find("PROBLEM", ["launch", "rank 1: SLURM_JOB_ID is 1 but 0 on rank 0"], "unset", ranks=2, under=("sh", script))

    def test_another_build_on_one_rank(self):
        other = faults.other_build(DTRAIN, self.folder / "dtrain-other")
        self.find("PROBLEM", ["build", "rank 1", "is another build of dtrain than rank 0"], "same program on all nodes",
                  ":", "-np", 1, other, "doctor", ranks=1)

    def test_too_few_cores(self):
        one_core = ("taskset", "-c", min(os.sched_getaffinity(0)))
        self.find("PROBLEM", ["cores", "--threads 3 but each rank may use 1 core"], "--map-by slot:PE=3", "--threads", 3, under=one_core)
        self.find("PROBLEM", ["cores", "ranks 0, 1 are all bound to core"], "--bind-to none", under=one_core, ranks=2)
        if len(os.sched_getaffinity(0)) > 1:
            self.find("note", ["cores", "each rank is bound to one core"], "--bind-to none", under=one_core, ranks=1)
        done = self.run_program(*SHORT, "--threads", 3, ranks=1, under=one_core)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dtrain: rank 0: warning: cores: --threads 3 but each rank may use 1 core; give each rank", done.stderr)
        self.assertEqual(self.run_program(*SHORT, ranks=2).stderr.count("warning"), 0)

    def test_ranks_on_one_gpu(self):
        (self.folder / "driver").mkdir()
        paths = [str(faults.one_gpu_driver(self.folder / "driver")), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        driver = {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
        self.find("note", ["GPUs", "ranks 0, 1 share GPU 0"], "one rank per GPU", "--device", "cuda", ranks=2, environment=driver)
        self.find("note", ["GPUs", "ranks 0, 1 share GPU 0", "with --device cuda"], "one rank per GPU", ranks=2, environment=driver)
        if not pathlib.Path("/dev/nvidiactl").exists():
            self.find("PROBLEM", ["GPUs", "none"], "--device cpu", "--device", "cuda")

    def test_libraries_that_do_not_fit(self):
        import h5py
        second = next((pathlib.Path(h5py.__file__).parents[1] / "h5py.libs").glob("libhdf5-*"))
        self.find("PROBLEM", ["HDF5", "2 copies are loaded", str(second)], "LD_PRELOAD", **self.preload(second))
        self.find("PROBLEM", ["HDF5", "1.8.", "is loaded but dtrain was built with 1."], "build dtrain again", **self.suffer("old_hdf5"))
        self.find("PROBLEM", ["MPI", "Open MPI v4.1.4 is loaded but dtrain was built with"], "LD_LIBRARY_PATH", ranks=2,
                  **self.suffer("old_mpi"))
        self.find("PROBLEM", ["MPI threads", "only one thread"], "MPI_THREAD_MULTIPLE", **self.suffer("one_thread"))
        if "NCCL  " in self.succeed("doctor"):
            self.find("PROBLEM", ["NCCL", "2.18.1 is loaded but dtrain was built with"], "build dtrain again", **self.suffer("old_nccl"))
            self.find("PROBLEM", ["CUDA", "11.8 is loaded but dtrain was built with"], "build dtrain again", **self.suffer("old_cuda"))
        done = self.run_program(*SHORT, ranks=2, **self.suffer("old_mpi"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("dtrain: rank 0: warning: MPI: Open MPI v4.1.4 is loaded"), 1, done.stderr)

    def test_recovery(self):
        self.find("note", ["recovery", "off"], "--with-ft ulfm", ranks=2)
        if not has_ulfm():
            self.skipTest("this MPI has no ULFM: recovery is seen off, not on")
        self.assertRegex(self.succeed("doctor", ranks=2, environment={"DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"}), r"ok +recovery +on")

    def test_little_shared_memory(self):
        self.find("PROBLEM", ["shared memory", "3 MiB of", "the ranks of a node need"], "--shm-size", ranks=2, **self.suffer("small_shm"))
        self.assertIn("3 MiB", self.succeed("doctor", **self.suffer("small_shm")), "one rank shares nothing")

    def test_an_output_folder_that_is_of_no_use(self):
        self.find("PROBLEM", ["output", "/proc is not writable"], "name another folder with --output", "--output", "/proc/runs", ranks=2)
        self.find("PROBLEM", ["output", "fsync fails: Input/output error"], "--output", **self.suffer("no_sync"))
        self.find("PROBLEM", ["output", "rename fails: Operation not permitted"], "--output", **self.suffer("no_rename"))
        self.find("PROBLEM", ["output", "3 MiB are free"], "make room", **self.suffer("no_room"))
        self.find("note", ["output", "no file locks (fcntl: No locks available)"], "HDF5_USE_FILE_LOCKING=FALSE", **self.suffer("no_locks"))
        self.find("note", ["output", "1.2 s until 1 MiB is safe"], "--checkpoint-every", **self.suffer("slow_sync"))
        self.assertEqual(list(self.folder.glob(".dtrain*")), [])

    def test_an_output_folder_that_hangs(self):
        self.find("PROBLEM", ["output", "does not answer: fcntl (F_SETLK) hangs"], "administrator", ranks=2, **self.suffer("hung_lock"))

    def test_the_rank_that_does_not_come(self):
        if self.without_a_rank is None:
            self.skipTest("a sanitizer wants to be loaded first")
        done = self.without_a_rank.result()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"rank 1 on \S+ has not come within 30 s; look whether that node answers")
        self.assertIn("3 ranks on 1 node", done.stdout, "what was found before is said")

    def test_a_full_output_folder(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
            self.skipTest("mounting a small file system needs root")
        small = self.folder / "small"
        small.mkdir()
        mounted = self.write("mounted.sh", f'mount -t tmpfs -o size=512k tmpfs {small} && exec "$@"\n')
        self.find("PROBLEM", ["output", "write fails: No space left on device"], "make room", "--output", small / "runs",
                  under=("unshare", "--mount", "sh", mounted))


if __name__ == "__main__":
    unittest.main()
