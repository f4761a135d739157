"""`dtrain predict` reads new samples as `dtrain stage` read those of the training: the training's own file gives what `evaluate` says of
it, to the last bit. What cannot be read alike is refused."""

import csv
import random
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

from dtrain_run import refused, run

BINARY = sys.argv.pop()
TRAIN = ["--global-batch", 32, "--threads", 1, "--quiet"]
SMALL = ["--model", "mlp", "--model-option", "hidden=4,3", "--epochs", 2]


class PredictAsStagedTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def write(self, name, rows):
        with open(self.folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    def trained(self, name, options, model=SMALL):
        """The best checkpoint of a run on what `dtrain stage NAME OPTIONS` makes."""
        run(BINARY, 1, "stage", name, *options, cwd=self.folder)
        run(BINARY, 1, "--name", name, "--dataset", name, *model, *TRAIN, cwd=self.folder)
        return f"runs/{name}/checkpoints/best"

    def outputs(self, best, source, *options, ranks=1):
        """What predict says of each sample: [n, outputs], and what it prints."""
        said = run(BINARY, ranks, "predict", best, "--from", source, "--output", "said.h5", *options, cwd=self.folder).stdout
        with h5py.File(self.folder / "said.h5") as file:
            return file["outputs"][:], said

    def evaluated(self, best, split="train"):
        run(BINARY, 1, "evaluate", best, "--split", split, "--predictions", "known.h5", cwd=self.folder)
        with h5py.File(self.folder / "known.h5") as file:
            return file["outputs"][:]

    def same_as_in_training(self, best, source):
        """The file whose rows train has all, in its order; without its target column where it is a table."""
        np.testing.assert_array_equal(self.outputs(best, source)[0], self.evaluated(best))

    def test_columns_by_odd_names_and_gaps_and_large_numbers(self):
        rng = random.Random(1)
        rows = [[f"{1700000000 + 60 * rng.random():.3f}", rng.choice([-999, 1.5, 2.5]), i, rng.choice("ab")] for i in range(60)]
        names = ["", "size, cm", "a>50K", "income_>50K"]
        self.write("old.csv", [names, *rows])
        best = self.trained("odd", ["--from", "old.csv", "--na-values=-999", "--ignore", "a>50K", "--target", "income_>50K",
                                    "--validation", "none", "--test", "old.csv"])
        self.write("new.csv", [names[:3], *[row[:3] for row in rows]])
        self.same_as_in_training(best, "new.csv")
        with h5py.File(self.folder / "data/staged/odd/train-00000-of-00001.h5") as file:
            seconds = file["inputs"][:, 0]
        # float32 has steps of 128 s there.
        whole = np.array([float(row[0]) for row in rows])
        np.testing.assert_allclose(seconds, (whole - whole.mean()) / whole.std(), atol=1e-5)
        self.write("one.csv", [names[:2] + ["b, c"], ["1700000005", "", "7"]])
        for ranks in (1, 3):  # more ranks than rows, the first without one
            found, said = self.outputs(best, "one.csv", "--ignore", "b, c", ranks=ranks)
            self.assertEqual(found.shape, (1, 2))
        before = (self.folder / "new.csv").read_bytes()
        refused(BINARY, 1, 2, ["--output new.csv", "file of the new data"], "predict", best, "--from", "./new.csv", "--output", "new.csv",
                cwd=self.folder)
        self.assertEqual((self.folder / "new.csv").read_bytes(), before)

    def test_texts_without_what_staging_made_spaces_of(self):
        words = {0: ["bad", "awful", "the"], 1: ["good", "fine", "the"]}
        rng = random.Random(2)
        reviews = []
        for i in range(40):
            for kind, label in (("neg", 0), ("pos", 1)):
                text = "<br /><br />".join(" ".join(rng.choices(words[label], k=3)) for _ in range(2)) + r" a\b"
                for split in ("train", "test"):
                    path = self.folder / "reviews" / split / kind / f"{i}_{9 * label + 1}.txt"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
                reviews.append((label, i, text))
        texts = [text for _, _, text in sorted(reviews)]
        (self.folder / "new.txt").write_text("\n".join(texts) + "\n")
        best = self.trained("reviews", ["--from", "reviews", "--validation", "none"], ["--model", "nbow", "--epochs", 1])
        self.same_as_in_training(best, "new.txt")
        (self.folder / "table").mkdir()
        for split in ("train", "test"):
            self.write(f"table/{split}.csv", [[label + 1, text] for label, _, text in sorted(reviews)])
        best = self.trained("table", ["--from", "table", "--validation", "none"], ["--model", "nbow", "--epochs", 1])
        self.same_as_in_training(best, "new.txt")
        self.assertNotIn("more tokens", self.outputs(best, "new.txt")[1])
        (self.folder / "long.txt").write_text(" ".join(texts[:2]) + "\ngood\n")
        self.assertIn("1 of 2 texts have more tokens", self.outputs(best, "long.txt")[1])

    def test_rows_of_classes_and_texts_begin_with_any_text(self):
        rng = random.Random(5)
        rows = [[1 + i % 2, " ".join(rng.choices([["bad", "awful", "1"], ["good", "fine", "2"]][i % 2], k=rng.randint(3, 5)))] for i in range(40)]
        (self.folder / "table").mkdir()
        for split in ("train", "test"):
            self.write(f"table/{split}.csv", rows)
        best = self.trained("table", ["--from", "table", "--validation", "none", "--tokenizer", "char"], ["--model", "nbow", "--epochs", 1])
        self.write("rows.csv", [[2, "good"], *rows, [1, "bad, awful"]])
        (self.folder / "lines.txt").write_text("\n".join(["good", *[text for _, text in rows], "bad, awful"]) + "\n")
        lines, _ = self.outputs(best, "lines.txt")
        found, said = self.outputs(best, "rows.csv")
        np.testing.assert_array_equal(found, lines)
        self.assertIn("the first column has classes", said)
        (self.folder / "marked.txt").write_bytes(b"\xef\xbb\xbf" + (self.folder / "lines.txt").read_bytes())
        np.testing.assert_array_equal(self.outputs(best, "marked.txt")[0], lines)
        self.write("titled.csv", [["class", "text"], *rows])
        found, said = self.outputs(best, "titled.csv")
        self.assertEqual(len(found), 41)
        self.assertIn("each line is taken for a text", said)

    def test_pixels_of_another_scale_are_refused(self):
        rng = np.random.default_rng(3)
        classes = rng.integers(0, 3, 60)
        pixels = (rng.integers(0, 60, (60, 1, 4, 4)) + 60 * classes[:, None, None, None]).astype(np.uint8)
        np.save(self.folder / "y.npy", classes)
        best = {}
        for name, images in (("bytes", pixels), ("large", pixels.astype(np.float32)), ("unit", pixels.astype(np.float32) / 255)):
            np.save(self.folder / f"{name}.npy", images)
            best[name] = self.trained(name, ["--from", ".", "--inputs", f"{name}.npy", "--targets", "y.npy"])
        def refuse(name, source, *words):
            refused(BINARY, 1, 3, [source, *words], "predict", best[name], "--from", source, "--output", "o.h5", cwd=self.folder)
        for name in ("bytes", "unit"):
            for source in ("bytes.npy", "unit.npy"):
                self.assertEqual(len(self.outputs(best[name], source)[0]), 60)
            refuse(name, "large.npy", "floats from 0 to", "lay in 0 to 1", "divided by 255")
            refused(BINARY, 1, 4, ["another scale than the dataset large"], "evaluate", best[name], "--dataset", "large", cwd=self.folder)
        self.outputs(best["large"], "large.npy")
        refuse("large", "bytes.npy", "bytes, which become values in 0 to 1", "floats like those of the training")
        refuse("large", "unit.npy", "floats from 0 to 0.", "floats like those of the training")
        refused(BINARY, 1, 4, ["another scale than the dataset bytes"], "evaluate", best["large"], "--dataset", "bytes", cwd=self.folder)

    def test_bytes_for_a_regression_on_images_are_refused(self):
        rng = np.random.default_rng(4)
        np.save(self.folder / "x.npy", rng.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8))
        np.save(self.folder / "y.npy", rng.random(40))
        best = self.trained("sizes", ["--from", ".", "--inputs", "x.npy", "--targets", "y.npy"])
        refused(BINARY, 1, 3, ["array of bytes", "divided by 255"], "predict", best, "--from", "x.npy", "--output", "o.h5", cwd=self.folder)
        np.save(self.folder / "new.npy", np.load(self.folder / "x.npy")[:1].astype(np.float32) / 255)
        self.assertEqual(self.outputs(best, "new.npy", ranks=2)[0].size, 1)


if __name__ == "__main__":
    unittest.main()
