#!/usr/bin/env bash
# perf/staging.sh --mirror DIR [OPTIONS]: MB/s of staging each format beside plain decompression; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/data/staging.py" "$@"
