#!/usr/bin/env bash
# perf/roofline.sh [OPTIONS]: what this machine can do, and which share of it a step of each model reaches; see --help.
# DTRAIN=PATH: another binary. For a quiet machine.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/roofline.py" "$@"
