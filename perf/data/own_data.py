"""Staging what users bring: images of a folder per second beside Pillow, and the time and memory of a long table.

Images are staged with --image-size 64 on all cores that the process may use. Pillow decodes the same files in one thread, scales each
until it covers 64 x 64, cuts the middle and makes a NumPy array; it writes nothing, while staging writes shards with checksums as well.
The two take turns. The table has 8 numbers, a label of four and a target in each row; its peak is that of the staging process
(ru_maxrss). Seconds of computing (user and system, over all threads) are kept beside those that passed: they hardly depend on what
else the machine does.
"""

import argparse
import io
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "training"))
import runs  # noqa: E402

SIZE = 64
KINDS = ("PNG", "JPEG")


def write_images(folder, kind, width, height, count):
    """Smooth pictures with some noise, of two classes: two hundred different ones, in turn."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[0:height, 0:width]
    contents = []
    for _ in range(200):
        waves = [np.sin(rng.uniform(0, 6) + x * rng.uniform(0.01, 0.1) + y * rng.uniform(0.01, 0.1)) for _ in range(3)]
        pixels = 127 + 110 * np.stack(waves, -1) + rng.normal(0, 4, (height, width, 3))
        out = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, kind)
        contents.append(out.getvalue())
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
    for i in range(count):
        (folder / "ab"[i % 2] / f"{i:06}.{kind.lower()}").write_bytes(contents[i % len(contents)])


def pillow_reads(path):
    with Image.open(path) as image:
        image = image.convert("RGB")
        scale = SIZE / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
        return np.asarray(image.crop((left, top, left + SIZE, top + SIZE)))


def pillow_s(files):
    """Seconds that passed, and of computing."""
    start, cpu_start = time.monotonic(), time.process_time()
    read = [pillow_reads(file) for file in files]
    assert len(read) == len(files)
    return time.monotonic() - start, time.process_time() - cpu_start


def staged(source, scratch, *options):
    """Seconds that passed, and of computing, and the peak of that process in MiB."""
    command = [runs.program(), "stage", "measured", "--from", str(source), "--data-root", str(scratch / "staged"), "--overwrite", *options]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure_images(kind, size, pairs, scratch):
    extent, count = size.split(":")
    width, height = map(int, extent.split("x"))
    folder = scratch / f"{kind}-{extent}"
    write_images(folder, kind, width, height, int(count))
    files = sorted(folder.rglob(f"*.{kind.lower()}"))
    rows = []
    for pair in range(pairs + 1):  # the first warms the page cache
        seconds, computing, peak = staged(folder, scratch, "--image-size", str(SIZE))
        pillow, pillow_computing = pillow_s(files)
        row = {"what": f"{len(files)} {kind} of {width} x {height}", "pair": pair, "stage_s": f"{seconds:.3f}",
               "stage_cpu_s": f"{computing:.3f}", "peak_MiB": f"{peak:.0f}", "pillow_s": f"{pillow:.3f}",
               "pillow_cpu_s": f"{pillow_computing:.3f}", "load": f"{os.getloadavg()[0]:.2f}"}
        print(row, flush=True)
        if pair > 0:
            rows.append(row)
    shutil.rmtree(folder)
    return rows


def write_table(file, rows):
    rng = np.random.default_rng(2)
    form = "%.4f," * 8
    with open(file, "w") as out:
        out.write(",".join(f"x{k}" for k in range(8)) + ",kind,y\n")
        for first in range(0, rows, 100_000):
            numbers = rng.normal(size=(min(100_000, rows - first), 8))
            out.write("".join(form % tuple(row) + "abcd"[i % 4] + ",%.4f\n" % (row[0] + i % 4) for i, row in enumerate(numbers)))


def measure_table(count, scratch):
    file = scratch / "table.csv"
    write_table(file, count)
    size = file.stat().st_size
    seconds, computing, peak = staged(file, scratch)
    row = {"what": f"table of {count} rows and 10 columns, {size / 2**20:.0f} MiB", "pair": 1, "stage_s": f"{seconds:.3f}",
           "stage_cpu_s": f"{computing:.3f}", "peak_MiB": f"{peak:.0f}", "load": f"{os.getloadavg()[0]:.2f}"}
    print(row, flush=True)
    return [row]


def summary(rows):
    lines = []
    for what in dict.fromkeys(row["what"] for row in rows):
        mine = [row for row in rows if row["what"] == what]
        text = f"- {what}: staged in {statistics.median(float(row['stage_s']) for row in mine):.2f} s, " \
               f"at most {max(float(row['peak_MiB']) for row in mine):.0f} MiB"
        if "pillow_s" in mine[0]:
            ratios = [float(row["pillow_s"]) / float(row["stage_s"]) for row in mine]
            computing = [float(row["pillow_cpu_s"]) / float(row["stage_cpu_s"]) for row in mine]
            text += f"; {statistics.median(ratios):.2f} x Pillow in one thread ({min(ratios):.2f} to {max(ratios):.2f}), " \
                    f"with {1 / statistics.median(computing):.2f} of its computing"
        lines.append(text)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="perf/own_data.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", nargs="*", default=["96x96:10000", "500x375:1000"], metavar="WIDTHxHEIGHT:COUNT",
                        help="of each kind [96x96:10000 500x375:1000]")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table; 0: none [5000000]")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=runs.TOP / "perf" / "results" / "data")
    arguments = parser.parse_args()
    rows = []
    machine = runs.machine()
    with tempfile.TemporaryDirectory(prefix="dtrain-perf-") as scratch:
        scratch = pathlib.Path(scratch)
        for size in arguments.images:
            for kind in KINDS:
                rows += measure_images(kind, size, arguments.pairs, scratch)
        if arguments.rows:
            rows += measure_table(arguments.rows, scratch)
    sizes = " ".join(map(str, arguments.images))
    runs.write_results(
        arguments.out, "own-data", rows,
        f"# Staging images beside Pillow, and a long table\n\n`perf/own_data.sh --images {sizes} --rows {arguments.rows} "
        f"--pairs {arguments.pairs}`, medians; the csv has the load of the machine. Staging computes on all cores: at equal "
        f"computing it takes half of Pillow's time on two idle ones. On a busy machine the share of computing tells more than the time. "
        f"{machine}\n\n{summary(rows)}")


if __name__ == "__main__":
    main()
