#!/usr/bin/env bash
# enter.sh NODE COMMAND, in the head of an emulated cluster: runs a command on a node.
set -euo pipefail
node=$1
shift
pid=$(cat "$CLUSTER_FOLDER/nodes/$node/pid" 2>/dev/null || echo none)
[[ -e /proc/$pid ]] || { echo "cluster: $node is unknown or off" >&2; exit 255; }
# shellcheck disable=SC2016  # for the inner shell, which goes back to the folder that entering left
exec nsenter --target "$pid" --mount --net --uts --pid -- bash -c 'cd "$0" && exec "$@"' "$PWD" "$@"
