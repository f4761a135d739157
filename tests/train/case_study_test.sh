#!/usr/bin/env bash
# case_study_test.sh ROOT DEPS DTRAIN: the case study's quick form runs to its table and its picture.
set -euo pipefail
export DTRAIN_DEPS=$2 DTRAIN=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
OUTPUT=$scratch/study "$1/jobs/resnet18_cifar10.sh" --quick --limit-steps 12 --quiet
table=$scratch/study-quick/README.md
grep -q '^| 1 | ' "$table"
grep -q '^| 2 | ' "$table"
[[ -s $scratch/study-quick/loss.png ]]
