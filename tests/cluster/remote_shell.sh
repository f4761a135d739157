#!/usr/bin/env bash
# remote_shell.sh [OPTIONS] NODE WORDS, in the head of an emulated cluster: stands in for ssh where mpirun starts its
# daemons. Like ssh it gives the words to a shell.
set -euo pipefail
while [[ ${1:-} == -* ]]; do shift; done
node=$1
shift
exec "$(dirname "${BASH_SOURCE[0]}")/enter.sh" "$node" bash -c "$*"
