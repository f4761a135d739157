#!/usr/bin/env bash
#SBATCH --job-name=doctor
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
# dtrain doctor on the nodes, with the launcher and the binding of a training job: what can be wrong, each with a remedy.
# Ends with 1 if there is a problem. Options go to dtrain doctor.
#   sbatch --nodes=4 jobs/doctor.sh                                                       from the checkout
#   sbatch --nodes=2 --gpus-per-node=4 --ntasks-per-node=4 jobs/doctor.sh --device cuda
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

# shellcheck disable=SC2034  # start_ranks reads both; there is no run whose state could be looked at
folder=/nonexistent before=''
start_ranks doctor --output "$output" "$@"
