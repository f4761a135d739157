#!/usr/bin/env bash
# perf/exported.sh [OPTIONS]: exported programs beside dtrain's own models and PyTorch's DistributedDataParallel, in turn; see --help.
# DTRAIN=PATH: another binary. For a quiet machine.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/exported.py" "$@"
