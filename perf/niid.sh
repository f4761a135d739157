#!/usr/bin/env bash
# perf/niid.sh [OPTIONS]: cells of NIID-Bench on a short schedule beside loops in PyTorch, and a client's processor time beside Flower's;
# goes on where it stopped; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/niid.py" "$@"
