#!/usr/bin/env bash
# perf/curves.sh [OPTIONS]: the same training on 1, 2 and 4 ranks: accuracies and loss curves; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/curves.py" "$@"
