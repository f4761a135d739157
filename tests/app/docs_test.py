"""What README.md and docs/ say of the command line is what the program does."""
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from program import DTRAIN, LIMIT_S, ProgramTest

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages whose first command needs a network, a compiler, a cluster or an hour, or that have a test of their own.
NOT_RUN = {"README.md", "developing.md", "installing.md", "options.md", "tutorial.md", "speed.md", "study.md"}


def commands_of(text):
    """The lines of all shell blocks, joined where one ends with a backslash."""
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()


class DocsTest(ProgramTest):
    def test_options_page_is_what_the_program_prints(self):
        written = (TOP / "docs/options.md").read_text()
        self.assertEqual(written, self.succeed("--help=markdown"), "to mend: ./dtrain --help=markdown > docs/options.md")
        self.assertIn(self.succeed("plan", "--help=markdown"), written)

    def test_commands_have_options_that_exist(self):
        known = {}  # command: options
        for part in re.split(r"^## dtrain ", self.succeed("--help=markdown"), flags=re.MULTILINE)[1:]:
            known[part.split()[0]] = set(re.findall(r"^\| `(?:-h,)?(--[a-z0-9-]+)", part, re.MULTILINE))
        self.assertIn("--mesh", known["train"])
        for page in PAGES:
            for line in commands_of(page.read_text()):
                words = shlex.split(line, comments=True)
                if "./dtrain" not in words or any(word.endswith(".py") for word in words[:words.index("./dtrain")]):
                    continue  # or it is what a script tries
                behind = words[words.index("./dtrain") + 1:]
                command = behind[0] if behind and behind[0] in known else "train"
                for word in behind:
                    if word in ("|", ">", "&&", ";"):
                        break
                    if word.startswith("--"):
                        self.assertIn(word.split("=")[0], known[command], f"{page.name}: {line}")

    def test_first_command_of_each_page_works(self):
        for name in "jobs", "tests", ".deps":
            (self.folder / name).symlink_to(TOP / name)
        (self.folder / "dtrain").symlink_to(DTRAIN)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_COMM_", "PMIX_"))}
        environment.update(PATH=f"{pathlib.Path(os.environ['DTRAIN_MPIRUN']).parent}:{environment['PATH']}",
                           OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        for page in PAGES:
            if page.name in NOT_RUN:
                continue
            with self.subTest(page=page.name):
                done = subprocess.run(["bash", "-ec", BLOCK.search(page.read_text()).group(1)], cwd=self.folder, text=True,
                                      env=environment, capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
