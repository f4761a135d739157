"""The forms of the help: each has every option that the program has; man shows the pages, and bash completes words."""
import pathlib
import re
import shutil
import subprocess
import unittest

from program import DTRAIN, LIMIT_S, ProgramTest

COMMANDS = "train stage report evaluate predict generate export plan topology doctor".split()


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

    @classmethod
    def setUpClass(cls):
        cls.script = print_help("bash")
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
        self.refuse(2, ["--help=html", "markdown, man, bash"], "--help=html")
        self.refuse(2, ["--help=", "markdown, man, bash"], "stage", "--help=")
        self.refuse(2, ["--help=man", "stands alone", "--epochs"], "--help=man", "--epochs", "2")


if __name__ == "__main__":
    unittest.main()
