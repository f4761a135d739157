#!/usr/bin/env bash
# From a fresh clone to a trained model: set up, build, train two ranks on the built-in synthetic dataset, and report.
# What is done already is not done again. It takes no options.
set -euo pipefail
case ${1:-} in --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;; esac
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"
say() { printf '[%4ds] quickstart: %s\n' "$SECONDS" "$*"; }

jobs/setup.sh --to-build
jobs/setup.sh &  # the rest comes while the compiler runs
rest=$!
trap 'kill "$rest" 2>/dev/null || true' EXIT
jobs/build.sh
wait "$rest"
# shellcheck source=jobs/env.sh
. jobs/env.sh
if [[ $(cat runs/quickstart/state 2>/dev/null) == completed && runs/quickstart/state -nt ./dtrain ]]; then
  say "runs/quickstart is complete already; to train again: mpirun -np 2 ./dtrain --name quickstart --overwrite"
else
  say "mpirun -np 2 ./dtrain --name quickstart --overwrite"
  mpirun -np 2 ./dtrain --name quickstart --overwrite
fi
say "./dtrain report runs/quickstart"
./dtrain report runs/quickstart
say "done; in a new shell: . jobs/env.sh, then for example mpirun -np 8 ./dtrain --help"
