#!/usr/bin/env bash
# perf/pipeline.sh [OPTIONS]: what pipelines cost and save: idle time, speed, memory; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/pipeline.py" "$@"
