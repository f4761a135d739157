#!/usr/bin/env bash
# perf/meshes.sh [OPTIONS]: what each mesh of four ranks costs; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/meshes.py" "$@"
