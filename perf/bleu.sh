#!/usr/bin/env bash
# perf/bleu.sh CHECKPOINT [OPTIONS]: BLEU of a seq2seq checkpoint on Multi30k's test_2016; see --help.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/study/bleu.py" "$@"
