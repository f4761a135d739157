#!/usr/bin/env bash
# gpu_check_test.sh ROOT: perf/gpu_check.sh says in one sentence what it cannot do, and leaves nothing then.
set -euo pipefail
root=$1
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
script=$root/perf/gpu_check.sh
out=$scratch/out

check 0 'usage: perf/gpu_check.sh PART' "$script" --help
check 2 "there is no part 'lunch'; use build, correct, speed or train" "$script" lunch
check 2 "unknown argument '--foo'" "$script" speed --foo
check 2 '--out needs a folder' "$script" speed --out
check 2 "unknown argument '--foo'" "$root/perf/gpu_bundle.sh" --foo
check 2 '--out needs a file' "$root/perf/gpu_bundle.sh" --out

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
finish
