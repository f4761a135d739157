#!/usr/bin/env bash
# perf/training.sh MODEL [OPTIONS]: samples/s of dtrain beside PyTorch's, in turn; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/compare.py" "$@"
