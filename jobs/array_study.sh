#!/usr/bin/env bash
#SBATCH --job-name=study
#SBATCH --array=0-5
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# The comparison study of jobs/study.sh as an array of jobs, one model each. Options go to jobs/study.sh:
#   sbatch jobs/array_study.sh --seeds 3                       from the checkout; real data first, see jobs/study.sh
#   sbatch --array=0,2 jobs/array_study.sh --quick             two of the models, on synthetic data
# What is complete is not made again, so the same command goes on with a study that ran out of time. Its runs have one,
# two or four ranks, which mpirun takes from the job's tasks.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

mapfile -t models < <(tail -n +2 "$top/perf/study/cases.csv" | cut -d, -f1 | uniq)
[[ -n ${SLURM_ARRAY_TASK_ID:-} ]] || fail "no array of jobs: submit it with sbatch jobs/array_study.sh"
number=$SLURM_ARRAY_TASK_ID
((number < ${#models[@]})) || fail "--array: the study has ${#models[@]} models, numbered from 0: ${models[*]}"
say "model ${models[number]}"
study=$output/study
[[ " $* " != *' --quick '* ]] || study+=-quick  # so that a quick run stands for no real one
"$top/jobs/study.sh" --models "${models[number]}" --dtrain "$dtrain" --output "$study" \
  --mpirun "mpirun --bind-to $([[ $bind == cores ]] && echo core || echo none)" "$@"
