#!/usr/bin/env bash
# perf/checkpoint.sh [OPTIONS]: what a checkpoint costs the training, and how fast it is written; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/checkpoint.py" "$@"
