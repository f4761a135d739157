#!/usr/bin/env bash
# perf/private_hospitals.sh FOLDER [OPTIONS]: four hospitals that train together with differential privacy of each record; see --help.
# FOLDER: UCI's processed.*.data. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/private_hospitals.py" "$@"
