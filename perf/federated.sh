#!/usr/bin/env bash
# perf/federated.sh [OPTIONS]: clients simulated in little memory, and hospitals that train together; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/federated.py" "$@"
