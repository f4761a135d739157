#!/usr/bin/env bash
# The comparison study: each of its models on one rank and on two, several seeds; see --help. Then open
# perf/notebooks/study.ipynb. Real data first: data/fetch.sh mnist, cifar10, imdb and multi30k.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/study/runs.py" "$@"
