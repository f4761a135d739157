#!/usr/bin/env bash
# perf/private_steps.sh [OPTIONS]: what a step with differential privacy costs beside a usual one; see --help.
# DTRAIN=PATH: another binary. For a quiet machine.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/private_steps.py" "$@"
