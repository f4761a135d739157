#!/usr/bin/env bash
# random_operations_test.sh PROGRAM SECONDS SEED [--deaths]: random operations on 2 and on 5 ranks; with --deaths, on 5 ranks that
# die one after another. SEED: a number, or `drawn`. Exit code 77: skipped.
set -uo pipefail
program=$1 seconds=$2 seed=$3 deaths=${4:-}
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
[[ $seed != drawn ]] || seed=$(date +%s)

run() {  # RANKS MPIRUN_FLAGS ARGUMENTS...
  local ranks=$1 flags=$2 output status
  shift 2
  output=$(DTRAIN_MPIRUN_FLAGS=$flags timeout $((seconds + 120)) "$here/../../support/mpirun.sh" "$ranks" "$program" "$@" 2>&1)
  status=$?
  if [[ $status != 0 || $output != *"all as computed"* || $output == *"Process received signal"* ]]; then
    printf '%s\nrandom operations on %s ranks: exit code %s; repeat with %s %s\n' "$output" "$ranks" "$status" "$program" "$*"
    exit 1
  fi
  grep "all as computed" <<<"$output"
}

if [[ -z $deaths ]]; then
  run 5 "" --seed "$seed" --seconds $((2 * seconds / 3))
  run 2 "" --seed "$seed" --seconds $((seconds / 3))
  exit
fi
if ! "${DTRAIN_MPIRUN:-mpirun}" --version 2>/dev/null | grep -q 'Open MPI) 5\|prterun'; then
  echo "this MPI has no ULFM: skipped"
  exit 77
fi
end=$((SECONDS + seconds))
for ((job = 0; job == 0 || SECONDS < end; ++job)); do  # a job ends when one rank is left
  run 5 "--with-ft ulfm" --seed $((seed + 1000 * job)) --deaths --seconds "$seconds"
done
exec "$here/../../support/none_left.sh" "$program --seed"
