"""hashes.py REPORT [FILE]: prints FILE, by default jobs/hashes.txt, from what `pip install --report` says of the packages that
it would install."""

import json
import re
import sys
from pathlib import Path


def main():
    hashes = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("hashes.txt")
    for line in hashes.read_text().splitlines():  # what it says at its top stays
        if line.startswith("#"):
            print(line)
    rows = set()
    for package in json.loads(Path(sys.argv[1]).read_text())["install"]:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        rows.add(f"{name}=={package['metadata']['version']} --hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}")
    print("\n".join(sorted(rows)))


if __name__ == "__main__":
    main()
