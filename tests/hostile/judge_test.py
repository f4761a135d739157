"""What the judge of the hostile cases sees: words, data, and what a refused command leaves behind."""

import tempfile
import unittest
from pathlib import Path

from case import Family, nothing
from judge import Outcome, judge

REFUSAL = b"dtrain: out.h5: is there already; name another file\n"


class JudgeTest(unittest.TestCase):
    def faults(self, ended, errors=b"", output=b"", **promise):
        family = Family("judged")
        family.add("case", nothing, "export", **promise)
        outcome = Outcome(ended, seconds=0.1, peak_bytes=1, hung=False, output=output, errors=errors)
        with tempfile.TemporaryDirectory() as folder:
            return [fault.kind for fault in judge(family.cases[0], outcome, Path(folder), Path(folder))]

    def test_what_a_refusal_leaves_behind(self):
        self.assertEqual(self.faults(2, REFUSAL, code=2, after=lambda *_: ""), [])
        self.assertEqual(self.faults(2, REFUSAL, code=2, after=lambda *_: "the file was changed"), ["wrong data"])
        self.assertEqual(self.faults(0, code={0, 2}, after=lambda *_: "the file was changed"), ["wrong data"])
        self.assertEqual(self.faults(0, code=2, after=lambda *_: "the file was changed"), ["accepted", "wrong data"])

    def test_the_data_of_an_accepted_input(self):
        self.assertEqual(self.faults(0, code={0, 2}, check=lambda *_: "a row is missing"), ["wrong data"])
        self.assertEqual(self.faults(2, REFUSAL, code={0, 2}, check=lambda *_: "a row is missing"), [])

    def test_words(self):
        self.assertEqual(self.faults(2, REFUSAL, code=2, says=("out.h5", "name another")), [])
        self.assertEqual(self.faults(2, REFUSAL, code=2, says=("in.h5",)), ["sentence"])
        self.assertEqual(self.faults(0, b"dtrain: warning: r.h5.damaged", code=0, says=("r.h5.damaged",)), [])
        self.assertEqual(self.faults(0, output=b"kept as r.h5.damaged", code=0, says=("r.h5.damaged",)), [])
        self.assertEqual(self.faults(0, code=0, says=("r.h5.damaged",)), ["sentence"])
        self.assertEqual(self.faults(0, code={0, 3}, says=("line 5",)), [], "words of the refusal only")

    def test_a_check_that_cannot_run_is_found(self):
        family = Family("idle")
        for number in range(2):
            family.add(f"some are accepted {number}", nothing, code=2 * number, check=lambda *_: "")
        self.assertEqual(family.idle_checks(), [])
        family.add("none is", nothing, code={2, 3}, check=lambda *_: "")
        self.assertEqual(len(family.idle_checks()), 1)
        self.assertIn("judge_test.py:", family.idle_checks()[0])


if __name__ == "__main__":
    unittest.main()
