#!/usr/bin/env bash
# perf/hospital_search.sh FOLDER [OPTIONS]: four hospitals that train together, rates and rounds chosen within the training records; see --help.
# FOLDER: UCI's processed.*.data. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/hospital_search.py" "$@"
