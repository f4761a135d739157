#!/usr/bin/env bash
# node.sh FOLDER NODE: first process of an emulated node, in namespaces of its own.
set -euo pipefail
folder=$1 node=$2
hostname "$node"
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$folder/local"
touch "$folder/nodes/$node/unshared"
until [[ -e $folder/nodes/$node/plugged ]]; do sleep 0.02; done
ip link set lo up
ip address add "$(sed -n "s/ $node\$//p" "$folder/hosts")/24" dev eth0
ip link set eth0 up
# shellcheck source=/dev/null
. "$folder/env.sh"
slurmd -D &
# A first process is sent all orphans, which bash takes in while it waits. Without its daemon there is no node.
wait $!
