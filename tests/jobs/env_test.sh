#!/usr/bin/env bash
# env_test.sh ROOT DEPS: after `. jobs/env.sh` plain mpirun starts eight ranks, whoever runs it and however few cores
# there are, in each shell that is installed, and does not wait for a fabric that is not there. Exit code 77: skipped.
set -euo pipefail
root=$1 deps=$2
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
cd "$root"
[[ -x $deps/venv/bin/mpirun ]] || { echo "skipped: the MPI in use was not installed by jobs/setup.sh"; exit 77; }

# Where jobs/setup.sh has never run a script goes on, with a sentence if there is no MPI of the system.
check 0 "reached" env -i HOME="$HOME" PATH=/usr/bin:/bin DTRAIN_DEPS=/nonexistent bash -euo pipefail -c '. jobs/env.sh; echo reached'

fabric=$(mktemp -d)
trap 'rm -rf "$fabric"' EXIT
mkdir -p "$fabric/none/infiniband" "$fabric/some/infiniband" "$fabric/some/cxi"
touch "$fabric/some/infiniband/mlx5_0"
mkdir -p "$fabric/another/jobs" "$fabric/here/jobs" "$fabric/here/.deps/venv/bin"
cp jobs/env.sh "$fabric/here/jobs"
printf '#!/bin/sh\n' >"$fabric/here/.deps/venv/bin/mpirun"
chmod +x "$fabric/here/.deps/venv/bin/mpirun"
for shell in bash dash zsh; do
  command -v "$shell" >/dev/null || continue
  # Where there is none; where there is one; in a job that comes from a shell without; what the user has set.
  for case in "none::^ofi" "some::unset" "some:^ofi 1:unset" "some:self,tcp:self,tcp" "none:self,tcp:self,tcp" "none:^ofi 1:^ofi"; do
    IFS=: read -r there before after <<<"$case"
    given=(${before:+"OMPI_MCA_btl=${before% 1}"})
    [[ $before != *" 1" ]] || given+=(DTRAIN_NO_FABRIC=1)
    # shellcheck disable=SC2016  # for the inner shell
    check 0 "btl: $after." env -i HOME="$HOME" PATH=/usr/bin:/bin DTRAIN_DEPS="$deps" "DTRAIN_FABRICS=$fabric/$there" "${given[@]}" \
      "$shell" -euc '. jobs/env.sh && echo "btl: ${OMPI_MCA_btl:-unset}."'
  done
  # CDPATH names a folder that has one of the same name.
  # shellcheck disable=SC2016  # for the inner shell
  check 0 "mpirun: $fabric/here/.deps/venv/bin/mpirun." env -i HOME="$HOME" PATH=/usr/bin:/bin CDPATH="$fabric/another" HERE="$fabric/here" \
    "$shell" -euc 'cd "$HERE" && . jobs/env.sh && echo "mpirun: $(command -v mpirun)."'
  # shellcheck disable=SC2016  # for the inner shell
  check 0 "ranks: 8 of 8" env -i HOME="$HOME" PATH=/usr/bin:/bin DTRAIN_DEPS="$deps" "$shell" -euc '
    . jobs/env.sh
    . jobs/env.sh
    echo "ranks: $(mpirun -np 8 sh -c "echo \$OMPI_COMM_WORLD_SIZE" | grep -cx 8) of 8"'
done
finish
