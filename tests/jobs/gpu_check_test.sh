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
if "$python" -c 'import h5py, numpy' 2>/dev/null; then
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
exit \$(cat $scratch/status)
END
echo 0 >"$scratch/status"
check 3 'smoke needs 120 s, and 60 s are left: run it again to go on' session --limit-s 60
check 3 'correct needs 400 s' session --limit-s 300
echo 1 >"$scratch/status"
check 1 'correct failed (1)' session
echo 3 >"$scratch/status"
check 3 'correct: the time is up' session
echo 0 >"$scratch/status"
check 0 'smoke: done' session
check 0 'train: done' session
[[ $(tr '\n' ' ' <"$scratch/parts") == 'smoke correct correct correct speed profile ranks train ' ]] ||
  { echo "FAILED: the parts were $(tr '\n' ' ' <"$scratch/parts")"; failures=1; }
echo def >"$scratch/checkout/commit"
check 3 'smoke needs 120 s' session --limit-s 60
finish
