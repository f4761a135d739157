#!/usr/bin/env bash
# perf/growth.sh [OPTIONS]: what a step costs as parameters, batch, ranks and nodes grow; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/growth.py" "$@"
