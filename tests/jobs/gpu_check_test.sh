#!/usr/bin/env bash
# gpu_check_test.sh ROOT: perf/gpu_check.sh says in one sentence what it cannot do, and leaves nothing then; perf/gpu_session.sh does
# its parts in their order, within its time, each once.
set -euo pipefail
root=$1
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
script=$root/perf/gpu_check.sh
out=$scratch/out

check 0 'usage: perf/gpu_check.sh PART' "$script" --help
check 2 "there is no part 'lunch'; use build, smoke, correct, speed, profile, ranks or train" "$script" lunch
check 2 "unknown argument '--foo'" "$script" speed --foo
check 2 '--out needs a folder' "$script" speed --out
check 2 "unknown argument '--foo'" "$root/perf/gpu_bundle.sh" --foo
check 2 '--out needs a file' "$root/perf/gpu_bundle.sh" --out
check 2 '--nccl needs a libnccl.so.2 and an architecture' "$root/perf/gpu_bundle.sh" --nccl "$root/README.md" soon
check 2 '--limit-s needs whole seconds' "$script" speed --limit-s soon
check 0 'usage: perf/gpu_session.sh' "$root/perf/gpu_session.sh" --help
check 2 '--limit-s needs whole seconds' "$root/perf/gpu_session.sh" --limit-s 0

# Without a GPU, and with one but nothing built: whatever this machine has.
mkdir "$scratch/bin" "$scratch/checkout" "$scratch/checkout/perf"
printf '#!/bin/sh\nexit 9\n' >"$scratch/bin/nvidia-smi"
chmod +x "$scratch/bin/nvidia-smi"
check 2 'no GPU: nvidia-smi is missing or finds none' env "PATH=$scratch/bin:$PATH" "$script" speed --out "$out"
printf '#!/bin/sh\necho GPU 0\n' >"$scratch/bin/nvidia-smi"
cp "$script" "$scratch/checkout/perf"
check 2 "nothing is built; run 'perf/gpu_check.sh build' first" env "PATH=$scratch/bin:$PATH" \
  "$scratch/checkout/perf/gpu_check.sh" correct --out "$out"
[[ ! -e $out ]] || { echo "FAILED: $out was made"; failures=1; }

# Whole runs of the part correct: those that passed are left out, and none begins too late.
python=$root/.deps/venv/bin/python
[[ -x $python ]] || python=python3
runs() { PYTHONPATH=$root/tests/support "$python" "$root/tests/train/device_memory.py" "$(command -v true)" guarded "$@"; }
skipped=
if ! "$python" -c 'import h5py, numpy' 2>/dev/null; then
  skipped='skipped: the runs of the part correct need h5py and numpy; jobs/setup.sh installs them'
else
  printf 'commit: abc\nevaluates\n' >"$scratch/done"
  check 0 '' runs evaluates --done "$scratch/done"
  check 3 'the time is up before says_how_messages_go: run it again' runs evaluates says_how_messages_go --done "$scratch/done" --limit-s -1
  check 1 'there is no part lunch' runs lunch
fi

# With a stand-in for gpu_check.sh, which notes its parts and ends with the first line of a file.
session() { env "PATH=$scratch/bin:$PATH" "$scratch/checkout/perf/gpu_session.sh" --out "$out" "$@"; }
cp "$root/perf/gpu_session.sh" "$scratch/checkout/perf"
echo abc >"$scratch/checkout/commit"
cat >"$scratch/checkout/perf/gpu_check.sh" <<END
#!/bin/sh
echo "\$1" >>$scratch/parts
sleep \$(cat $scratch/takes.\$1 2>/dev/null || echo 0)
exit \$(cat $scratch/status.\$1 2>/dev/null || cat $scratch/status)
END
# parts_were WORDS: since the last call.
parts_were() {
  [[ $(tr '\n' ' ' <"$scratch/parts") == "$1 " ]] || { echo "FAILED: the parts were $(tr '\n' ' ' <"$scratch/parts"), not $1"; failures=1; }
  : >"$scratch/parts"
}
echo 0 >"$scratch/status"
check 2 'smoke needs --limit-s 100 at least' session --limit-s 60
[[ ! -s $scratch/parts ]] || { echo 'FAILED: a part began with too little time'; failures=1; }
echo 2 >"$scratch/takes.smoke"
check 3 'correct needs 160 s, and 1' session --limit-s 160  # 158 s are left, or fewer on a busy machine
check 2 'correct needs --limit-s 160 at least' session --limit-s 150
rm "$scratch/takes.smoke"
parts_were 'smoke'
echo 1 >"$scratch/status.correct"
check 1 'correct failed (1): see' session
parts_were 'correct speed profile ranks train'  # one that fails stops no other
echo 3 >"$scratch/status.correct"
check 3 'correct: the time is up' session
parts_were 'correct'
rm "$scratch/status.correct"
check 0 'train: done' session
check 0 'this call took' session
parts_were 'correct'
echo def >"$scratch/checkout/commit"
echo 1 >"$scratch/status.smoke"
echo 3 >"$scratch/status.speed"
check 3 'speed: the time is up' session
parts_were 'smoke correct speed'
rm "$scratch/status.speed"
check 1 'smoke failed (1)' session
parts_were 'speed profile ranks train smoke'  # one that has failed comes after those that were not tried

# Every case of every part, with stand-ins for all programs.
tree=$scratch/tree out=$scratch/cases
stand_in() {
  mkdir -p "$(dirname "$1")"
  cat >"$1"
  chmod +x "$1"
}
mkdir -p "$tree/perf"
cp "$script" "$tree/perf"
echo abc >"$tree/commit"
stand_in "$tree/build/release/bin/dtrain" <<END
#!/bin/sh
echo "\$*" >>$scratch/calls
case "\$*" in *"\$(cat $scratch/breaks)"*) exit 1 ;; esac
echo 'a step of 1 micro-batch is replayed in 3 parts'
echo 'the update is replayed in 1 part'
echo 'fp32 whose products and convolutions round their factors to 10 bits'
END
for program in "$tree/build/release/tests/kernels/kernels_device_test" "$tree/build/release/tests/comm/comm_nccl_test" \
  "$tree/build/release/perf/kernels/dtrain_perf_device_kernels" "$scratch/bin/compute-sanitizer"; do
  stand_in "$program" <<<'#!/bin/sh'
done
stand_in "$tree/tests/support/mpirun.sh" <<'END'
#!/bin/sh
shift
exec "$@"
END
part() { env "PATH=$scratch/bin:$PATH" "DTRAIN_PYTHON=$(command -v true)" "$tree/perf/gpu_check.sh" "$@" --out "$out"; }
# called N WORDS: so many runs had these words since the last `: >calls`.
called() {
  local found
  found=$(grep -cF -- "$2" "$scratch/calls" || true)
  [[ $found == "$1" ]] || { echo "FAILED: $found runs with $2, not $1"; failures=1; }
}
echo none >"$scratch/breaks"
: >"$scratch/calls"
for name in smoke correct speed profile ranks train; do check 0 '' part "$name"; done
called 1 '--tf32'
called 1 '--offload optimizer'
called 2 '--kernels fused --precision fp'
called 4 '--kernels fused --precision bf16'  # gpt and resnet18, on one rank and on two
called 2 '--nccl-shared'
called 3 '--mesh pipe=2'
called 1 '--epochs 3'
check 0 'smoke: resnet18 --tf32 passed before' part smoke
check 0 'ranks: mlp --nccl-shared --bucket-mb 1 --verify-every 3 on 2 ranks passed before' part ranks
: >"$scratch/calls"
echo def >"$tree/commit"
echo '--model resnet18 --dataset synthetic --device cuda' >"$scratch/breaks"
check 1 'FAILED: smoke: resnet18 --tf32' part smoke
called 1 '--offload optimizer'  # the last one: a case that fails stops no other
# dtrain's own exit codes are no answers of the script.
sed -i "s/) exit 1 ;;/) exit 3 ;;/" "$tree/build/release/bin/dtrain"
echo '--epochs 3' >"$scratch/breaks"
check 1 'the training ended with exit code 3' part train
echo none >"$scratch/breaks"
: >"$scratch/calls"
check 0 'smoke: gpt passed before' part smoke
called 4 '--model resnet18'
called 0 '--model gpt'

# A build without a part of CUDA: what there is is built. Without the module for GPUs nothing is to be checked.
stand_in "$tree/jobs/build.sh" <<<"#!/bin/sh
echo \"\$*\" >>$scratch/built"
stand_in "$scratch/bin/ninja" <<<"#!/bin/sh
! grep -qx \"\$5\" $scratch/lacks"
echo device_times >"$scratch/lacks"
check 0 'no device_times: what it needs is missing here' part build
grep -qx 'dtrain_app dtrain_cuda kernels_device_test comm_nccl_test dtrain_perf_device_kernels dtrain_perf_data counted_waits' "$scratch/built" ||
  { echo "FAILED: these were built: $(<"$scratch/built")"; failures=1; }
echo dtrain_cuda >"$scratch/lacks"
check 2 'the build has no module for GPUs' part build
finish
[[ -z $skipped ]] || { echo "$skipped"; exit 77; }
