#!/usr/bin/env bash
# disk_full_test.sh DATA_TOOL PYTHON: staging on a file system that fills up ends with exit code 3, one sentence, and
# nothing half-written. Once where the lack of room can be seen before, once where it comes while writing.
set -euo pipefail
tool=$1 python=$2
work=$(mktemp -d)
trap 'umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/small" "$work/original"
if ! mount -t tmpfs -o size=6m tmpfs "$work/small" 2>/dev/null; then
  echo "skipped: mounting a small file system needs root"
  exit 77
fi
"$python" - "$work/original" <<'PY'
import pathlib, struct, sys
folder = pathlib.Path(sys.argv[1])
n = 20000
folder.joinpath("train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, n, 20, 20) + bytes(range(250)) * (n * 400 // 250))
folder.joinpath("train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, n) + bytes(i % 10 for i in range(n)))
PY

expect_refusal() {  # expect_refusal WORDS
  local code=0
  "$tool" stage digits "$work/original" "$work/small" >"$work/out" 2>"$work/err" || code=$?
  cat "$work/err"
  [[ $code == 3 ]] || { echo "exit code $code instead of 3"; exit 1; }
  [[ $(wc -l <"$work/err") == 1 ]] || { echo "not one sentence"; exit 1; }
  grep -q "$1" "$work/err" || { echo "the sentence lacks: $1"; exit 1; }
  [[ ! -e $work/small/digits && ! -e $work/small/digits.partial ]] || { echo "something is left"; exit 1; }
}

expect_refusal "the disk is full"

# Just the room that the values alone take (8,160,000 bytes in whole pages): HDF5's own bytes no longer fit.
mount -o remount,size=8163328 "$work/small"
expect_refusal "free some space"
grep -qv "the disk is full: " "$work/err" || { echo "found out before writing, which the first case covers"; exit 1; }
