#!/usr/bin/env bash
# jobs/build.sh [TARGET...]: configures the preset release into build/release where that is still to do, builds the
# targets (default: the program; "all" has the tests too) and leaves the link ./dtrain at the top.
set -euo pipefail
case ${1:-} in --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;; esac
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$(CDPATH='' cd -- "${DTRAIN_DEPS:-$top/.deps}" 2>/dev/null && pwd -P) ||
  { echo "build: nothing is installed in ${DTRAIN_DEPS:-$top/.deps}; run jobs/setup.sh first" >&2; exit 2; }
build=$top/build/release
log=$build/configure.log
if [[ -d $deps/system/usr/bin ]]; then  # what setup.sh --from-bundle unpacked without root
  PATH=$deps/system/usr/bin:$PATH
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$deps/system/usr/lib/$(uname -m)-linux-gnu
  export LD_LIBRARY_PATH
fi

# One compile job needs up to 2 GB.
free_gb=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 / 1024))
cores=$(nproc)
parallel=$((free_gb / 2 < cores ? free_gb / 2 : cores))
((parallel >= 1)) || parallel=1

is_to_configure() {
  local cache=$build/CMakeCache.txt
  [[ ! -e $build/build.ninja || $deps/choices.env -nt $cache ]] && return
  grep -qxF "DTRAIN_DEPS:PATH=$deps" "$cache" || return 0
  grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=.*NOTFOUND$' "$cache" && command -v nvcc >/dev/null  # it has come since
}

mkdir -p "$build"
if is_to_configure; then
  printf '[%4ds] build: configure (log: build/release/configure.log)\n' "$SECONDS"
  cmake --fresh -S "$top" --preset release -DDTRAIN_DEPS="$deps" >"$log" 2>&1 ||
    { cat "$log" >&2; echo "build: configuring failed; the lines above say why" >&2; exit 1; }
fi
printf '[%4ds] build: %s with %s jobs\n' "$SECONDS" "${*:-dtrain_app}" "$parallel"
cmake --build "$build" --parallel "$parallel" --target "${@:-dtrain_app}"
program=$(find "$build/app" "$build/bin" -maxdepth 1 -name dtrain -type f -perm -u+x -print -quit 2>/dev/null || true)
[[ -z $program ]] || ln -sfn "${program#"$top"/}" "$top/dtrain"
printf '[%4ds] build: done\n' "$SECONDS"
