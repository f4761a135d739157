#!/usr/bin/env bash
# perf/versions.sh OLD NEW [OPTIONS]: two builds of dtrain in turn: median step and time to the first step; see --help.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/versions.py" "$@"
