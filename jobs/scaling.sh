#!/usr/bin/env bash
#SBATCH --job-name=scaling
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# The same training on 1, 2, 4, ... nodes, up to those of the job, at equal global batch: a run each in
# OUTPUT/scaling-JOB/nodes-N, and the scaling notebook over them as scaling.html, its figures beside it.
#   sbatch --nodes=8 jobs/scaling.sh --limit-steps 200          from the checkout; further options go to dtrain
#   NODE_COUNTS="1 3" DATASET=synthetic sbatch jobs/scaling.sh  needs no dataset; CONFIG: another file; DATA_ROOT: folder of datasets
# A job that comes back from the queue does not repeat what is complete; jobs/launch.sh has the other variables.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/launch.sh
. "$top/jobs/launch.sh"

python3 -c 'import h5py, matplotlib, nbconvert' 2>/dev/null ||
  fail "the page needs h5py, matplotlib and nbconvert; run jobs/setup.sh --with-tools"
all_nodes=$nodes
counts=${NODE_COUNTS:-$(for ((n = 1; n <= all_nodes; n *= 2)); do echo "$n"; done)}
for count in $counts; do
  check_number NODE_COUNTS "$count" 1
  ((10#$count <= all_nodes)) || fail "NODE_COUNTS=$count: the job has $(counted "$all_nodes" node); give sbatch --nodes=$count, or leave it out"
done
check_node_local
output=$output/scaling-${SLURM_JOB_ID:-$(date +%F-%H%M%S)}
[[ -z ${RESULTS:-} ]] || RESULTS=$RESULTS/${output##*/}
for nodes in $counts; do
  nodes=$((10#$nodes))
  [[ $(cat "$output/nodes-$nodes/state" 2>/dev/null) != completed ]] || continue
  train "nodes-$nodes" --config "${CONFIG:-$top/jobs/configs/vgg11_cifar10.toml}" --dataset "${DATASET:-cifar10}" \
    --data-root "${DATA_ROOT:-$top/data/staged}" --mesh "data=$((nodes * ranks_per_node))" --staging "local=$node_local" "$@"
done

# Jupyter and matplotlib run start-up files of these folders, so only this user may write there.
notebook_home=$(mktemp -d "$node_local/notebook.XXXXXX")
trap 'rm -rf "$notebook_home"' EXIT
# A list of patterns, quoted as the notebook reads it: bash's %q writes some letters in a form of its own.
RUNS="$(python3 -c 'import shlex, sys; print(shlex.quote(sys.argv[1]))' "$output")/nodes-*"
export RUNS FIGURES=$output IPYTHONDIR=$notebook_home MPLCONFIGDIR=$notebook_home
python3 -m nbconvert --log-level ERROR --to html --execute "$top/perf/notebooks/scaling.ipynb" --output-dir "$output"
[[ -z ${RESULTS:-} ]] || cp "$output"/*.html "$output"/*.png "$RESULTS"
say "$output/scaling.html"
