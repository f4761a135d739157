#!/usr/bin/env bash
# power.sh FOLDER on|off NODE, in the head of an emulated cluster: plugs a node in and starts it, or takes both away.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 what=$2 node=$3
own=$folder/nodes/$node
grep -qw "$node" "$folder/hosts" || { echo "cluster: there is no node '$node'" >&2; exit 2; }
runs() { [[ -s $own/pid && -e /proc/$(cat "$own/pid") ]]; }

limit() { tc qdisc add dev "$1" root tbf rate "$2" burst 256kb latency 50ms; }

on() {
  local rate unshared
  runs && { echo "cluster: $node is on already" >&2; exit 2; }
  rm -rf "$own" "$folder/spool/$node"
  mkdir -p "$own" "$folder/spool/$node"
  setsid unshare --mount --net --uts --pid --fork --mount-proc --kill-child \
    "$here/node.sh" "$folder" "$node" </dev/null >"$folder/log/$node" 2>&1 &
  unshared=$!
  until [[ -e $own/unshared ]]; do
    kill -0 "$unshared" 2>/dev/null || { echo "cluster: $node did not start; see $folder/log/$node" >&2; exit 1; }
    sleep 0.02
  done
  cut -d' ' -f1 "/proc/$unshared/task/$unshared/children" >"$own/pid"
  ip link add "$node" type veth peer name eth0 netns "$unshared"
  ip link set "$node" master bridge up
  rate=$(cat "$folder/rate")
  if [[ $rate != none ]]; then  # towards the node; node.sh limits the other direction
    limit "$node" "$rate"
    nsenter --target "$unshared" --net tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
  fi
  touch "$own/plugged"
}

off() {
  runs || { echo "cluster: $node is off already" >&2; exit 2; }
  # The cable first: where the power fails nobody is told that connections end.
  ip link set "$node" down
  kill -KILL "$(cat "$own/pid")"
  while runs; do sleep 0.02; done
  ip link delete "$node" 2>/dev/null || true  # the kernel takes its time with what a namespace held
}

"$what"
