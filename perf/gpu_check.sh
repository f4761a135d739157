#!/usr/bin/env bash
# perf/gpu_check.sh build|correct|speed|train [OPTIONS]: proves and measures dtrain on a GPU, part by part; see --help.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: perf/gpu_check.sh PART [--out FOLDER]
  build      compiles the program, its module for GPUs, their tests and benchmarks
  correct    the tests with the label gpu, then under compute-sanitizer where there is one
  speed      bandwidth of the kernels
  train      not there yet: dtrain does not train on GPUs
Each part leaves PART.txt in FOLDER (perf/results/gpu), with the machine, the GPU and the commit at its head. A part that
was interrupted is begun again; the others stay as they are. Exit code 2: no GPU, or nothing built.
EOF
}
fail() { printf 'gpu_check: %s\n' "$1" >&2; exit 2; }

part=${1:---help}
out=$top/perf/results/gpu
shift || true
while (($#)); do
  case $1 in
    --out) [[ -n ${2:-} ]] || fail '--out needs a folder'; out=$2; shift 2 ;;
    *) fail "unknown argument '$1'; see perf/gpu_check.sh --help" ;;
  esac
done
case $part in
  --help | -h) usage; exit 0 ;;
  build | correct | speed) ;;
  train) fail 'dtrain does not train on GPUs yet: there is nothing to prove; use build, correct or speed' ;;
  *) fail "there is no part '$part'; use build, correct, speed or train" ;;
esac

build=$top/build/release
needs_gpu() {
  nvidia-smi --list-gpus >/dev/null 2>&1 ||
    fail "no GPU: nvidia-smi is missing or finds none; run 'perf/gpu_check.sh $part' where there is one"
  [[ -x $build/tests/kernels/kernels_device_test ]] || fail "nothing is built; run 'perf/gpu_check.sh build' first"
}
head_of_file() {
  printf 'perf/gpu_check.sh %s\ndate: %s\ncommit: %s\nmachine: %s, %s cores\n' "$part" "$(date -u +%FT%TZ)" \
    "$(git -C "$top" describe --always --dirty 2>/dev/null || echo unknown)" \
    "$(sed -n '0,/^model name/s/^model name.*: //p' /proc/cpuinfo)" "$(nproc)"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null | sed 's/^/GPU: /' || true
  printf '\n'
}

build_part() {
  "$top/jobs/build.sh" dtrain_app dtrain_cuda kernels_device_test comm_nccl_test dtrain_perf_device_kernels
  cuobjdump --list-elf "$build/lib/libdtrain_cuda.so" 2>/dev/null || true  # the architectures in it
}
correct_part() {
  ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 300 -L gpu
  command -v compute-sanitizer >/dev/null || { echo 'no compute-sanitizer in PATH: memory accesses are not checked'; return 0; }
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/kernels/kernels_device_test"
  done
}
speed_part() { "$build/perf/kernels/dtrain_perf_device_kernels"; }

[[ $part == build ]] || needs_gpu
mkdir -p "$out"
{ head_of_file; "${part}_part"; } 2>&1 | sed "s#$top/##g" | tee "$out/$part.txt.part"
mv "$out/$part.txt.part" "$out/$part.txt"
