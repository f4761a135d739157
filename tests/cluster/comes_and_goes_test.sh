#!/usr/bin/env bash
# comes_and_goes_test.sh ROOT: emulated clusters do not meet one another, and leave nothing behind: taken down, interrupted,
# failed halfway or with their owner killed. Exit code 77: skipped.
set -euo pipefail
root=$1
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
cluster=$root/tests/cluster/cluster.sh
"$cluster" possible || exit $?
scratch=$(mktemp -d)
one=$scratch/one two=$scratch/two
trap '"$cluster" down "$one"; "$cluster" down "$two"; rm -rf "$scratch"' EXIT

left() {  # what of a cluster is still here: links, mounts, processes, files; some of it may be going at this moment
  ip -brief link | awk '{ print $1 }'  # not their states: another program may use this machine's network
  grep -F "$scratch" /proc/mounts || true
  pgrep --list-full --full "$scratch" | grep -v comes_and_goes_test || true
  find "$scratch" -mindepth 1 2>/dev/null || true
}
nothing_left() {  # CASE
  local now
  for ((i = 0; i < 600; ++i)); do  # a minute, where other programs have the cores
    now=$(left)
    [[ $now != "$before" ]] || return 0
    sleep 0.1
  done
  printf 'FAILED: %s left something behind:\n%s\n' "$1" "$(comm -13 <(sort <<<"$before") <(sort <<<"$now"))"
  failures=$((failures + 1))
  "$cluster" down "$one"
}
before=$(left)

check 2 "unknown command 'start'" "$cluster" start
check 2 "up needs the cluster's folder" "$cluster" up
check 2 "--nodes 0: it can be 1 to 99" "$cluster" up "$one" --nodes 0
check 2 "unknown argument '--speed'" "$cluster" up "$one" --speed 1
check 2 "at most 60 characters" "$cluster" up "$scratch/$(printf 'x%.0s' {1..60})"
check 1 "no cluster is up in $one" "$cluster" run "$one" node1 true
check 0 "" "$cluster" down "$one"
nothing_left "a wrong call"

check 0 "2 nodes are up" "$cluster" up "$one" --rate 100mbit
check 0 "3 nodes are up" "$cluster" up "$two" --nodes 3
check 2 "is not empty" "$cluster" up "$one"
check 0 node2 "$cluster" run "$one" node2 hostname
check 0 "$PWD" "$cluster" run "$one" node2 pwd
check 0 "node1 node2 node3" "$cluster" run "$two" head bash -c 'srun --nodes=3 --ntasks=3 hostname | sort | paste -sd" "'
check 0 "2" "$cluster" run "$one" head sinfo --noheader --format=%D
check 0 "rate 100Mbit" "$cluster" run "$one" node1 tc qdisc show dev eth0
check 0 "rate 100Mbit" "$cluster" run "$one" head tc qdisc show dev node1
check 0 "" "$cluster" run "$two" node1 bash -c '! tc qdisc show dev eth0 | grep tbf'
for place in /dev/shm "$one/local"; do  # each node's own
  check 0 "" "$cluster" run "$one" node1 touch "$place/only-here"
  check 0 "" "$cluster" run "$one" node1 test -e "$place/only-here"
  check 1 "" "$cluster" run "$one" node2 test -e "$place/only-here"
  check 1 "" test -e "$place/only-here"
done
check 0 "" "$cluster" off "$two" node3
check 2 "node3 is off already" "$cluster" off "$two" node3
check 2 "there is no node 'node4'" "$cluster" on "$two" node4
check 255 "node3 is unknown or off" "$cluster" run "$two" node3 true
check 0 "" "$cluster" on "$two" node3
check 0 node3 "$cluster" run "$two" node3 hostname
check 0 "" "$cluster" down "$two"
check 0 node1 "$cluster" run "$one" node1 hostname  # the other one stays
check 0 "" "$cluster" down "$one"
nothing_left down

for signal in INT TERM HUP; do
  for wait_s in ${WAITS:-0.05 0.1 0.3}; do
    # With job control, because a background process of a script ignores SIGINT. One that was up just in time is up.
    (set -m; timeout --preserve-status --signal="$signal" "$wait_s" "$cluster" up "$one" >/dev/null 2>&1) && "$cluster" down "$one"
    nothing_left "up, interrupted by $signal after $wait_s s,"
  done
done

mkdir "$scratch/bin"
printf '#!/bin/sh\nexit 1\n' >"$scratch/bin/slurmctld"
chmod +x "$scratch/bin/slurmctld"
check 1 "the nodes did not come up" env PATH="$scratch/bin:$PATH" "$cluster" up "$one"
rm -r "${scratch:?}/bin"
nothing_left "up, failed halfway,"

sleep 100 & owner=$!
check 0 "2 nodes are up" "$cluster" up "$one" --while "$owner"
kill -KILL "$owner"
wait "$owner" 2>/dev/null || true
nothing_left "a killed owner"
finish
