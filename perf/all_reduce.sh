#!/usr/bin/env bash
# perf/all_reduce.sh [BUILD_DIR] [ROUNDS]: every all_reduce of dtrain beside MPI_Allreduce and gloo, on 2 and 4
# ranks and on 2 x 2 invented nodes. Writes perf/results/all_reduce/*.csv and table.md once all has been measured. For a quiet
# machine.
set -euo pipefail
case ${1:-} in --help | -h)
  echo 'usage: perf/all_reduce.sh [BUILD_DIR] [ROUNDS]'
  echo 'Every all_reduce of dtrain beside MPI_Allreduce and gloo, on 2 and 4 ranks, into perf/results/all_reduce once all is measured.'
  echo 'ROUNDS: 7'
  exit 0 ;;
esac
here=$(CDPATH='' cd -- "$(dirname "$0")" && pwd)
build=${1:-$here/../build/release}
[[ -d $build ]] || { echo "all_reduce: $build is not a folder; see perf/all_reduce.sh --help" >&2; exit 2; }
rounds=${2:-7}
out=$here/results/all_reduce
# shellcheck source=jobs/env.sh
. "$here/../jobs/env.sh"
python=${DTRAIN_PYTHON:-python3}
bench=$(find "$build" -name all_reduce_bench -type f -perm -u+x | head -n 1)
[[ -n $bench ]] || { echo "no all_reduce_bench below $build: build it first" >&2; exit 2; }
measured=$(mktemp -d)
trap 'rm -rf "$measured"' EXIT
run() { "$here/../tests/support/mpirun.sh" "$1" "$bench" --rounds "$rounds" --nodes "$2"; }
run 2 1 >"$measured/ranks-2.csv"
run 4 1 >"$measured/ranks-4.csv"
run 4 2 >"$measured/ranks-4-nodes-2.csv"
for ranks in 2 4; do
  OMP_NUM_THREADS=1 "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
    "$here/peers/gloo_all_reduce.py" --rounds "$rounds" >"$measured/gloo-$ranks.csv"
done
"$python" "$here/all_reduce_table.py" "$measured/table.md" "$measured"/{gloo,ranks}-*.csv
mkdir -p "$out"
mv "$measured"/* "$out"
echo "$out/table.md"
