#!/usr/bin/env bash
# shell_test.sh ROOT: shellcheck finds nothing in the shell scripts. Exit code 77: skipped.
set -euo pipefail
cd "$1"
command -v shellcheck >/dev/null || { echo "skipped: shellcheck is not installed"; exit 77; }
mapfile -t scripts < <(find .ci app cmake data jobs lib perf tests -type f \( -name '*.sh' -o -path .ci/run \))
((${#scripts[@]} > 3)) || { echo "found no scripts under $1" >&2; exit 1; }
shellcheck --external-sources "${scripts[@]}"
