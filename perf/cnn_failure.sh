#!/usr/bin/env bash
# perf/cnn_failure.sh [OPTIONS]: why the study's CNN stood still on two GPUs; see --help. Needs data/fetch.sh cifar10.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/study/cnn_failure.py" "$@"
