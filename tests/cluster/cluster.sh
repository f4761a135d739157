#!/usr/bin/env bash
# A small cluster with a real Slurm, of nodes that are emulated on this machine. Needs root, munge and Slurm.
#
#   cluster.sh up FOLDER [--nodes N] [--rate RATE] [--while PID]   RATE limits each link, such as 1gbit
#   cluster.sh run FOLDER NODE COMMAND [ARGUMENTS]                 NODE is head, node1, node2, ...
#   cluster.sh off FOLDER NODE                                     its cable, its processes and its memory are gone
#   cluster.sh on FOLDER NODE
#   cluster.sh down FOLDER                                         and FOLDER with all that is in it
#   cluster.sh possible                                            exit code 77 and a reason where it is not
#
# A node has network, hostname, processes, /dev/shm and FOLDER/local of its own; other folders all nodes share, as a
# cluster's nodes do a parallel file system, and they share this machine's cores. Everything hangs on one process, the
# head's first: the bridge, the nodes and every mount live in namespaces beneath it, which the kernel takes away when it
# ends, however it ends. So clusters cannot collide with one another or with this machine's network, and a `down` cannot
# leave half of one behind. With `--while PID` it goes down when that process ends, killed or not.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
limit_s=90  # for the nodes of a cluster to come up
fail() { printf 'cluster: %s\n' "$1" >&2; exit "${2:-1}"; }

possible() {
  local program
  ((EUID == 0)) || { echo "skipped: an emulated cluster needs root"; exit 77; }
  for program in munged slurmctld slurmd sbatch ip tc nsenter unshare; do
    command -v "$program" >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
  done
  unshare --net --mount --uts --pid --fork --mount-proc ip link add name bridge type bridge 2>/dev/null ||
    { echo "skipped: this machine allows no network namespace with a bridge"; exit 77; }
}

head_process() {  # as this machine numbers it; fails where there is none
  pgrep --oldest --full "^bash .*/head\\.sh $folder "
}
in_head() {  # COMMAND
  local pid
  pid=$(head_process) || fail "no cluster is up in $folder; start one with cluster.sh up $folder"
  # shellcheck disable=SC2016  # for the inner shell, which goes back to the folder that entering left
  exec nsenter --target "$pid" --mount --net --uts --pid -- \
    bash -c 'cd "$1" && . "$2/env.sh" && shift 2 && exec "$@"' in_head "$PWD" "$folder" "$@"
}

down() {
  local watch tries
  # Also one that an interrupted `up` has just begun: unshare, and what is to become the head.
  while pkill -KILL --full "/head\\.sh $folder "; do sleep 0.05; done
  # The watch calls us too, and then ends by itself.
  for watch in $(pgrep --full "^bash .* watch [0-9]+ .* $folder\$"); do
    if [[ $watch != "$PPID" ]]; then pkill -P "$watch" || true; fi
  done
  # Only what `up` began bears this mark, so that no other folder is ever removed. The last processes of a killed cluster
  # may write while it is removed.
  [[ -e $folder/.cluster ]] || return 0
  for ((tries = 0; tries < 200; ++tries)); do
    rm -rf -- "$folder" 2>/dev/null && return
    sleep 0.05
  done
  rm -rf -- "$folder"
}

undo() {  # what `up` has done so far; a child that is not yet a program bears no name that `down` could find
  local child
  trap '' INT TERM HUP
  for child in $(jobs -p); do kill -KILL "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  down
  rmdir "$folder" 2>/dev/null || true
}

up() {
  local nodes=2 rate=none watched='' begun=$SECONDS head state
  trap 'exit 1' INT TERM HUP
  while (($#)); do
    case $1 in
      --nodes) nodes=${2:-} ;; --rate) rate=${2:-} ;; --while) watched=${2:-} ;;
      *) fail "unknown argument '$1'; the head of $0 has them all" 2 ;;
    esac
    [[ -n ${2:-} ]] || fail "$1 needs a value" 2
    shift 2
  done
  [[ $nodes =~ ^[1-9][0-9]?$ ]] || fail "--nodes $nodes: it can be 1 to 99" 2
  ((${#folder} <= 60)) || fail "$folder: at most 60 characters, or the names of Slurm's sockets become too long" 2
  [[ -z $(ls -A "$folder" 2>/dev/null) ]] || fail "$folder is not empty; choose another folder, or end a cluster there with cluster.sh down" 2
  (possible) || fail "this machine cannot emulate nodes, for the reason above"
  trap '(($? == 0)) || undo' EXIT
  mkdir -p "$folder"
  touch "$folder/.cluster"
  mkdir -p "$folder"/{local,log,nodes,spool,state}

  if [[ -n $watched ]]; then
    # shellcheck disable=SC2016  # for the inner shell
    setsid bash -c 'tail --pid="$1" --sleep-interval=0.5 -f /dev/null; "$2" down "$3"' \
      watch "$watched" "$here/cluster.sh" "$folder" </dev/null >/dev/null 2>&1 &
  fi
  setsid unshare --mount --net --uts --pid --fork --mount-proc --kill-child \
    "$here/head.sh" "$folder" "$nodes" "$rate" </dev/null >"$folder/log/head" 2>&1 &
  head=$!
  until head_process >/dev/null; do  # where other programs have the cores this takes its time
    kill -0 "$head" 2>/dev/null || break
    sleep 0.02
  done
  while head_process >/dev/null && ((SECONDS - begun < limit_s)); do
    state=$( (in_head sinfo --noheader --format=%T) 2>/dev/null || true)
    [[ $state == idle ]] && break
    sleep 0.2
  done
  if [[ ${state:-} != idle ]]; then
    tail -n 5 "$folder"/log/* >&2 || true
    fail "the nodes did not come up within $limit_s s; the ends of their logs are above"
  fi
  cat <<EOF
$nodes nodes are up, node1 to node$nodes, and a head; logs and configuration lie in $folder
  $here/cluster.sh run $folder head sbatch --nodes=2 SCRIPT
  $here/cluster.sh run $folder node1 hostname
  $here/cluster.sh down $folder
EOF
}

command=${1:-}
case $command in
  possible) possible; exit ;;
  up | run | off | on | down) [[ -n ${2:-} ]] || fail "$command needs the cluster's folder; the head of $0 has the usage" 2 ;;
  *) fail "unknown command '$command'; the head of $0 has them all" 2 ;;
esac
folder=$(realpath -m "$2")
shift 2
case $command in
  up) up "$@" ;;
  down) down ;;
  on | off) in_head "$here/power.sh" "$folder" "$command" "${1:?the name of a node}" ;;
  run)
    [[ -n ${2:-} ]] || fail "run needs a node and a command" 2
    if [[ $1 == head ]]; then shift; in_head "$@"; else in_head "$here/enter.sh" "$@"; fi ;;
esac
