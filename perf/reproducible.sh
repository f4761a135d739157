#!/usr/bin/env bash
# perf/reproducible.sh [OPTIONS]: what --reproducible costs, and how evenly it spreads the work; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/reproducible.py" "$@"
