"""coverage.py FOLDER [FOUND]: how much of each reader's own files the fuzzers reach.

FOLDER holds the programs of the preset fuzz, such as build/fuzz/tests/fuzz; FOUND, for each reader, a folder of inputs that
libFuzzer kept. Prints a row per reader: inputs, edges reached, edges, and the files."""

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FILES = {
    "archive": ("data/import/archive",), "csv": ("data/formats/csv.", "data/formats/table"), "dataset_json": ("data/shards/dataset_info",),
    "exported": ("models/exported/",), "exported_graph": ("models/exported/graph_reader", "models/exported/size_expression", "models/exported/program.", "models/exported/plan."),
    "idx": ("data/formats/idx",), "image": ("data/images/",), "ledger": ("privacy/ledger",), "manifest": ("checkpoint/manifest",), "new_table": ("data/unlabelled/new_table", "data/formats/table_text"),
    "npy": ("data/formats/npy",), "results": ("record/run_reader", "record/table_file"), "safetensors": ("checkpoint/safetensors",),
    "secure_message": ("secure_aggregation/messages", "secure_aggregation/byte_io"),
    "sentencepiece": ("data/text/sentencepiece_model",), "shard": ("data/shards/shard.", "data/shards/file_column"), "toml": ("app/options/toml_file", "core/nesting"),
}
FUNCTION = re.compile(r"^(?:UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .* (\S+):\d+$", re.MULTILINE)


def edges(program, folders, files):
    """Edges reached and all edges of the functions in these files."""
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
    said = subprocess.run([program, "-runs=0", "-print_coverage=1", "-timeout=60", *folders], text=True, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, errors="replace", timeout=600, env=environment, check=True).stderr
    reached = total = 0
    for hit, of, place in FUNCTION.findall(said):
        if any("lib/" + file in place or file in place and file.startswith("app/") for file in files):
            reached, total = reached + int(hit), total + int(of)
    return reached, total


def main():
    build = Path(sys.argv[1])
    print("| reader | inputs | edges reached | edges | share | files |\n| --- | --- | --- | --- | --- | --- |")
    for name, files in sorted(FILES.items()):
        program = build / f"fuzz_{name}"
        if not program.exists():
            continue
        folders = [TOP / "tests/fuzz/corpus" / name] + [Path(found) / name for found in sys.argv[2:] if (Path(found) / name).is_dir()]
        reached, total = edges(program, folders, files)
        inputs = sum(len(list(folder.iterdir())) for folder in folders)
        print(f"| {name} | {inputs} | {reached} | {total} | {100 * reached / max(total, 1):.0f} % | {', '.join(files)} |")


main()
