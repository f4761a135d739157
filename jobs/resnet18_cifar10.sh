#!/usr/bin/env bash
#SBATCH --job-name=resnet18_cifar10
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=08:00:00
# The case study: ResNet18 on CIFAR-10 with 128 samples per rank, SGD 0.1 with momentum 0.9 and weight decay 5e-4, crop and
# flip; 1 rank against 2. Leaves the loss per epoch as a picture and a table with the speed-up in runs/resnet18_cifar10.
#   jobs/resnet18_cifar10.sh             needs data/fetch.sh cifar10; or sbatch jobs/resnet18_cifar10.sh from the checkout
#   jobs/resnet18_cifar10.sh --quick     a narrow network on built-in images, about a minute
# Further options go to dtrain. OUTPUT=FOLDER: another place; DTRAIN=PATH: another binary.
set -euo pipefail
case ${1:-} in --help | -h) sed -n '2,/^[^#]/{/^#SBATCH/d;s/^# \{0,1\}//p}' "$0"; exit ;; esac
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." 2>/dev/null && pwd) || top=''
[[ -e $top/jobs/launch.sh ]] || top=${SLURM_SUBMIT_DIR:-$PWD}  # in the queue this is a copy, elsewhere
[[ -e $top/jobs/launch.sh ]] || { echo "${SLURM_JOB_NAME:-${0##*/}}: $top is no checkout of dtrain: submit it from the checkout" >&2; exit 2; }
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"

python3 -c 'import h5py, matplotlib' 2>/dev/null ||
  { echo "${0##*/}: the picture needs h5py and matplotlib; run jobs/setup.sh --with-tools" >&2; exit 2; }
output=${OUTPUT:-$top/runs/resnet18_cifar10}
per_rank=128
what=(--config "$top/jobs/configs/resnet18_cifar10.toml")
if [[ ${1:-} == --quick ]]; then
  shift
  what+=(--dataset synthetic --model-option width=8 --epochs 3)
  output=$output-quick
fi

for ranks in 1 2; do
  mpirun -np "$ranks" "${DTRAIN:-$top/dtrain}" "${what[@]}" --global-batch $((per_rank * ranks)) --threads 1 --output "$output" \
    --name "$ranks-ranks" --overwrite "$@"
done
python3 "$top/perf/training/case_study.py" "$output/1-ranks" "$output/2-ranks" --out "$output"
