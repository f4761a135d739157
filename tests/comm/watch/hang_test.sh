#!/usr/bin/env bash
# hang_test.sh WHAT NODES PATTERN PROGRAM: the last of four ranks does not come; some rank must say of it what PATTERN says.
set -uo pipefail
what=$1 nodes=$2 pattern=$3 program=$4
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
output=$(timeout 50 "$here/../../support/mpirun.sh" 4 "$program" "$what" "$nodes" 2>&1)
status=$?
echo "$output"
[ $status -ne 124 ] || { echo "the job did not end"; exit 1; }
grep -Eq "^waiter .*$pattern" <<<"$output" || { echo "nobody said: $pattern"; exit 1; }
exec "$here/../../support/none_left.sh" "$program $what $nodes"
