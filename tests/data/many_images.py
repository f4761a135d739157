"""`dtrain stage` on ten thousand images of which one is truncated: it is named, and on request the others are kept, the same on one
core and on all."""

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

BINARY = sys.argv[1]
COUNT, BROKEN = 10_000, 7_321


def write(folder):
    rng = np.random.default_rng(1)
    contents = []
    for kind in ("PNG", "JPEG"):
        for _ in range(50):
            out = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (32, 40, 3)).astype(np.uint8)).save(out, kind)
            contents.append((kind.lower(), out.getvalue()))
    for i in range(COUNT):
        kind, content = contents[i % len(contents)]
        place = folder / "abcd"[i % 4] / f"{i:05}.{kind}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content[:len(content) // 2] if i == BROKEN else content)


def stage(folder, *options, cores=None):
    return subprocess.run([BINARY, "stage", "many", "--from", "photos", "--image-size", "24", "--overwrite", *options], cwd=folder, text=True,
                          capture_output=True, timeout=300, preexec_fn=lambda: cores and os.sched_setaffinity(0, cores))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder / "photos")
        (broken,) = (folder / "photos").rglob(f"{BROKEN:05}.*")
        refused = stage(folder)
        assert refused.returncode == 3 and refused.stderr.count("dtrain:") == 1, refused.stderr
        for word in (str(broken.relative_to(folder)), "damaged", "--skip-broken"):
            assert word in refused.stderr, refused.stderr
        shards = []
        for cores in ({min(os.sched_getaffinity(0))}, None):
            done = stage(folder, "--skip-broken", cores=cores)
            assert done.returncode == 0, done.stderr
            assert f"1 broken image is left out: {broken.parent.name}/{broken.name}" in done.stdout, done.stdout
            facts = json.loads((folder / "data/staged/many/dataset.json").read_text())
            assert sum(split["samples"] for split in facts["splits"].values()) == COUNT - 1
            shards.append([shard["sha256"] for split in facts["splits"].values() for shard in split["shards"]])
        assert shards[0] == shards[1]


main()
