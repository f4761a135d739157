#!/usr/bin/env bash
# perf/own_data.sh [OPTIONS]: staging a folder of images beside Pillow, and the memory of a long table; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/data/own_data.py" "$@"
