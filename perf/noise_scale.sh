#!/usr/bin/env bash
# perf/noise_scale.sh [OPTIONS]: what it costs to measure the noise of gradients; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/noise_scale.py" "$@"
