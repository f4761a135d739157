#!/usr/bin/env bash
# jobs/mpirun_hosts.sh HOSTFILE [OPTIONS]: trains on the hosts of a file, where there is no Slurm. Options go to dtrain.
#   RANKS_PER_NODE=2 NAME=mine jobs/mpirun_hosts.sh hosts.txt --model vgg11 --dataset cifar10 --checkpoint-every 10min
# The file has a host per line, with slots=N (Open MPI) or HOST:N (MPICH) for N ranks there; RANKS_PER_NODE wins. mpirun
# starts its daemons there by ssh, which must ask for no password, and the checkout and OUTPUT must be the same folders
# on all of them. When a rank is lost the run is started once more, from its newest checkpoint, ATTEMPTS times at most;
# SIGUSR1, SIGTERM and Ctrl-C end it with a checkpoint (75), and the same command with the same NAME goes on.
# jobs/launch.sh has the other variables.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DTRAIN_LAUNCHER=mpirun
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

hostfile=${1:-}
[[ -r $hostfile ]] || fail "'$hostfile': no such host file; usage: jobs/mpirun_hosts.sh HOSTFILE [OPTIONS]"
shift
hosts=() slots=()
while read -r host words; do
  [[ -n $host ]] || continue
  [[ $host != *:* ]] || words="slots=${host#*:}"
  hosts+=("${host%%:*}")
  [[ " $words " =~ [[:space:]]slots[[:space:]]*=[[:space:]]*([^[:space:]]+) ]] && slots+=("${BASH_REMATCH[1]}") || slots+=("")
done < <(sed 's/#.*//' "$hostfile"; echo)
((${#hosts[@]})) || fail "$hostfile: names no host"
for host in "${hosts[@]}"; do
  getent hosts "$host" >/dev/null || fail "$hostfile: the host '$host' is unknown here; correct its name, or take it out"
done
if [[ -z ${RANKS_PER_NODE:-} && -n ${slots[0]} ]]; then
  ranks_per_node=${slots[0]}
  check_number "$hostfile: slots of ${hosts[0]}" "$ranks_per_node" 1
fi
for i in "${!hosts[@]}"; do
  [[ -n ${RANKS_PER_NODE:-} || ${slots[i]} == "${slots[0]}" ]] ||
    fail "$hostfile: ${hosts[i]} and ${hosts[0]} have different numbers of slots: set RANKS_PER_NODE, of all nodes"
done
nodes=${#hosts[@]}
printf -v places ",%s:$ranks_per_node" "${hosts[@]}"
MPIRUN_OPTIONS="--host ${places#,} ${MPIRUN_OPTIONS:-}"
trap ask_to_stop TERM INT

train "${NAME:-hosts-$(date +%F-%H%M%S)}" "$@"
