"""How fast originals become shards: MB of source, unpacked, per second of `dtrain stage`, beside the programs that do no
more than unpack the same files (or read them, where they are plain).

Each pair is one staging and one unpacking, one after the other, with the files in the page cache; the table has the
median of the pairs and the range of the ratio. Staging reads, checks and converts the source, hashes it and the shards
(SHA-256), and writes them with checksums.
"""

import argparse
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "training"))
import runs  # noqa: E402

UNPACK = {".xz": "xz -dc", ".gz": "gzip -dc", ".zip": "unzip -p"}


def table(_, folder):
    """200,000 rows of 12 numbers, a label with gaps and a class: 21 MB."""
    with open(folder / "table.csv", "w") as file:
        file.write(",".join(f"x{k}" for k in range(12)) + ",colour,verdict\n")
        for row in range(200_000):
            numbers = ",".join(f"{(row * (k + 3) * 7919 % 100_003) / 1000:.3f}" for k in range(12))
            file.write(f"{numbers},{('red', 'green', '', 'blue')[row % 4]},{('yes', 'no')[row * 31 % 7 % 2]}\n")


def packed(mirror, folder):
    """CIFAR-10 as its authors pack it: one tar.gz."""
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz", compresslevel=6) as tar:
        for file in sorted((mirror / "cifar-10-batches-bin").iterdir()):
            content = subprocess.run(["xz", "-dc", str(file)], stdout=subprocess.PIPE, check=True).stdout \
                if file.suffix == ".xz" else file.read_bytes()
            plain = folder / (file.name.removesuffix(".xz"))
            plain.write_bytes(content)
            tar.add(plain, arcname=f"cifar-10-batches-bin/{plain.name}")
            plain.unlink()


def news(_, folder):
    """120,000 rows like AG News's, of a class and two texts in quotes: 30 MB."""
    words = [f"word{k * k % 30_011}" for k in range(50_000)]
    with open(folder / "train.csv", "w") as file:
        for row in range(120_000):
            title, text = (" ".join(words[(row * 97 + at) % 50_000] for at in range(n)) for n in (6, 20))
            file.write(f'"{row % 4 + 1}","{title}","{text}, he said ""yes"""\n')


def reviews(mirror, folder):
    """IMDB's reviews as a folder of 50,000 files."""
    with tarfile.open(mirror / "aclImdb" / "aclImdb_labeled.tar.xz") as tar:
        tar.extractall(folder, filter="data")


# name, folder of the mirror (or what makes the source), further options of `dtrain stage`
FORMATS = [
    ("IDX, gzip (MNIST)", "mnist", []),
    ("CIFAR-10 binary, xz", "cifar-10-batches-bin", []),
    ("CIFAR-10 binary, tar.gz", packed, []),
    ("CSV table, plain", table, []),
    ("IMDB reviews, tar.xz", "aclImdb", []),
    ("IMDB reviews, folder", reviews, []),
    ("class-and-text CSV, plain", news, []),
    ("parallel text, gzip (Multi30k)", "multi30k/task1/raw", []),
    ("parallel text, gzip (Multi30k), SentencePiece", "multi30k/task1/raw", ["--tokenizer", "sentencepiece"]),
    ("plain text by character (Shakespeare)", "tinyshakespeare", []),
]


def sources(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def unpack_command(folder):
    """A shell command that writes all sources, unpacked, to its output."""
    if len(sources(folder)) > 100:  # many small files: one program reads them all
        return f"find {shlex.quote(str(folder))} -type f -exec cat {{}} +"
    commands = [f"{UNPACK.get(path.suffix, 'cat')} {shlex.quote(str(path))}" for path in sources(folder)]
    return "(" + " && ".join(commands) + ")"


def unpacked_bytes(folder):
    done = subprocess.run(["bash", "-c", unpack_command(folder) + " | wc -c"], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def timed(command):
    start = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=runs.RUN_LIMIT_S)
    return time.monotonic() - start


def measure(name, folder, options, pairs, scratch):
    size = unpacked_bytes(folder)
    stage = [runs.program(), "stage", "measured", "--from", str(folder), "--data-root", str(scratch / "staged"),
             "--overwrite", *options]
    unpack = ["bash", "-c", unpack_command(folder) + " > /dev/null"]
    for command in (stage, unpack):  # the first of each warms the page cache
        timed(command)
    rows = []
    for pair in range(pairs):
        ours, plain = timed(stage), timed(unpack)
        rows.append({"format": name, "pair": pair + 1, "source_bytes": size, "stage_s": f"{ours:.4f}",
                     "unpack_s": f"{plain:.4f}"})
        print(f"{name}: {size / ours / 1e6:.1f} MB/s staged, {size / plain / 1e6:.1f} unpacked", flush=True)
    return rows


def summary(rows):
    lines = ["| format | source, MB | staged, MB/s | plain decompression, MB/s | ratio (least to most) |",
             "| --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(row["format"] for row in rows):
        mine = [row for row in rows if row["format"] == name]
        size = mine[0]["source_bytes"] / 1e6
        stage, unpack = ([float(row[key]) for row in mine] for key in ("stage_s", "unpack_s"))
        ratios = [u / s for s, u in zip(stage, unpack)]
        lines.append(f"| {name} | {size:.1f} | {size / statistics.median(stage):,.1f} | "
                     f"{size / statistics.median(unpack):,.1f} | {statistics.median(ratios):.2f} "
                     f"({min(ratios):.2f} to {max(ratios):.2f}) |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="perf/staging.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", type=pathlib.Path, required=True, help="where the originals lie, a folder each")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", help="formats whose name holds this")
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "data")
    arguments = parser.parse_args()
    rows = []
    machine = runs.machine()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        scratch = pathlib.Path(scratch)
        for name, source, options in FORMATS:
            if arguments.only and arguments.only not in name:
                continue
            folder = scratch / "source"
            if callable(source):
                folder.mkdir()
                source(arguments.mirror, folder)
            else:
                folder = arguments.mirror / source
            rows += measure(name, folder, options, arguments.pairs, scratch)
            shutil.rmtree(scratch / "source", ignore_errors=True)
    runs.write_results(
        arguments.out, "staging", rows,
        f"# Staging beside plain decompression\n\n`perf/staging.sh --mirror DIR --pairs {arguments.pairs}`, MB of unpacked "
        f"source per second, one core each, medians of {arguments.pairs} pairs. {machine}\n\n{summary(rows)}")


if __name__ == "__main__":
    main()
