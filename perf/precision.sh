#!/usr/bin/env bash
# perf/precision.sh [OPTIONS]: steps in half precision beside those in fp32, on CPUs; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/precision.py" "$@"
