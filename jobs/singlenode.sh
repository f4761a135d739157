#!/usr/bin/env bash
#SBATCH --job-name=singlenode
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# All ranks on one node, which share one copy of the dataset in its memory. Options go to dtrain:
#   sbatch jobs/singlenode.sh --config jobs/configs/resnet18_cifar10.toml          from the checkout
#   sbatch jobs/singlenode.sh --model mlp --epochs 3
# 300 s before its time is up the job goes back to the queue and on from a checkpoint; jobs/launch.sh has the variables.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

train "${NAME:-singlenode-${SLURM_JOB_ID:-$(date +%F-%H%M%S)}}" --staging memory "$@"
