#!/usr/bin/env bash
# death_test.sh PROGRAM RANKS WHERE NODES [JOBS]: a rank dies by SIGKILL; every other must say so within a
# second (three on a loaded machine) and end by itself; JOBS times, one after the other. Exit code 77 (skip)
# where this MPI has no ULFM.
set -uo pipefail
program=$1 ranks=$2 where=$3 nodes=$4 jobs=${5:-1}
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
if ! "${DTRAIN_MPIRUN:-mpirun}" --version 2>/dev/null | grep -q 'Open MPI) 5\|prterun'; then
  echo "this MPI has no ULFM: skipped"
  exit 77
fi
for ((job = 0; job < jobs; ++job)); do
  output=$(DTRAIN_MPIRUN_FLAGS="--with-ft ulfm" timeout 50 "$here/../../support/mpirun.sh" "$ranks" "$program" "$where" "$nodes" 2>&1)
  status=$?
  echo "$output"
  [ $status -ne 124 ] || { echo "the job did not end"; exit 1; }
  [ "$(grep -c '^survivor' <<<"$output")" -eq $((ranks - 1)) ] || { echo "not every survivor noticed"; exit 1; }
  victim=$((ranks - 1))
  named=$(grep -c "code 5: .*rank $victim is gone" <<<"$output")
  [ "$named" -ge 1 ] || { echo "nobody named rank $victim"; exit 1; }
  grep '^survivor' <<<"$output" | awk '{ if ($4 + 0 > 3.0) { print "too late: " $0; late = 1 } } END { exit late }' || exit 1
done
exec "$here/../../support/none_left.sh" "$program $where $nodes"
