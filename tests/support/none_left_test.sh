#!/usr/bin/env bash
# A process that is still ending is waited for; one that stays is found.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
name="none_left_test of $$"
trap 'kill "${started[@]}" 2>/dev/null || true' EXIT
started=()
start() { (exec -a "$name, $1" sleep "$2") & started+=($!); }
start ending 1
start staying 60
for _ in {1..100}; do  # until both have their names, or one has ended already
  if pgrep --full "^$name, staying" >/dev/null; then break; fi
  sleep 0.1
done
"$here/none_left.sh" "^$name, ending"
if found=$("$here/none_left.sh" "^$name, staying" 1); then echo "a process that stays was not found"; exit 1; fi
grep -q "$name, staying" <<<"$found"
