#!/usr/bin/env bash
# -np N PROGRAM ...: as the study calls its launcher, through the tests' own mpirun.
set -euo pipefail
[[ $1 == -np ]] && ranks=$2 && shift 2
exec "$(dirname "${BASH_SOURCE[0]}")/../support/mpirun.sh" "$ranks" "$@"
