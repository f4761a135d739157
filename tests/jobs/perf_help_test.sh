#!/usr/bin/env bash
# perf_help_test.sh ROOT: every script of perf/ says how it is used, and leaves nothing.
set -euo pipefail
root=$1
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
before=$(git -C "$root" status --porcelain perf 2>/dev/null || true)
for script in "$root"/perf/*.sh; do
  check 0 'usage: ' timeout 60 "$script" --help
done
[[ $(git -C "$root" status --porcelain perf 2>/dev/null || true) == "$before" ]] || { echo 'FAILED: perf/ has changed'; failures=1; }
finish
