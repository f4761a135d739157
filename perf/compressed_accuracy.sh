#!/usr/bin/env bash
# perf/compressed_accuracy.sh [OPTIONS]: accuracy with and without PowerSGD, over seeds; goes on where it stopped; see --help.
# Needs data/fetch.sh cifar10. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/compressed_accuracy.py" "$@"
