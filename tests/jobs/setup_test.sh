#!/usr/bin/env bash
# setup_test.sh ROOT DEPS: wrong arguments of jobs/setup.sh and build.sh are refused in one sentence, and a second
# set-up has nothing to do.
set -euo pipefail
root=$1 deps=$2
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export DTRAIN_DEPS=$scratch/deps
mkdir -p "$scratch/checkout"
cp -r "$root/jobs" "$scratch/checkout"
setup=$scratch/checkout/jobs/setup.sh

check 0 "usage:" "$setup" --help
check 2 "unknown argument '--mpl'" "$setup" --mpl x
check 2 "--mpi needs a path" "$setup" --mpi
check 2 "cannot read the bundle" "$setup" --from-bundle "$scratch/nowhere"
check 2 "no bin/mpicxx and bin/mpirun there" "$setup" --mpi "$scratch"
check 2 "no include/ and lib/libtorch_cpu.so there" "$setup" --torch "$scratch"
check 2 "cannot write to" env DTRAIN_DEPS=/proc/nowhere "$setup"
check 2 "run jobs/setup.sh first" env DTRAIN_DEPS=/proc/nowhere "$scratch/checkout/jobs/build.sh"

# What is installed already is not installed again.
if [[ -e $deps/venv/dtrain.stamp ]]; then
  before=$(stat -c %Y "$deps/venv/dtrain.stamp")
  check 0 "complete in" env DTRAIN_DEPS="$deps" "$setup"
  check 0 "$before" stat -c %Y "$deps/venv/dtrain.stamp"
  check 0 "$(cd "$deps" && pwd -P)" readlink "$scratch/checkout/.deps"
else
  echo "not checked: $deps was not installed by jobs/setup.sh"
fi
finish
