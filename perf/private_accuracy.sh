#!/usr/bin/env bash
# perf/private_accuracy.sh [CASE...]: what training with differential privacy reaches at a stated epsilon, over several seeds; goes on where
# it stopped; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/private_accuracy.py" "$@"
