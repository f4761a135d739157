#!/usr/bin/env bash
#SBATCH --job-name=multinode_vgg11
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# With GPUs ask for them per node, not per task: ranks that see one GPU each cannot use the links between GPUs.
##SBATCH --gpus-per-node=2
# VGG11 on several nodes: one copy of the model on each, cut into as many stages as a node has ranks, so that pipelines stay
# within a node. Shards are copied to the nodes' own storage first. 300 s before its time is up, or when a node is lost, the
# job goes back to the queue and on from its newest checkpoint.
#   sbatch jobs/multinode_vgg11.sh       from the checkout; further options go to dtrain; jobs/launch.sh has the variables
#   DATASET=synthetic sbatch jobs/multinode_vgg11.sh --limit-steps 20        needs no dataset; else data/fetch.sh cifar10
#   DATASET [cifar10], DATA_ROOT [data/staged], MESH [data=NODES,pipe=RANKS of a node], CHECKPOINT_EVERY [10min]
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

check_node_local
train "${NAME:-vgg11-${SLURM_JOB_ID:-$(date +%F-%H%M%S)}}" --config "$top/jobs/configs/vgg11_cifar10.toml" \
  --dataset "${DATASET:-cifar10}" --data-root "${DATA_ROOT:-$top/data/staged}" --staging "local=$node_local" \
  --mesh "${MESH:-data=$nodes,pipe=$ranks_per_node}" --checkpoint-every "${CHECKPOINT_EVERY:-10min}" "$@"
