#!/usr/bin/env bash
# perf/strategies.sh [OPTIONS]: time to accuracy of strategies on ranks and links of unequal speed; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/strategies.py" "$@"
