"""--emulate: what cannot be meant is named with its file and line, before anything is allocated."""
import re
import unittest

import h5py

from program import ProgramTest

GOOD = """clock = "virtual"
compute_us_per_sample = 20
[[slow]]
rank = 0
factor = 4
"""
LINKS = """[[node]]
ranks = [0]
[[node]]
ranks = [1]
[[link]]
latency_ms = 1
"""


class EmulateTest(ProgramTest):
    def refused(self, text, words):
        self.refuse(2, ["machine.toml", words], "--emulate", self.write("machine.toml", text), "--name", "none")

    def test_values_that_cannot_be_meant(self):
        slow = "[[slow]]\nrank = {}\nfactor = {}\n"
        nodes = "[[node]]\nranks = [0]\n"
        for text, words in {
            slow.format(1, 4): "line 1: slow: there is no rank 1",
            slow.format(-1, 4): "line 1: slow: there is no rank -1",
            slow.format(0, 0.5): "a factor of 0.5",
            slow.format(0, "inf"): "a factor of inf",
            slow.format(0, "nan"): "a factor of nan",
            slow.format(0, 1e308): "a factor of 1e+308 would stand still",
            slow.format(0, 4) + "from_step = 0\n": "no steps 0 to",
            "[[node]]\nranks = [0, 2]\n": "line 1: node: there is no rank 2",
            "[[node]]\nranks = [0, 0]\n": "rank 0 is on two nodes",
            "[[node]]\nranks = []\n": "node 0 has no rank",
            nodes + "[[link]]\nlatency_ms = 5\n": "there are not two nodes to link",
            'clock = "virtual"\n': "needs the time of a sample",
            'clock = "virtual"\ncompute_us_per_sample = -1\n': "needs the time of a sample",
            'clock = "virtual"\ncompute_us_per_sample = 1\nencode_us_per_mb = -1\n': "the time of encoding",
            "": "describes nothing",
        }.items():
            with self.subTest(text):
                self.refused(text, words)

    def test_what_is_no_description(self):
        for text, words in {
            "[[slow]]\nrank = 0\nfactr = 4\n": "line 3: slow: there is no key factr",
            "speed = 4\n": "line 1: there is no key speed",
            "[[slow]]\nfactor = 4\n": "line 1: slow: rank is missing",
            "[[slow]]\nrank = 0.5\nfactor = 4\n": "line 2: slow: rank is not a whole number",
            "[[slow]]\nrank = 0\nfactor = \"four\"\n": "line 3: slow: factor is not a number",
            "slow = 4\n": "line 1: slow is no list",
            "slow = [4]\n": "line 1: slow is no table",
            "[[node]]\nranks = 0\n": "line 2: node: ranks is not a list",
            "[[node]]\nranks = [\"a\"]\n": "line 2: node: ranks holds no whole number",
            'clock = "sand"\n': 'line 1: there is no clock "sand"',
            "clock = 3\n": "line 1: clock is not text",
            "compute_us_per_sample = 20\n": "line 1: a real clock measures",
            "encode_us_per_mb = 20\n": "line 1: a real clock measures",
            "[[slow]\n": "line 1",
        }.items():
            with self.subTest(text):
                self.refused(text, words)

    def test_a_file_that_is_not_there(self):
        self.refuse(2, ["nowhere.toml"], "--emulate", "nowhere.toml")

    def test_what_it_does_not_go_with(self):
        file = self.write("good.toml", GOOD)
        self.refuse(2, ["pipelines and tensor slices"], "--emulate", file, "--mesh", "pipe=2", ranks=2)
        self.refuse(2, ["messages of one server"], "--emulate", file, "--strategy", "asgd", "--servers", 2, ranks=3)
        self.refuse(2, ["messages of one server"], "--emulate", file, "--strategy", "asgd", "--servers", 0, ranks=3)
        self.refuse(2, ["MPI's own sums"], "--emulate", self.write("links.toml", LINKS), "--all-reduce", "mpi", ranks=2)

    def test_a_dry_run_counts_what_passes_between_nodes(self):
        file = self.write("nodes.toml", "[[node]]\nranks = [0, 1]\n[[node]]\nranks = [2, 3]\n")
        model = ("--emulate", file, "--model", "mlp", "--model-option", "hidden=512", "--global-batch", 64)
        said = self.succeed("--dry-run", *model, ranks=4)
        counted = [int(number) for number in re.search(r"data axis: (\d+) bytes, (\d+) of them between nodes", said).groups()]
        self.succeed(*model, "--limit-steps", 8, "--name", "sends", "--record-steps", "off", "--quiet", ranks=4)
        sent = [0, 0]  # in all, between nodes
        with h5py.File(self.folder / "runs/sends/results.h5") as results:
            for rank, tables in results["ranks"].items():
                for row in tables["traffic"][:]:
                    sent[0] += int(row["bytes_sent"]) / 8
                    sent[1] += int(row["bytes_sent"]) / 8 if int(rank) // 2 != row["peer"] // 2 else 0
        for formula, measured in zip(counted, sent):
            self.assertTrue(0.99 < measured / formula < 1.05, (counted, sent))

    def test_servers_and_staleness(self):
        self.refuse(2, ["1 of 1 data ranks would serve", "--servers", "at least 2 ranks"], "--strategy", "asgd")
        for option, value, words in [("--servers", 2, "2 of 2 data ranks would serve"), ("--servers", -1, "-1 ranks cannot keep"),
                                     ("--staleness", -1, "-1 is too small"), ("--staleness", 1001, "1001 is too large"),
                                     ("--staleness-rate", "half", '"half" is not a value')]:
            with self.subTest(option=option, value=value):
                self.refuse(2, [option, words], "--strategy", "asgd", option, value, ranks=2)
        self.refuse(2, ["means nothing to the strategy ddp", "asgd"], "--staleness", 2)
        for options, words in [(["--mesh", "data=2,pipe=2"], "mesh of data alone"), (["--precision", "fp16"], "fp16"),
                               (["--reproducible"], "--staleness 0 has ddp's bits")]:
            with self.subTest(options=options):
                self.refuse(2, ["--strategy asgd", words], "--strategy", "asgd", *options, ranks=4)


if __name__ == "__main__":
    unittest.main()
