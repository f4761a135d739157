#!/usr/bin/env bash
# format_test.sh ROOT: clang-format decides the layout of every C++ and CUDA file. Exit code 77: skipped.
set -euo pipefail
cd "$1"
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed"; exit 77; }
find app lib tests perf -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format --dry-run -Werror --ferror-limit=1 ||
  { echo "to mend: clang-format -i FILE..." >&2; exit 1; }
