#!/usr/bin/env bash
# env_test.sh ROOT DEPS: after `. jobs/env.sh` plain mpirun starts eight ranks, whoever runs it and however few cores
# there are, in each shell that is installed. Exit code 77: skipped.
set -euo pipefail
root=$1 deps=$2
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
cd "$root"
[[ -x $deps/venv/bin/mpirun ]] || { echo "skipped: the MPI in use was not installed by jobs/setup.sh"; exit 77; }

for shell in bash dash zsh; do
  command -v "$shell" >/dev/null || continue
  # shellcheck disable=SC2016  # for the inner shell
  check 0 "ranks: 8 of 8" env -i HOME="$HOME" PATH=/usr/bin:/bin DTRAIN_DEPS="$deps" "$shell" -euc '
    . jobs/env.sh
    . jobs/env.sh
    echo "ranks: $(mpirun -np 8 sh -c "echo \$OMPI_COMM_WORLD_SIZE" | grep -cx 8) of 8"'
done
finish
