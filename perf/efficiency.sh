#!/usr/bin/env bash
# perf/efficiency.sh [OPTIONS]: what parallelism costs, and the time to the first step; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/efficiency.py" "$@"
