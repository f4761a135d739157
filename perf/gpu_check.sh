#!/usr/bin/env bash
# perf/gpu_check.sh build|smoke|correct|speed|profile|ranks|train [OPTIONS]: proves and measures dtrain on a GPU, part by part; see --help.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: perf/gpu_check.sh PART [--out FOLDER] [--limit-s N]
  build      compiles the program, its module for GPUs, their tests and benchmarks
  smoke      the doctor, the kernels, NCCL on one rank, and eight steps of mlp, resnet18 and gpt, replayed and not
  correct    the tests with the label gpu, also under compute-sanitizer where there is one; then whole runs of the models
             beside the same on the CPU
  speed      bandwidth of the kernels, once; then perf/gpu/speed.py, case by case: training beside PyTorch eager and
             torch.compile, gpt's share of the GPU's peak, the study's models on all CPU cores and on the GPU, the loader alone,
             collectives between GPUs. No case, and no whole run of correct, begins after --limit-s seconds [480]; goes on where it was; needs Python with torch
             and h5py
  profile    where some steps of a gpt of 12 layers of 768 and of resnet18 go, kernel by kernel, by NVIDIA's profilers where there is one
  ranks      two ranks on what GPUs there are: NCCL's tests, and mlp, resnet18 and gpt with small buckets, replayed and not, their
             weights compared every third step. Two ranks share a GPU only with NCCL 2.30 or newer
  train      resnet18 for three epochs, of CIFAR-10 where it is staged, else of built-in images, and its accuracy
Each part leaves PART.txt in FOLDER (perf/results/gpu), with the machine, the GPU and the commit at its head; speed also
kernels.txt, speed.json and speed.md. A part that was interrupted is begun again, of speed what it has not measured yet; the
others stay as they are. Whole runs of correct that passed are not done again. Exit codes: 2 no GPU, or nothing built; 3 the time of
this call is up, and correct or speed has more to do: run it again to go on.
EOF
}
fail() { printf 'gpu_check: %s\n' "$1" >&2; exit 2; }

part=${1:---help}
out=$top/perf/results/gpu
limit_s=480
shift || true
while (($#)); do
  case $1 in
    --out) [[ -n ${2:-} ]] || fail '--out needs a folder'; out=$2; shift 2 ;;
    --limit-s) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail '--limit-s needs whole seconds'; limit_s=$2; shift 2 ;;
    *) fail "unknown argument '$1'; see perf/gpu_check.sh --help" ;;
  esac
done
case $part in
  --help | -h) usage; exit 0 ;;
  build | smoke | correct | speed | profile | ranks | train) ;;
  *) fail "there is no part '$part'; use build, smoke, correct, speed, profile, ranks or train" ;;
esac

build=$top/build/release
# What perf/gpu_bundle.sh packed brings its own libraries along.
for environment in "$top/travelled/env" "$top/jobs/env.sh"; do
  # shellcheck disable=SC1090
  [[ ! -f $environment ]] || . "$environment"
done
export DTRAIN_TEST_GPUS=1  # tests/support/mpirun.sh hides them otherwise
python=${DTRAIN_PYTHON:-${DTRAIN_DEPS:-$top/.deps}/venv/bin/python}
needs_gpu() {
  nvidia-smi --list-gpus >/dev/null 2>&1 ||
    fail "no GPU: nvidia-smi is missing or finds none; run 'perf/gpu_check.sh $part' where there is one"
  [[ -x $build/tests/kernels/kernels_device_test ]] || fail "nothing is built; run 'perf/gpu_check.sh build' first"
}
commit() { cat "$top/commit" 2>/dev/null || git -C "$top" describe --always --dirty 2>/dev/null || echo unknown; }
list_gpus() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null | sed 's/^/GPU: /' || true
}
head_of_file() {
  printf 'perf/gpu_check.sh %s\ndate: %s\ncommit: %s\nmachine: %s, %s cores\n' "$part" "$(date -u +%FT%TZ)" "$(commit)" \
    "$(sed -n '0,/^model name/s/^model name.*: //p' /proc/cpuinfo)" "$(nproc)"
  list_gpus
  printf '\n'
}

build_part() {
  if [[ -d $top/travelled ]]; then
    "$build/bin/dtrain" --version  # compiled elsewhere; this shows that it finds its libraries
    return 0
  fi
  "$top/jobs/build.sh" dtrain_app dtrain_cuda kernels_device_test comm_nccl_test dtrain_perf_device_kernels dtrain_perf_data
  cuobjdump --list-elf "$build/lib/libdtrain_cuda.so" 2>/dev/null || true  # the architectures in it
}
passes_or_skips() {  # a test that skips with its reason ends with 77
  local status=0
  "$@" || status=$?
  ((status != 77)) || { echo "skipped: ${*: -2}"; status=0; }
  return "$status"
}
# short_run RANKS MODEL OPTIONS...: some steps, whose log it prints.
short_run() {
  local ranks=$1 model=$2
  shift 2
  runs=${runs:-$(mktemp -d)}
  trap 'rm -rf "$runs"' EXIT
  printf '\n%s on %s: %s\n' "$model" "$ranks" "$*"
  env "DTRAIN_MPIRUN=$(command -v mpirun)" timeout 120 "$top/tests/support/mpirun.sh" "$ranks" "$build/bin/dtrain" --model "$model" \
    --dataset synthetic --device cuda --limit-steps 8 --output "$runs" --name "$model" --overwrite "$@" 2>&1
}
# replayed RANKS MODEL OPTIONS...: fails where the log does not say that steps were captured.
replayed() {
  local log
  log=$(short_run "$@") || { printf '%s\n' "$log"; return 1; }
  printf '%s\n' "$log"
  [[ $log == *'is replayed in'* ]] || { echo "FAILED: $2's steps were not replayed"; return 1; }
}
smoke_part() {
  timeout 60 "$build/bin/dtrain" doctor || echo 'the doctor has found something'
  passes_or_skips timeout 120 "$build/tests/kernels/kernels_device_test"
  passes_or_skips env "DTRAIN_MPIRUN=$(command -v mpirun)" timeout 60 "$top/tests/support/mpirun.sh" 1 "$build/tests/comm/comm_nccl_test"
  for model in mlp resnet18 gpt; do
    short_run 1 "$model" --device-graphs off
    replayed 1 "$model"
  done
  replayed 1 gpt --kernels fused --precision bf16   # epilogues, logits in pieces, a device that decides
  replayed 1 gpt --kernels fused --precision fp16   # all logits, and the loss's scale one step late
  replayed 1 gpt --kernels fused --precision fp32 --grad-clip 0.5
  replayed 1 resnet18 --kernels fused --precision bf16
}
profile_part() {
  local profiler
  for model in gpt resnet18; do
    local options=(--precision bf16 --device-graphs off)
    [[ $model == resnet18 ]] || options+=(--model-option layers=12 --model-option heads=12 --model-option width=768 --global-batch 16)
    runs=${runs:-$(mktemp -d)}
    local command=("$build/bin/dtrain" --model "$model" --dataset synthetic --device cuda --limit-steps 8 --output "$runs"
      --name "$model" --overwrite --quiet "${options[@]}")
    for profiler in ncu nsys none; do ! command -v "$profiler" >/dev/null || break; done
    printf '\n%s, by %s\n' "$model" "$profiler"
    case $profiler in
      ncu) timeout 200 ncu --csv --metrics gpu__time_duration.sum --launch-skip 2000 --launch-count 6000 "${command[@]}" |
        "$python" "$top/perf/gpu/kernel_times.py" ;;
      nsys) timeout 200 nsys profile --force-overwrite true --output "$runs/$model" "${command[@]}"
        nsys stats --report cuda_gpu_kern_sum --format csv "$runs/$model.nsys-rep" | head -40 ;;
      none) echo "neither ncu nor nsys is there; the run's own account instead"
        "${command[@]}"
        "$build/bin/dtrain" report "$runs/$model" ;;
    esac
  done
}
ranks_part() {
  passes_or_skips env "DTRAIN_MPIRUN=$(command -v mpirun)" timeout 100 "$top/tests/support/mpirun.sh" 2 "$build/tests/comm/comm_nccl_test"
  for model in mlp resnet18 gpt; do
    for graphs in auto off; do short_run 2 "$model" --device-graphs "$graphs" --bucket-mb 1 --verify-every 3; done
  done
}
correct_part() {
  local ranks
  passes_or_skips timeout 200 "$build/tests/kernels/kernels_device_test"
  for ranks in 1 2 4; do  # several on a GPU where there are too few and NCCL lets them
    passes_or_skips env "DTRAIN_MPIRUN=$(command -v mpirun)" timeout 100 "$top/tests/support/mpirun.sh" "$ranks" \
      "$build/tests/comm/comm_nccl_test"
  done
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/kernels/kernels_device_test"
    done
  else
    echo 'no compute-sanitizer in PATH: memory accesses are not checked'
  fi
  local file=$out/correct.done of  # whole runs that passed, below the commit and the GPUs they are of
  of=$(printf 'commit: %s\n%s' "$(commit)" "$(list_gpus)")
  [[ -f $file && $(<"$file") == "$of"* ]] || printf '%s\n' "$of" >"$file"
  PYTHONPATH=$top/tests/support DTRAIN_MPIRUN=$(command -v mpirun) "$python" "$top/tests/train/device_memory.py" "$build/bin/dtrain" \
    cuda --done "$file" --limit-s "$((limit_s - SECONDS))"
}
train_part() {
  local dataset=synthetic
  [[ ! -d $top/data/staged/cifar10 ]] || dataset=cifar10
  runs=$(mktemp -d)
  trap 'rm -rf "$runs"' EXIT
  "$build/bin/dtrain" --model resnet18 --dataset "$dataset" --data-root "$top/data/staged" --epochs 3 --device cuda --output "$runs" \
    --name gpu_check
  "$build/bin/dtrain" report "$runs/gpu_check"
}
# Into kernels.txt, below the commit and the GPUs they are of; what is there of the same ones is not measured again.
kernels() {
  local file=$out/kernels.txt of
  of=$(printf 'commit: %s\n%s' "$(commit)" "$(list_gpus)")
  if [[ ! -f $file || $(<"$file") != "$of"$'\n'* ]]; then
    printf '%s\n' "$of" >"$file.part"
    if ! timeout 60 "$build/perf/kernels/dtrain_perf_device_kernels" >>"$file.part"; then
      echo 'the benchmark of the kernels failed'
      return 1
    fi
    mv "$file.part" "$file"
  fi
  cat "$file"
}
speed_part() {
  local status=0
  kernels || status=1
  printf '\n'
  # A case that runs when its time is up has 45 s to end: together less than 9 minutes.
  "$python" "$top/perf/gpu/speed.py" --out "$out" --dtrain "$build/bin/dtrain" --limit-s "$((limit_s - SECONDS))" || status=$?
  return "$status"
}

[[ $part == build ]] || needs_gpu
mkdir -p "$out"
{ head_of_file; "${part}_part"; } 2>&1 | sed "s#$top/##g" | tee "$out/$part.txt.part"
mv "$out/$part.txt.part" "$out/$part.txt"
