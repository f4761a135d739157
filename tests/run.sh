#!/usr/bin/env bash
# tests/run.sh [--full] [CTEST ARGUMENTS]: sets up, builds and tests. --full adds the whole matrices and keeps the
# output in perf/results/full-DATE.txt.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"
select=(-LE '^full$')
if [[ ${1:-} == --full ]]; then
  shift
  select=()
fi

jobs/setup.sh --for-tests
jobs/build.sh all
# shellcheck source=jobs/env.sh
. jobs/env.sh
test=(ctest --test-dir build/release --output-on-failure --no-tests=error --timeout 120 --parallel "$((2 * $(nproc)))"
  "${select[@]}" "$@")
if ((${#select[@]})); then exec "${test[@]}"; fi

mkdir -p perf/results
result=perf/results/full-$(date -u +%Y-%m-%d).txt
{
  printf 'tests/run.sh --full %s\ndate: %s\ncommit: %s\nmachine: %s, %s cores, %s\n\n' "$*" "$(date -u +%FT%TZ)" \
    "$(git describe --always --dirty 2>/dev/null || echo unknown)" \
    "$(sed -n '0,/^model name/s/^model name.*: //p' /proc/cpuinfo)" "$(nproc)" \
    "$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1 kB/p' /proc/meminfo)"
  "${test[@]}"
} 2>&1 | sed "s#$top/##g" | tee "$result"
