"""Damaged and missing data end every rank with exit code 3 and one sentence, printed once, however it is read."""

import sys
import tempfile
import unittest
from pathlib import Path

from dtrain_run import run

BINARY = sys.argv.pop()


class BadDataTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        run(BINARY, 1, "stage", "small", "--format", "synthetic", cwd=self.folder)
        self.dataset = self.folder / "data" / "staged" / "small"

    def refuse(self, words, *options):
        done = run(BINARY, 3, "--dataset", "small", "--epochs", 1, "--name", "bad", *options, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        sentences = [line for line in done.stderr.splitlines() if line.startswith("dtrain: ")]
        self.assertEqual(len(sentences), 1, done.stderr)
        for word in words:
            self.assertIn(word, sentences[0])

    def test_a_flipped_byte_is_found_however_the_shards_are_read(self):
        shard = self.dataset / "train-00000-of-00001.h5"
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 0x10
        shard.write_bytes(content)
        (self.folder / "copy").mkdir()
        for staging in ("none", "memory", f"local={self.folder / 'copy'}"):
            with self.subTest(staging=staging):
                self.refuse(["train-00000-of-00001.h5", "; "], "--staging", staging)

    def test_a_truncated_shard_is_refused(self):
        shard = self.dataset / "train-00000-of-00001.h5"
        shard.write_bytes(shard.read_bytes()[:100000])
        self.refuse(["train-00000-of-00001.h5"])

    def test_a_folder_without_dataset_json_is_no_dataset(self):
        (self.dataset / "dataset.json").unlink()
        self.refuse(["dataset.json", "stage"])


if __name__ == "__main__":
    unittest.main()
