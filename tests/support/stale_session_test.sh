#!/usr/bin/env bash
# stale_session_test.sh: a launcher that gets the number of one that was killed starts all the same. What a killed
# mpirun leaves names its process; Open MPI 5 holds it for one that runs when a new mpirun is given the same number.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
bash -c '
  mkdir -m 700 "$TMPDIR/ompi.$$"
  printf "%s\n" "prterun-here-$$@0.0;tcp4://127.0.0.1:1" 5.0.11 "$$" "$(id -u):$(id -g)" > "$TMPDIR/ompi.$$/pmix.$(uname -n).tool"
  chmod 600 "$TMPDIR/ompi.$$/"*
  exec "$0" 1 true' "$here/mpirun.sh"
