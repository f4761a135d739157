"""The forms of the help: each has every option that the program has; man shows the pages, and bash and zsh complete words."""
import pathlib
import re
import shutil
import subprocess
import unittest

from program import DTRAIN, LIMIT_S, ProgramTest

COMMANDS = "train stage report evaluate predict generate export plan privacy topology doctor".split()


def print_help(form):
    return subprocess.run([DTRAIN, "--help=" + form], check=True, text=True, capture_output=True, timeout=LIMIT_S).stdout


def options_by_command(markdown):
    parts = re.split(r"^## dtrain ", markdown, flags=re.MULTILINE)[1:]
    return {part.split()[0]: re.findall(r"^\| `(?:-h,)?(--[a-z0-9-]+)", part, re.MULTILINE) for part in parts}


class HelpTest(ProgramTest):
    def complete(self, *words):
        """What bash offers for the last of `words`; it breaks words at = as it does for a user."""
        parts = [part for word in words for part in re.split("(=)", word) if part or word == ""]
        script = self.write("completion", self.script)
        done = subprocess.run(
            ["bash", "--norc", "-c", 'script=$1; shift; . "$script"; set -- "$@"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
             'registered=$(complete -p dtrain) || exit 1; function=${registered##*-F }; "${function%% *}"; '
             'printf "%s\\n" "${COMPREPLY[@]}"', "bash", str(script), *parts],
            text=True, capture_output=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def complete_in_zsh(self, *lines):
        """What zsh offers at the end of each line. All that is offered passes through compadd; the line itself says when it is over."""
        if not shutil.which("zsh") or not shutil.which("script"):
            self.skipTest("zsh or util-linux's script is not installed")
        said = self.write("said", "")
        self.write("dtrain", f"#!/bin/sh\necho --- >>{said}\n").chmod(0o755)
        start = self.write("start", f"""
autoload -U compinit; compinit -u -D
. {self.write("completion.zsh", self.zsh_script)}
LISTMAX=1000
compadd() {{
  if (( ! ${{argv[(I)-[OAD]]}} )); then
    local -a hits
    builtin compadd -O hits "$@"
    (( ! ${{#hits}} )) || print -rl -- $hits >>{said}
  fi
  builtin compadd "$@"
}}
function dtrain mpirun {{ print -- --- >>{said} }}
""")
        session = "".join(line + "\n" for line in [f". {start}", *(line + "\t" for line in lines), "exit"])
        done = subprocess.run(["script", "-qec", "zsh -f -i", "/dev/null"], text=True, timeout=LIMIT_S, capture_output=True,
                              input=session, cwd=self.folder)
        offered = [part.split() for part in said.read_text().split("---\n")]
        self.assertEqual(len(offered), len(lines) + 1, done.stdout)
        return offered[:-1]

    @classmethod
    def setUpClass(cls):
        cls.script = print_help("bash")
        cls.zsh_script = print_help("zsh")
        cls.options = options_by_command(print_help("markdown"))

    def test_bash_reads_the_script(self):
        script = self.write("completion", self.script)
        subprocess.run(["bash", "-n", script], check=True)
        if shutil.which("shellcheck"):
            found = subprocess.run(["shellcheck", "--shell=bash", script], text=True, capture_output=True)
            self.assertEqual(found.returncode, 0, found.stdout)

    def test_bash_offers_every_option_of_every_command(self):
        self.assertEqual(self.complete("./dtrain", ""), COMMANDS)
        self.assertEqual(list(self.options), COMMANDS)
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertIn("--help", self.options[command])
                self.assertEqual(sorted(self.complete("dtrain", command, "--")), sorted(self.options[command]))
        self.assertEqual(self.complete("dtrain", "--"), self.complete("dtrain", "train", "--"))

    def test_bash_offers_values(self):
        self.assertEqual(self.complete("dtrain", "sta"), ["stage"])
        self.assertEqual(self.complete("dtrain", "--glo"), ["--global-batch"])
        self.assertEqual(self.complete("dtrain", "--precision", "fp"), ["fp32", "fp64", "fp16"])
        self.assertEqual(self.complete("dtrain", "--precision=b"), ["bf16"])
        self.assertEqual(self.complete("dtrain", "--device="), ["auto", "cpu", "cuda"])
        self.assertEqual(self.complete("dtrain", "evaluate", "last", "--split", "t"), ["train", "test"])
        self.assertIn("resnet18", self.complete("dtrain", "--model", ""))
        self.assertEqual(self.complete("dtrain", "--epochs", ""), [])
        self.assertEqual(self.complete("mpirun", "-np", "2", "./dtrain", "--mes"), ["--mesh"])
        self.assertEqual(self.complete("mpirun", "-np", "2", "./other", "--mes"), [])

    def test_bash_completes_on_its_own(self):
        """A shell with a terminal: the word before a tab becomes the option."""
        script = self.write("completion", self.script)
        if not shutil.which("script"):
            self.skipTest("util-linux's script is not installed")
        done = subprocess.run(["script", "-qec", "bash --norc -i", "/dev/null"], text=True, timeout=LIMIT_S, capture_output=True,
                              input=f"dtrain() {{ echo \"got:$*\"; }}; . {script}\ndtrain --glo\t 4\nexit\n")
        self.assertIn("got:--global-batch 4", done.stdout.replace("\r", ""))

    def test_zsh_offers_every_option_of_every_command(self):
        offered = self.complete_in_zsh("./dtrain ", "dtrain --", *(f"dtrain {command} --" for command in COMMANDS))
        self.assertEqual(offered[0], COMMANDS)
        for command, found in zip(["train", *COMMANDS], offered[1:]):
            with self.subTest(command=command):
                self.assertEqual(sorted({option.rstrip("=") for option in found}), sorted(self.options[command]))

    def test_zsh_offers_values(self):
        self.write("NET.pt2", "")
        lines = {"dtrain sta": ["stage"], "./dtrain --glo": ["--global-batch"], "dtrain --precision fp": ["fp32", "fp64", "fp16"],
                 "dtrain --precision=b": ["bf16"], "dtrain --device=": ["auto", "cpu", "cuda"], "dtrain --epochs ": [],
                 "dtrain evaluate last --split t": ["train", "test"], "dtrain --model re": ["resnet18"], "dtrain --model NE": ["NET.pt2"],
                 "dtrain --model-option a=1 --model-op": ["--model-option"],
                 "mpirun -np 2 ./dtrain --mes": ["--mesh"], "mpirun -np 2 ./other --mes": []}
        for line, found in zip(lines, self.complete_in_zsh(*lines)):
            with self.subTest(line=line):
                self.assertEqual(found, lines[line])

    def test_zsh_finds_the_script_in_its_path_of_functions(self):
        """As it is installed: a file that holds the function and calls it."""
        self.write("_dtrain", self.zsh_script)
        done = subprocess.run(["zsh", "-f", "-c", "fpath=($1 $fpath); autoload -U compinit; compinit -u -D; print $_comps[dtrain]", "zsh",
                               str(self.folder)], text=True, capture_output=True, timeout=LIMIT_S) if shutil.which("zsh") else None
        if done is None:
            self.skipTest("zsh is not installed")
        self.assertEqual((done.stdout, done.stderr), ("_dtrain\n", ""))

    def test_man_pages_have_every_option(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                page = self.succeed(command, "--help=man")
                name = "dtrain" if command == "train" else "dtrain-" + command
                self.assertTrue(page.startswith(f'.TH "{name.upper()}" 1'.replace("-", "\\-")), page[:80])
                for option in self.options[command]:
                    self.assertRegex(page, re.compile(r"^\\fB(\\-h,)?" + re.escape(option.replace("-", "\\-")) + r"\\fR", re.MULTILINE))
                if not shutil.which("groff"):
                    continue
                read = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, text=True, capture_output=True)
                self.assertEqual((read.returncode, read.stderr), (0, ""))
        top = self.succeed("--help=man")
        self.assertEqual(top, self.succeed("train", "--help=man"))
        for command in COMMANDS[1:]:
            self.assertIn(f"dtrain\\-{command} (1)", top)

    def test_forms_that_there_are_not(self):
        self.refuse(2, ["--help=html", "markdown, man, bash, zsh"], "--help=html")
        self.refuse(2, ["--help=", "markdown, man, bash, zsh"], "stage", "--help=")
        self.refuse(2, ["--help=man", "stands alone", "--epochs"], "--help=man", "--epochs", "2")


if __name__ == "__main__":
    unittest.main()
