#!/usr/bin/env bash
# perf/cluster.sh [OPTIONS]: all_reduce and a mesh on two emulated nodes whose link is held to 1 Gb/s. The options, and what
# is written to perf/results/cluster, are those of perf/comm/cluster.py. As root, on a quiet machine, with Slurm installed.
# DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in --help | -h)
  . "$top/jobs/env.sh"
  echo 'usage: perf/cluster.sh [OPTIONS], those of perf/comm/cluster.py:'
  python3 "$top/perf/comm/cluster.py" --help
  exit 0 ;;
esac
build=$top/build/release
dtrain=${DTRAIN:-$build/bin/dtrain}
for program in "$dtrain" "$build/perf/comm/all_reduce_bench"; do
  [[ -x $program ]] || { echo "no $program: run jobs/build.sh all first" >&2; exit 2; }
done
out=$top/perf/results/cluster
mkdir -p "$out"
. "$top/jobs/env.sh"
{
  echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the start"
  echo "command: perf/cluster.sh $*, $(date -u +%F)"
  python3 "$top/perf/comm/cluster.py" "$dtrain" "$build/perf/comm/all_reduce_bench" "$out" "$@"
} | tee -a "$out/summary.txt"
