#!/usr/bin/env bash
# none_left.sh PATTERN [SECONDS]: fails where a process of such a command line (pgrep --full) still runs SECONDS (10) from now. A
# launcher may return while the ranks that it killed are still ending: MPICH's does.
set -euo pipefail
pattern=$1 seconds=${2:-10}
for ((look = 0; look < 10 * seconds; ++look)); do
  pgrep --full --ignore-ancestors "$pattern" >/dev/null || exit 0
  sleep 0.1
done
echo "left running:"
pgrep --full --ignore-ancestors --list-full "$pattern"
exit 1
