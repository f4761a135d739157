"""`dtrain stage` on folders of PNG and JPEG images: the shards, read by h5py, have the pixels that Pillow decodes and resizes.
Mixed kinds are converted, broken files named or left out, links refused; arrays of a .npz file are read by split."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from dtrain_run import run

BINARY = sys.argv.pop()


class ImagesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.photos = self.folder / "photos"
        self.rng = np.random.default_rng(1)

    def save(self, name, image, **how):
        path = self.photos / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, **how)
        return path

    def colours(self, height=20, width=30):
        """Smooth, so that JPEG keeps it."""
        y, x = np.mgrid[0:height, 0:width]
        parts = [np.sin(self.rng.uniform(0, 6) + x * self.rng.uniform(0.02, 0.3) + y * self.rng.uniform(0.02, 0.3)) for _ in range(3)]
        return Image.fromarray((127 + 120 * np.stack(parts, -1)).astype(np.uint8))

    def stage(self, *options, source="photos"):
        said = run(BINARY, 1, "stage", "set", "--from", source, "--overwrite", *options, cwd=self.folder).stdout
        staged = self.folder / "data/staged/set"
        splits = {}
        for split in ("train", "validation", "test"):
            with h5py.File(staged / f"{split}-00000-of-00001.h5") as file:
                splits[split] = file["inputs"][:], file["targets"][:]
        return json.loads((staged / "dataset.json").read_text()), splits, said

    def refuse(self, code, words, *options, source="photos"):
        done = run(BINARY, 1, "stage", "set", "--from", source, "--overwrite", *options, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("dtrain:"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def write_splits(self):
        """Two classes of PNG and JPEG in three splits; what Pillow reads, by split, in the order of the names."""
        images = {split: [] for split in ("train", "val", "test")}
        for split, count in (("train", 6), ("val", 2), ("test", 3)):
            for label in ("cat", "dog"):
                for i in range(count):
                    ending = ("png", "jpg")[i % 2]
                    self.save(f"{split}/{label}/{i}.{ending}", self.colours(20 + 3 * i, 30 - i))
                    images[split].append(Image.open(self.photos / f"{split}/{label}/{i}.{ending}").convert("RGB"))
        return images

    def test_pixels_are_those_of_pillow(self):
        def resized(image, height, width):
            scale_by_height = image.height * width <= image.width * height
            size = ((max(width, image.width * height // image.height), height) if scale_by_height
                    else (width, max(height, image.height * width // image.width)))
            whole = image.resize(size, Image.Resampling.BILINEAR)
            left, top = round((size[0] - width) / 2), round((size[1] - height) / 2)
            return np.asarray(whole.crop((left, top, left + width, top + height))).transpose(2, 0, 1)
        images = self.write_splits()
        for text, height, width in (("16", 16, 16), ("10x24", 10, 24), ("64", 64, 64)):
            facts, splits, said = self.stage("--image-size", text)
            self.assertEqual((facts["task"], facts["classes"], facts["shape"]),
                             ("image_classification", ["cat", "dog"], [3, height, width]))
            for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
                pixels, targets = splits[split]
                expected = np.stack([resized(image, height, width) for image in images[name]])
                difference = np.abs(pixels.astype(int) - expected)
                self.assertLessEqual(difference.max(), 2)  # Pillow rounds its weights
                self.assertLess(difference.mean(), 0.1)
                self.assertEqual(targets.tolist(), [0] * (len(expected) // 2) + [1] * (len(expected) // 2))
        self.assertIn("2 in train: cat 50.0 %, dog 50.0 %", said)
        self.refuse(3, ["/cat/1.jpg", "23 x 29", "20 x 30", "--image-size"])
        for wrong in ("0", "12x", "x", "many", "9000"):
            self.refuse(2, ["--image-size " + wrong, "48x64"], "--image-size", wrong)

    def test_kinds_are_converted(self):
        grey = Image.fromarray(self.rng.integers(0, 255, (8, 8)).astype(np.uint8))
        deep = Image.fromarray((np.asarray(grey).astype(np.uint16) * 257))
        for i in range(6):
            self.save(f"plain/{i}.png", grey)
            self.save(f"deep/{i}.png", deep)
        facts, splits, _ = self.stage()
        self.assertEqual((facts["classes"], facts["shape"]), (["deep", "plain"], [1, 8, 8]))
        for pixels in splits["train"][0]:
            np.testing.assert_array_equal(pixels[0], np.asarray(grey))

        colour = self.colours(8, 8)
        clear = np.dstack([np.asarray(colour), np.full((8, 8), 255, np.uint8)])
        clear[:4, :, 3] = 0
        self.save("alpha/0.png", Image.fromarray(clear))
        self.save("inks/0.jpg", colour.resize((8, 8)).convert("CMYK"), quality=100)
        self.save("palette/0.png", colour.convert("P"))
        facts, splits, said = self.stage()
        self.assertEqual(facts["shape"], [3, 8, 8])
        self.assertIn("grey images lie among coloured ones", said)
        pixels = dict(zip([facts["classes"][k] for k in splits["train"][1]], splits["train"][0]))
        expected = np.asarray(colour).transpose(2, 0, 1).copy()
        np.testing.assert_array_equal(pixels["palette"], np.asarray(Image.open(self.photos / "palette/0.png").convert("RGB")).transpose(2, 0, 1))
        inks = np.asarray(Image.open(self.photos / "inks/0.jpg").convert("RGB")).transpose(2, 0, 1)
        self.assertLessEqual(np.abs(pixels["inks"].astype(int) - inks).max(), 2)
        expected[:, :4] = 0
        np.testing.assert_array_equal(pixels["alpha"], expected)

    def test_a_broken_image_is_named_or_left_out(self):
        for i in range(40):
            self.save(f"{'ab'[i % 2]}/{i:02}.{('png', 'jpg')[i // 2 % 2]}", self.colours())
        for name in ("a/04.png", "b/23.jpg"):
            content = (self.photos / name).read_bytes()
            (self.photos / name).write_bytes(content[:len(content) // 2])
            self.refuse(3, [f"photos/{name}", "damaged", "--skip-broken"])
            (self.photos / name).write_bytes(content)
        (self.photos / "a/04.png").write_bytes(b"")
        self.refuse(3, ["photos/a/04.png", "is empty", "--skip-broken"])
        (self.photos / "b/23.jpg").write_bytes(b"GIF89a")
        (self.photos / "b/notes.txt").write_text("of no class")
        facts, splits, said = self.stage("--skip-broken")
        self.assertEqual(sum(len(targets) for _, targets in splits.values()), 38)
        self.assertIn("2 broken images are left out: a/04.png", said)
        self.assertIn("1 file is no PNG or JPEG", said)

    def test_the_same_files_on_any_number_of_cores(self):
        for i in range(30):
            self.save(f"{'ab'[i % 2]}/{i:02}.{('png', 'jpg')[i // 2 % 2]}", self.colours(20 + i, 50 - i))
        (self.photos / "a/04.jpg").write_bytes(b"\xff\xd8\xff")
        (self.photos / "b/notes.txt").write_text("of no class")
        cores = sorted(os.sched_getaffinity(0))
        found = []
        for used in (cores[:1], cores):
            subprocess.run([BINARY, "stage", "set", "--from", "photos", "--image-size", "16", "--skip-broken", "--overwrite"], cwd=self.folder,
                           check=True, stdout=subprocess.DEVNULL, timeout=60, preexec_fn=lambda: os.sched_setaffinity(0, used))
            facts = json.loads((self.folder / "data/staged/set/dataset.json").read_text())
            found.append([shard["sha256"] for split in facts["splits"].values() for shard in split["shards"]])
        self.assertEqual(found[0], found[1])
        # Each file's hash is that of its bytes, also of what is broken or no image.
        hashes = {path.relative_to(self.photos).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                  for path in self.photos.rglob("*") if path.is_file()}
        self.assertEqual({source["file"]: source["sha256"] for source in facts["sources"]}, hashes)
        self.assertEqual([source["file"] for source in facts["sources"]], sorted(hashes))

    def test_small_files_of_large_images_do_not_fill_the_memory(self):
        for i in range(8):
            self.save(f"{'ab'[i % 2]}/{i}.png", Image.new("1", (3000, 3000)))  # 1 KB each, and 27 MB of pixels
        self.refuse(3, ["MiB of pixels", "KiB of files", "--image-size"])
        _, splits, _ = self.stage("--image-size", "8")
        self.assertEqual(sum(len(targets) for _, targets in splits.values()), 8)
        self.save("a/0.png", Image.new("1", (9000, 9000)))
        self.refuse(3, ["photos/a/0.png", "claims 9000 x 9000 pixels", "67 million"])
        wide = Image.fromarray(np.arange(0, 240000, dtype=np.int64).reshape(2, -1).astype(np.uint8))
        self.save("a/0.png", wide)
        _, splits, _ = self.stage("--image-size", "16")  # 960,000 columns as high as that, of which 16 are kept
        kept = wide.convert("RGB").resize((wide.width * 8, 16), Image.BILINEAR, box=None).crop(((wide.width * 8 - 16) // 2, 0, (wide.width * 8 + 16) // 2, 16))
        pixels = np.concatenate([inputs for inputs, _ in splits.values()])
        found = [image for image in pixels if image.any()]
        self.assertEqual(len(found), 1)
        np.testing.assert_array_equal(found[0][0], np.asarray(kept)[:, :, 0])

    def test_folders_that_make_no_sense_are_refused(self):
        for i in range(12):
            self.save(f"{'ab'[i % 2]}/{i}.png", self.colours())
        (self.photos / "empty").mkdir()
        self.refuse(3, ["photos/empty", "class without images"])
        (self.photos / "empty").rmdir()
        os.symlink("/etc", self.photos / "elsewhere")
        self.refuse(3, ["photos/elsewhere", "is a link"])
        (self.photos / "elsewhere").unlink()
        self.save("loose.png", self.colours())
        self.refuse(3, ["photos/loose.png", "no class's folder"])
        (self.photos / "loose.png").unlink()
        self.save("test/c/0.png", self.colours())
        self.save("train/a/0.png", self.colours())
        self.refuse(3, ["the class c in test", "none in train"])
        self.refuse(2, ["--target", "images"], "--target", "x")
        (self.folder / "t.csv").write_text("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(30)))
        self.refuse(2, ["--skip-broken", "csv"], "--skip-broken", source="t.csv")

    def test_a_class_of_two_folders_is_said(self):
        for kind in ("cats", "dogs"):
            for year in ("2020", "2021"):
                for i in range(5):
                    self.save(f"{kind}/{year}/{i}.png", self.colours())
        info, _, said = self.stage()
        self.assertEqual(info["classes"], ["2020", "2021"])
        self.assertIn("innermost folder of an image: cats/2020 and dogs/2020 are both of the class 2020", " ".join(said.split()))

    def test_a_zip_of_images_is_trained_on_and_predicted_from_files(self):
        for i in range(40):
            image = np.full((12, 12, 3), 60 if i % 2 else 180, np.uint8) + self.rng.integers(0, 20, (12, 12, 3)).astype(np.uint8)
            self.save(f"{'ab'[i % 2]}/{i:02}.png", Image.fromarray(image))
        with zipfile.ZipFile(self.folder / "photos.zip", "w") as archive:
            for path in sorted(self.photos.rglob("*.png")):
                archive.write(path, path.relative_to(self.photos))
        from_folder, from_zip = self.stage(), self.stage(source="photos.zip")
        np.testing.assert_array_equal(from_folder[1]["train"][0], from_zip[1]["train"][0])
        run(BINARY, 2, "--dataset", "set", "--model", "mlp", "--epochs", 15, "--global-batch", 8, "--name", "r", "--quiet", cwd=self.folder)
        run(BINARY, 2, "predict", "runs/r/checkpoints/best", "--from", "photos", "--output", "said.csv", cwd=self.folder)
        rows = [line.split(",") for line in (self.folder / "said.csv").read_text().splitlines()]
        self.assertEqual(rows[0], ["file", "class", "probability", "p(a)", "p(b)"])
        self.assertEqual(len(rows), 41)
        self.assertGreater(np.mean([row[0][0] == row[1] for row in rows[1:]]), 0.9)

    def test_arrays_of_an_npz(self):
        arrays = {f"{kind}_{split}": self.rng.integers(0, 4, (n, 5, 6) if kind == "x" else n).astype(np.uint8)
                  for split, n in (("train", 30), ("test", 8)) for kind in "xy"}
        for save in (np.savez, np.savez_compressed):
            save(self.folder / "set.npz", **arrays)
            facts, splits, _ = self.stage("--inputs", "x", "--targets", "y", source="set.npz")
            self.assertEqual((facts["task"], facts["shape"]), ("image_classification", [1, 5, 6]))
            np.testing.assert_array_equal(splits["test"][0][:, 0], arrays["x_test"])
            np.testing.assert_array_equal(splits["test"][1], arrays["y_test"])
            self.assertEqual(len(splits["train"][1]) + len(splits["validation"][1]), 30)
        self.refuse(2, ["--inputs", "x_test, x_train, y_test, y_train"], source="set.npz")
        self.refuse(3, ["no array z", "x_test, x_train"], "--inputs", "z", "--targets", "y", source="set.npz")
        content = (self.folder / "set.npz").read_bytes()
        (self.folder / "set.npz").write_bytes(content[:len(content) // 2])
        self.refuse(3, ["set.npz"], "--inputs", "x", "--targets", "y", source="set.npz")
        (self.folder / "set.npz").write_bytes(content[:-30])  # the last array is whole, the list of them is not
        self.refuse(3, ["set.npz", "truncated"], "--inputs", "x", "--targets", "y", source="set.npz")
        (self.folder / "set.npz").write_bytes(content)
        with zipfile.ZipFile(self.folder / "set.npz", "a") as archive:
            archive.writestr("x_train", archive.read("x_test.npy"))
        self.refuse(3, ["two arrays x_train"], "--inputs", "x", "--targets", "y", source="set.npz")


if __name__ == "__main__":
    unittest.main()
