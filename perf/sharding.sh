#!/usr/bin/env bash
# perf/sharding.sh [OPTIONS]: bytes and times of sharded strategies and compressions over two emulated nodes, beside the formulas; see --help.
# DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/sharding.py" "$@"
