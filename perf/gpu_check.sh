#!/usr/bin/env bash
# perf/gpu_check.sh build|smoke|correct|speed|profile|ranks|train [OPTIONS]: proves and measures dtrain on a GPU, part by part; see --help.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: perf/gpu_check.sh PART [--out FOLDER] [--limit-s N] [--at-once N]
  build      compiles the program, its module for GPUs, their tests and benchmarks
  smoke      the doctor, the kernels, NCCL on one rank, eight steps of mlp, resnet18 and gpt, replayed and not, and of each switch
             that is for GPUs: --kernels fused, --tf32, --offload
  correct    the tests with the label gpu, also under compute-sanitizer where there is one; then whole runs of the models
             beside the same on the CPU
  speed      bandwidth of the kernels, once; then perf/gpu/speed.py, case by case: training beside PyTorch eager and
             torch.compile, gpt's share of the GPU's peak, the study's models on all CPU cores and on the GPU, the loader alone,
             collectives between GPUs. --limit-s is 480 unless given. Needs Python with torch and h5py
  profile    where a step of gpt2-124M and of resnet18 goes, kernel by kernel. Needs Python with torch and h5py
  ranks      two ranks on what GPUs there are: NCCL's tests, and mlp, resnet18 and gpt with small buckets, replayed and not, their
             weights compared every third step; then --kernels fused and --nccl-shared. Two ranks share a GPU only with NCCL 2.30
             or newer
  train      resnet18 for three epochs, of CIFAR-10 where it is staged, else of built-in images, and its accuracy
Each part leaves PART.txt in FOLDER (perf/results/gpu), with the machine, the GPU and the commit at its head; speed also
kernels.txt, speed.json and speed.md. A case that fails stops no other one. What passed, or was measured, of this commit and these
GPUs is not done again (FOLDER/*.done). No case begins after --limit-s seconds, and none but those of speed takes more than 200.
So many cases of smoke, correct and ranks run beside each other as --at-once says [a third of the cores, at most 6].
Exit codes: 1 a case failed; 2 no GPU, or nothing built; 3 the time of this call is up, and the part has more to do: run it again to
go on.
EOF
}
fail() { printf 'gpu_check: %s\n' "$1" >&2; exit 2; }

part=${1:---help}
out=$top/perf/results/gpu
limit_s=480
at_once=$(($(nproc) / 3))
((at_once >= 1)) || at_once=1
((at_once <= 6)) || at_once=6
shift || true
while (($#)); do
  case $1 in
    --out) [[ -n ${2:-} ]] || fail '--out needs a folder'; out=$2; shift 2 ;;
    --limit-s) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail '--limit-s needs whole seconds'; limit_s=$2; shift 2 ;;
    --at-once) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail '--at-once needs a whole number'; at_once=$2; shift 2 ;;
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
  local target there=()
  "$top/jobs/build.sh" dtrain_app  # configures
  ninja -C "$build" -t query dtrain_cuda >/dev/null 2>&1 ||
    fail "the build has no module for GPUs: $build/configure.log says what CUDA lacks; install that, remove $build/build.ninja, and run this again"
  for target in dtrain_cuda kernels_device_test comm_nccl_test dtrain_perf_device_kernels dtrain_perf_data counted_waits device_times; do
    if ninja -C "$build" -t query "$target" >/dev/null 2>&1; then
      there+=("$target")
    else
      echo "no $target: what it needs is missing here ($build/configure.log); the rest is built"
    fi
  done
  "$top/jobs/build.sh" dtrain_app "${there[@]}"
  cuobjdump --list-elf "$build/lib/libdtrain_cuda.so" 2>/dev/null || true  # the architectures in it
}
# begin_done FILE: what is done of this commit and these GPUs is in it, line by line below them; of others nothing counts.
this=
begin_done() {
  this=${this:-$(printf 'commit: %s\n%s' "$(commit)" "$(list_gpus)")}
  [[ -f $1 && $(<"$1") == "$this"* ]] || printf '%s\n' "$this" >"$1"
}
failed=()
left=()  # for which there was no time
started=()  # cases in their order; the log of number K is $runs/K.log, and K.status has its exit status and its seconds
told=()  # of these, whose logs were printed
folder=  # of the case that is started, which has a copy of this name
# attempt NAME COMMAND...: a case of this part, unless it has passed before, beside at most at_once - 1 others.
attempt() {
  local name="$part: $1" place=${#started[@]}
  shift
  begin_done "$out/cases.done"
  if grep -Fqx "$name" "$out/cases.done"; then
    printf '\n== %s passed before\n' "$name"
    return 0
  fi
  if ((SECONDS >= limit_s)); then
    left+=("$name")
    return 0
  fi
  started+=("$name")
  folder=$runs/$place
  mkdir "$folder"
  {
    local status=0 begin=$SECONDS
    "$@" || status=$?
    echo "$status $((SECONDS - begin))" >"$runs/$place.status.part" && mv "$runs/$place.status.part" "$runs/$place.status"
  } >"$runs/$place.log" 2>&1 </dev/null &
  while (($(jobs -pr | wc -l) >= at_once)); do
    wait -n || true
    tell_ended
  done
}
# Prints the logs of cases that have ended since the last call. A test that skips with its reason ends with 77.
tell_ended() {
  local place name status seconds
  for place in "${!started[@]}"; do
    [[ -z ${told[place]:-} && -e $runs/$place.status ]] || continue
    told[place]=1
    name=${started[place]}
    read -r status seconds <"$runs/$place.status"
    printf '\n== %s\n' "$name"
    cat "$runs/$place.log"
    case $status in
      0) echo "$name" >>"$out/cases.done"; printf '== %s: passed in %s s\n' "$name" "$seconds" ;;
      77) printf '== %s: skipped\n' "$name" ;;
      *) failed+=("$name"); printf '== %s: FAILED (%s) after %s s\n' "$name" "$status" "$seconds" ;;
    esac
  done
}
wait_for_cases() {
  wait
  tell_ended
}
# After all cases of a part.
sum_up() {
  local name
  wait_for_cases
  printf '\n'
  for name in "${failed[@]}"; do echo "FAILED: $name"; done
  for name in "${left[@]}"; do echo "no time was left for $name"; done
  ((${#failed[@]} == 0)) || return 1
  ((${#left[@]} == 0)) || return 3
}
on_ranks() {  # N COMMAND...
  local ranks=$1
  shift
  env "DTRAIN_MPIRUN=$(command -v mpirun)" timeout 100 "$top/tests/support/mpirun.sh" "$ranks" "$@"
}
# short_run RANKS MODEL OPTIONS...: some steps, whose log it prints.
short_run() {
  local ranks=$1 model=$2
  shift 2
  on_ranks "$ranks" "$build/bin/dtrain" --model "$model" --dataset synthetic --device cuda --limit-steps 8 --output "$folder" --name "$model" \
    --overwrite "$@" 2>&1
}
# says WORDS RANKS MODEL OPTIONS...: fails where the run's log does not have these words.
says() {
  local words=$1 log status=0
  shift
  log=$(short_run "$@") || status=$?
  printf '%s\n' "$log"
  ((status == 0)) || return "$status"
  [[ $log == *"$words"* ]] || { echo "the log does not say: $words"; return 1; }
}
# runs_of SAYS RANKS MODEL OPTIONS...: such a run as a case, which is called by its model and options.
runs_of() {
  local words=$1 ranks=$2
  shift 2
  attempt "$*$([[ $ranks == 1 ]] || echo " on $ranks ranks")" says "$words" "$ranks" "$@"
}
looked_at_by_the_doctor() { timeout 60 "$build/bin/dtrain" doctor || echo 'the doctor has found something'; }
smoke_part() {
  local steps='a step of' update='the update is replayed in'
  attempt doctor looked_at_by_the_doctor
  attempt 'the kernels' timeout 120 "$build/tests/kernels/kernels_device_test"
  attempt 'NCCL on one rank' on_ranks 1 "$build/tests/comm/comm_nccl_test"
  for model in mlp resnet18 gpt; do
    runs_of '' 1 "$model" --device-graphs off
    runs_of "$steps" 1 "$model"
  done
  runs_of "$update" 1 gpt --kernels fused --precision bf16  # epilogues, logits in pieces, an update that the device decides
  runs_of "$update" 1 resnet18 --kernels fused --precision bf16
  runs_of "$update" 1 gpt --kernels fused --precision fp16  # all logits, and the loss's scale one step late
  runs_of "$update" 1 gpt --kernels fused --precision fp32 --grad-clip 0.5
  runs_of 'round their factors' 1 resnet18 --tf32
  runs_of "$steps" 1 mlp --offload optimizer
  sum_up
}
profile_part() {
  "$python" "$top/perf/gpu/step_profile.py" --dtrain "$build/bin/dtrain" --limit-s "$((limit_s - SECONDS))"
}
ranks_part() {
  local newer=$top/travelled/nccl/libnccl.so.2  # perf/gpu_bundle.sh --nccl
  [[ ! -f $newer ]] || export LD_PRELOAD=$newer
  attempt 'NCCL on two ranks' on_ranks 2 "$build/tests/comm/comm_nccl_test"
  for model in mlp resnet18 gpt; do
    for graphs in auto off; do runs_of '' 2 "$model" --device-graphs "$graphs" --bucket-mb 1 --verify-every 3; done
  done
  for model in resnet18 gpt; do
    runs_of 'the update is replayed in' 2 "$model" --kernels fused --precision bf16 --bucket-mb 1 --verify-every 3
  done
  runs_of '' 2 mlp --nccl-shared --bucket-mb 1 --verify-every 3
  for more in '' --nccl-shared; do runs_of '' 2 gpt --mesh pipe=2 $more; done
  runs_of '' 2 resnet18 --mesh pipe=2 --micro-batches 4
  runs_of '' 2 gpt --mesh tensor=2
  sum_up
}
correct_part() {
  local ranks tool status=0
  attempt 'the kernels' timeout 200 "$build/tests/kernels/kernels_device_test"
  for ranks in 1 2 4; do  # several on a GPU where there are too few and NCCL lets them
    attempt "NCCL on $ranks" on_ranks "$ranks" "$build/tests/comm/comm_nccl_test"
  done
  for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      attempt "$tool" timeout 200 compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/kernels/kernels_device_test"
    else
      echo "no compute-sanitizer in PATH: $tool is not done"
    fi
  done
  wait_for_cases
  begin_done "$out/correct.done"
  printf '\n== %s: whole runs\n' "$part"
  PYTHONPATH=$top/tests/support DTRAIN_MPIRUN=$(command -v mpirun) "$python" "$top/tests/train/device_memory.py" "$build/bin/dtrain" \
    cuda --done "$out/correct.done" --at-once "$at_once" --limit-s "$((limit_s - SECONDS))" || status=$?
  ((status == 0 || status == 3)) || failed+=("$part: whole runs")
  sum_up || return
  return "$status"
}
train_part() {
  local dataset=synthetic
  [[ ! -d $top/data/staged/cifar10 ]] || dataset=cifar10
  # dtrain's exit codes mean other things than those of this script.
  "$build/bin/dtrain" --model resnet18 --dataset "$dataset" --data-root "$top/data/staged" --epochs 3 --device cuda --output "$runs" \
    --name gpu_check || { echo "the training ended with exit code $?"; return 1; }
  "$build/bin/dtrain" report "$runs/gpu_check" || { echo "the report ended with exit code $?"; return 1; }
}
# Into kernels.txt, below the commit and the GPUs they are of; what is there of the same ones is not measured again.
kernels() {
  local file=$out/kernels.txt
  begin_done "$file.part"
  if [[ ! -f $file || $(<"$file") != "$this"$'\n'* ]]; then
    printf '%s\n' "$this" >"$file.part"
    if ! timeout 60 "$build/perf/kernels/dtrain_perf_device_kernels" >>"$file.part"; then
      echo 'the benchmark of the kernels failed'
      return 1
    fi
    mv "$file.part" "$file"
  fi
  rm -f "$file.part"
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
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
{ head_of_file; "${part}_part"; } 2>&1 | sed --unbuffered "s#$top/##g" | tee "$out/$part.txt.part"
mv "$out/$part.txt.part" "$out/$part.txt"
