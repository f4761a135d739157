#!/usr/bin/env bash
#SBATCH --job-name=nodes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# Any model on several nodes: a rank for each GPU, or for each task where the job has no GPUs. Account, partition and other
# numbers go to sbatch, options to dtrain:
#   sbatch --nodes=4 --ntasks-per-node=8 jobs/nodes.sh --model mlp --dataset mnist                             from the checkout
#   sbatch --account=A --partition=P --gpus-per-node=4 --cpus-per-task=8 jobs/nodes.sh --model resnet18 --dataset cifar10
# GPUs are asked for per node, not per task: ranks that see one GPU each cannot use the links between GPUs. Shards are copied
# to the nodes' own storage first. 300 s before its time is up, or when a node is lost, the job goes back to the queue and on
# from its newest checkpoint. jobs/launch.sh has the variables.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

check_node_local
train "${NAME:-nodes-${SLURM_JOB_ID:-$(date +%F-%H%M%S)}}" --staging "local=$node_local" --device "$device" "$@"
