#!/usr/bin/env bash
# perf/recovery.sh [OPTIONS]: what it costs to be ready for a lost rank, and the speed after one; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/recovery.py" "$@"
