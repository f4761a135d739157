#!/usr/bin/env bash
# perf/gpu_session.sh [--limit-s N] [--out FOLDER]: all parts of perf/gpu_check.sh in the order of their value, within a time.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: perf/gpu_session.sh [--limit-s N] [--out FOLDER]
Does the parts of perf/gpu_check.sh one after the other: smoke, correct, speed, profile, ranks, train. What is done of this commit
and GPU is not done again, and the same command goes on where the last one stopped. A part that fails stops no other one; later calls
try it again, after those that were not tried. Build first (perf/gpu_check.sh build, or the bundle of perf/gpu_bundle.sh).
  --limit-s N    seconds that this call takes at most [570, less than 10 minutes]; no part begins that has less than it needs at
                 least: smoke 100, correct 160, speed 200, profile 120, ranks 100, train 120. A call says at its end what it took
  --out FOLDER   where the parts leave their files [perf/results/gpu]
Exit codes: 0 all done; 1 a part failed; 2 no GPU, nothing built, or a limit below what the next part needs; 3 the time is up: run it again.
EOF
}
fail() { printf 'gpu_session: %s\n' "$1" >&2; exit 2; }

limit_s=570
out=$top/perf/results/gpu
while (($#)); do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --limit-s) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail '--limit-s needs whole seconds'; limit_s=$2; shift 2 ;;
    --out) [[ -n ${2:-} ]] || fail '--out needs a folder'; out=$2; shift 2 ;;
    *) fail "unknown argument '$1'; see perf/gpu_session.sh --help" ;;
  esac
done
nvidia-smi --list-gpus >/dev/null 2>&1 || fail "no GPU: nvidia-smi is missing or finds none"

# What a part's file begins with, but for its date.
commit() { cat "$top/commit" 2>/dev/null || git -C "$top" describe --always --dirty 2>/dev/null || echo unknown; }
of="commit: $(commit), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | tr '\n' ';')"
# What is known of a part in one of these files is true of this commit and these GPUs.
done_file=$out/session.done
failed_file=$out/session.failed
is_in() { grep -Fqx "$2 $of" "$1" 2>/dev/null; }
end_call() {
  echo "this call took $SECONDS of $limit_s s"
  exit "$1"
}

mkdir -p "$out"
# The seconds that a part needs at least to be begun; all but train end by themselves, and go on in the next call.
# Measured with 16 cores: smoke 30, correct 100, a case of speed 60 to 120, profile 72.
declare -A needs_s=([smoke]=100 [correct]=160 [speed]=200 [profile]=120 [ranks]=100 [train]=120)
tried=()
again=()
for part in smoke correct speed profile ranks train; do
  if is_in "$done_file" "$part"; then
    echo "$part: done"
  elif is_in "$failed_file" "$part"; then
    again+=("$part")
  else
    tried+=("$part")
  fi
done
failures=0
for part in "${tried[@]}" "${again[@]}"; do
  left_s=$((limit_s - SECONDS))
  if ((limit_s < needs_s[$part])); then
    echo "gpu_session: $part needs --limit-s ${needs_s[$part]} at least: it never begins with $limit_s" >&2
    end_call 2
  fi
  if ((left_s < needs_s[$part])); then
    echo "$part needs ${needs_s[$part]} s, and ${left_s} s are left: run it again to go on"
    end_call 3
  fi
  status=0
  # A case that has begun by then has time to end, most often; one that was cut is begun again.
  ends_s=40
  [[ $part != speed && $part != profile ]] || ends_s=60
  timeout --kill-after 20 "$left_s" "$top/perf/gpu_check.sh" "$part" --out "$out" --limit-s "$((left_s - ends_s))" || status=$?
  case $status in
    0) echo "$part $of" >>"$done_file" ;;
    2) exit 2 ;;
    3 | 124 | 137) echo "$part: the time is up: run it again to go on"; end_call 3 ;;
    *)
      failures=1
      is_in "$failed_file" "$part" || echo "$part $of" >>"$failed_file"
      echo "$part failed ($status): see $out/$part.txt.part; the next part goes on" | sed "s#$top/##g"
      ;;
  esac
done
end_call "$failures"
