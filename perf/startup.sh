#!/usr/bin/env bash
# perf/startup.sh [OPTIONS]: what a start costs on more and more ranks: seconds and messages; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/startup.py" "$@"
