"""`dtrain stage` on text: its options, and bad originals met from the command line."""
import json
import unittest

from program import ProgramTest


class StageTextTest(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "raw").mkdir()
        for split, count in (("train", 40), ("val", 4), ("test", 3)):
            self.write(f"raw/{split}.de", "".join(f"Ein Hund sieht Mann {n % 7}.\n" for n in range(count)))
            self.write(f"raw/{split}.en", "".join(f"A dog sees man {n % 7}.\n" for n in range(count)))

    def stage(self, *options):
        self.succeed("stage", "set", "--from", "raw", "--overwrite", *options)
        return json.loads((self.folder / "data/staged/set/dataset.json").read_text())

    def refuse_staging(self, code, words, *options):
        self.refuse(code, words, "stage", "set", "--from", "raw", *options)
        self.assertFalse((self.folder / "data/staged/set").exists())
        self.assertFalse((self.folder / "data/staged/set.partial").exists())

    def test_options_reach_the_dataset(self):
        info = self.stage()
        self.assertEqual((info["task"], info["tokenizer"]["kind"]), ("translation", "word"))
        self.assertIn("hund", info["tokenizer"]["vocabulary"])
        self.assertIn("hund", self.stage("--languages", "en-de")["tokenizer"]["target_vocabulary"])
        small = self.stage("--tokenizer", "word", "--vocab-size", "7", "--min-frequency", "40", "--max-length", "5")
        self.assertEqual(small["tokenizer"]["vocabulary"], ["<pad>", "<unk>", "<start>", "<end>", "ein", "hund", "sieht"])
        self.assertEqual(small["shape"], [5])
        self.assertEqual(self.stage("--tokenizer", "char")["tokenizer"]["vocabulary"][4], " ")

    def test_a_synthetic_text_has_the_sizes_that_were_asked_for(self):
        synthetic = ["stage", "made", "--format", "synthetic", "--samples", 30]
        for task in ("language_modelling", "text_classification", "translation"):
            with self.subTest(task=task):
                self.succeed(*synthetic, "--overwrite", "--task", task, "--vocab-size", 300, "--max-length", 17)
                info = json.loads((self.folder / "data/staged/made/dataset.json").read_text())
                self.assertEqual((len(info["tokenizer"]["vocabulary"]), info["shape"]), (300, [17]))
        for option in (("--vocab-size", 300), ("--max-length", 17)):
            self.refuse(2, [option[0], "no text", "image_classification"], *synthetic, "--overwrite", *option)
        for option in (("--from", "raw"), ("--tokenizer", "word"), ("--standardize",), ("--min-frequency", 2)):
            self.refuse(2, [option[0], "synthetic"], *synthetic, "--overwrite", *option)

    def test_wrong_options_are_refused_by_name(self):
        for option, value in (("--tokenizer", "morse"), ("--vocab-size", "3"), ("--vocab-size", "many"),
                              ("--min-frequency", "0"), ("--max-length", "2"), ("--languages", "de-fr"),
                              ("--format", "papyrus")):
            with self.subTest(option=option, value=value):
                self.refuse_staging(2, [option, value], option, value)

    def test_sizes_of_a_synthetic_set_are_refused_for_others(self):
        self.refuse_staging(2, ["--samples", "all samples", "--format synthetic"], "--samples", 20)

    def test_bad_text_is_named(self):
        self.write("raw/val.en", "A dog.\n")
        self.refuse_staging(3, ["raw/val.de", "4 lines", "raw/val.en", "1"])
        (self.folder / "raw/val.en").write_bytes(b"A dog.\nCaf\xe9.\nA man.\nA dog.\n")
        self.refuse_staging(3, ["raw/val.en", "not UTF-8", "line 2"])
        self.write("raw/val.en", "A dog.\n\nA man.\nA dog.\n")
        self.refuse_staging(3, ["raw/val.en", "line 2"])


if __name__ == "__main__":
    unittest.main()
