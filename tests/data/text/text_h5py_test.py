"""Staged text read by h5py, its ids compared with those of a tokeniser written here from the rule as it is documented.

Usage: text_h5py_test.py DATA_TOOL
"""
import collections
import gzip
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

import h5py
import numpy as np

TOOL = sys.argv.pop(1)
SPECIAL = ["<pad>", "<unk>", "<start>", "<end>"]

SPACES = [(0x00, 0x20), (0x7F, 0xA0), (0xAD, 0xAD), (0x1680, 0x1680), (0x2000, 0x200F), (0x2028, 0x202F),
          (0x205F, 0x206F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
SYMBOLS = [(0xA1, 0xBF), (0xD7, 0xD7), (0xF7, 0xF7), (0x2010, 0x2BFF), (0x2E00, 0x2E7F), (0x3001, 0x303F),
           (0xFE10, 0xFE1F), (0xFE30, 0xFE6F), (0xFF01, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65),
           (0xFFE0, 0xFFEE), (0x1F000, 0x1FAFF)]
LETTERS_AMONG_SYMBOLS = "\u00AA\u00B5\u00BA"
# Alphabets whose capitals are lowered: Latin, Greek, Cyrillic, Armenian, full-width Latin.
CAPITALS = [(0x41, 0x5A), (0xC0, 0x17F), (0x386, 0x3AB), (0x400, 0x52F), (0x531, 0x556), (0x1E00, 0x1EFF),
            (0xFF21, 0xFF3A)]


def within(character, blocks):
    return any(first <= ord(character) <= last for first, last in blocks)


def lowered(character):
    if character == "\u2019":
        return "'"
    return character.lower()[0] if within(character, CAPITALS) else character


def kind(character):
    if within(character, SPACES):
        return "space"
    if ord(character) < 0x80:
        return "word" if character.isalnum() else "symbol"
    return "symbol" if within(character, SYMBOLS) and character not in LETTERS_AMONG_SYMBOLS else "word"


def words(text):
    text = "".join(lowered(character) for character in text)
    kinds = [kind(character) for character in text]
    tokens, inside = [], False
    for at, character in enumerate(text):
        joins = character == "'" and inside and at + 1 < len(text) and kinds[at + 1] == "word"
        if kinds[at] == "word" or joins:
            tokens[-1:] = [tokens[-1] + character] if inside else tokens[-1:] + [character]
            inside = True
        else:
            inside = False
            if kinds[at] == "symbol":
                tokens.append(character)
    return tokens


def vocabulary(texts, least, most=None):
    counts = collections.Counter(token for text in texts for token in words(text))
    known = sorted((t for t, n in counts.items() if n >= least), key=lambda t: (-counts[t], t.encode()))
    return SPECIAL + (known[:most - 4] if most else known)


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, timeout=50)


SAMPLE = """Ein M\u00e4dchen in \u00dcbergr\u00f6\u00dfe sagt: \u201eDon\u2019t!\u201c \u2013 um 3,50 \u20ac (50\u00a0%).
L'\u00c9T\u00c9 d'Alsace\u2026 \u0391\u0398\u0397\u039d\u0391 \u041c\u041e\u0421\u041a\u0412\u0410 \u0401\u043b\u043a\u0430
VI\u1ec6T NAM \u0130stanbul \u6771\u4eac\u3001\u5927\u962a\u3002 a'b''c 'd' e' '90s x_y @home #1 a\u0301 \U0001F600\u200b\ufefftail
T-Shirt/T-SHIRT 100km \u00bd\u00b2\u00aa \uff21\uff22\uff0c\t\x00\x7f end"""


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.original = self.folder / "original"
        self.original.mkdir()

    def stage(self):
        done = tool("stage", "set", self.original, self.folder / "staged")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "staged/set/dataset.json").read_text())

    def arrays(self, info, split):
        shard, = info["splits"][split]["shards"]
        with h5py.File(self.folder / "staged/set" / shard["file"]) as file:
            self.assertTrue(all(array.fletcher32 and array.compression is None for array in file.values()))
            return {name: array[:] for name, array in file.items()}

    def texts(self, arrays, prefix, tokens):
        offsets = arrays[prefix + "offsets"]
        self.assertEqual((arrays[prefix + "tokens"].dtype, offsets.dtype), (np.int32, np.int64))
        self.assertEqual((offsets[0], offsets[-1]), (0, len(arrays[prefix + "tokens"])))
        return [[tokens[i] for i in arrays[prefix + "tokens"][a:b]] for a, b in zip(offsets, offsets[1:])]


class WordTokeniser(Case):
    def test_agrees_with_the_documented_rule_on_many_scripts(self):
        file = self.original / "sample.txt"
        file.write_text(SAMPLE, encoding="utf-8")
        self.assertEqual(tool("words", file).stdout.decode().splitlines(), words(SAMPLE))

    def test_agrees_on_every_character_between_letters(self):
        characters = [chr(c) for c in range(1, 0x20000) if not 0xD800 <= c < 0xE000
                      and (chr(c).lower() == chr(c) or within(chr(c), CAPITALS))]
        text = "".join(f"a{character}b " for character in characters)
        file = self.original / "all.txt"
        file.write_bytes(text.encode())
        self.assertEqual(tool("words", file).stdout.decode().split("\n")[:-1], words(text))


class Staged(Case):
    def test_pairs(self):
        german = [f"Der {n}. Mann l\u00e4uft, Satz {n % 3}!" for n in range(50)]
        english = [f"Man {n} doesn't run: sentence {n % 3}." for n in range(50)]
        for name, lines in (("train.de", german), ("train.en", english), ("val.de", german[:7]),
                            ("val.en", english[:7]), ("test_2016.de", ["Ein Unbekannter."]),
                            ("test_2016.en", ["A stranger."])):
            (self.original / (name + ".gz")).write_bytes(gzip.compress("".join(f"{x}\n" for x in lines).encode()))
        info = self.stage()
        self.assertEqual(info["task"], "translation")
        self.assertEqual([s["file"] for s in info["sources"]][:2], ["test_2016.de.gz", "test_2016.en.gz"])
        tokens = info["tokenizer"]["vocabulary"], info["tokenizer"]["target_vocabulary"]
        self.assertEqual(tokens[0], vocabulary(german, 2))
        self.assertEqual(tokens[1], vocabulary(english, 2))
        arrays = self.arrays(info, "train")
        for prefix, lines, known in (("source_", german, tokens[0]), ("target_", english, tokens[1])):
            expected = [["<start>", *(w if w in known else "<unk>" for w in words(x)), "<end>"] for x in lines]
            self.assertEqual(self.texts(arrays, prefix, known), expected)
        self.assertEqual(self.texts(self.arrays(info, "test"), "source_", tokens[0]),
                         [["<start>", "<unk>", "<unk>", ".", "<end>"]])
        self.assertEqual(info["splits"]["validation"]["samples"], 7)

    def test_reviews_from_a_tar(self):
        reviews = {(split, label, n): f"{label} film {n % 5}<br />isn't it? {split}"
                   for split in ("train", "test") for label in ("neg", "pos") for n in range(20)}
        with tarfile.open(self.original / "aclImdb_v1.tar.gz", "w:gz") as tar:
            for (split, label, n), text in [*reviews.items(), (("train", "unsup", 0), "no label")]:
                member = tarfile.TarInfo(f"aclImdb/{split}/{label}/{n}_{9 if label == 'pos' else 1}.txt")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        info = self.stage()
        self.assertEqual((info["task"], info["classes"]), ("text_classification", ["neg", "pos"]))
        self.assertEqual({k: v["samples"] for k, v in info["splits"].items()},
                         {"train": 36, "validation": 4, "test": 40})
        known = info["tokenizer"]["vocabulary"]
        self.assertNotIn("test", known)  # learned from train only
        found = collections.Counter()
        for split in ("train", "validation"):
            arrays = self.arrays(info, split)
            for text, target in zip(self.texts(arrays, "", known), arrays["targets"]):
                found[" ".join(text), int(target)] += 1
        expected = collections.Counter((" ".join(words(text.replace("<br />", " "))), int(label == "pos"))
                                       for (split, label, _), text in reviews.items() if split == "train")
        self.assertEqual(found, expected)
        self.assertEqual(info["shape"], [max(len(text.split()) for text, _ in expected)])

    def test_running_text_by_character(self):
        text = "".join(chr(97 + n * n % 23) + ("\n" if n % 30 == 0 else "") for n in range(9000)) + "\u00e4\u00f6"
        (self.original / "input.txt").write_text(text + text, encoding="utf-8")
        info = self.stage()
        self.assertEqual((info["task"], info["shape"]), ("language_modelling", [256]))
        known = info["tokenizer"]["vocabulary"]
        self.assertEqual(known, sorted(set(text)))
        cut = len(text + text) * 9 // 10
        for split, part in (("train", (text + text)[:cut]), ("validation", (text + text)[cut:])):
            tokens = self.arrays(info, split)["tokens"]
            self.assertEqual(info["splits"][split]["samples"], (len(part) - 1) // 256)
            self.assertEqual("".join(known[i] for i in tokens), part[:len(tokens)])
            self.assertEqual(len(tokens), info["splits"][split]["samples"] * 256 + 1)
        self.assertNotIn("test", info["splits"])


if __name__ == "__main__":
    unittest.main()
