#!/usr/bin/env bash
# install_test.sh CMAKE BUILD_DIR SOURCE_DIR PYTHON: installs, moves the tree, builds and runs a program and a plug-in
# against the moved copy, starts the moved dtrain with an empty environment, and looks at its pages for man and its completion.
set -euo pipefail
cmake=$1 build=$2 source=$3 python=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
mv "$scratch/first" "$scratch/moved"
if grep -rlF "$scratch/first" "$scratch/moved"; then
  echo "these installed files name the folder they were installed to" >&2
  exit 1
fi
if grep -rlF "$build" "$scratch"/moved/lib*/cmake; then
  echo "these package files name the build folder" >&2
  exit 1
fi

# The program alone, as in the images of containers/: with what draws its pictures.
"$cmake" --install "$build" --prefix "$scratch/alone" --component program >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
[[ -f $scratch/alone/share/dtrain/dtrain_plots/command.py ]] ||
  { echo "not installed with the program: dtrain_plots" >&2; exit 1; }

"$python" "$source/run_path.py" "$scratch/moved"

"$cmake" -S "$source/consumer" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/moved" -DCMAKE_BUILD_TYPE=Release
"$cmake" --build "$scratch/build"
answer=$("$scratch/build/consumer")
[[ $answer == "mesh data=2,pipe=2,tensor=1" ]] || { echo "the program says: $answer" >&2; exit 1; }

env -i "$scratch/moved/bin/dtrain" --version

"$cmake" -S "$source/plugin" -B "$scratch/plugin" -DCMAKE_PREFIX_PATH="$scratch/moved" -DCMAKE_BUILD_TYPE=Release
"$cmake" --build "$scratch/plugin"
"$python" "$source/plugin.py" "$scratch/moved/bin/dtrain" "$scratch/plugin/libmine.so" "$scratch/plugged"

pages=("$scratch"/moved/share/man/man1/dtrain*.1)
((${#pages[@]} == 11)) || { echo "installed these pages for man: ${pages[*]}" >&2; exit 1; }
completion=$scratch/moved/share/bash-completion/completions/dtrain
cmp "$completion" <("$scratch/moved/bin/dtrain" --help=bash)
cmp "$scratch/moved/share/zsh/site-functions/_dtrain" <("$scratch/moved/bin/dtrain" --help=zsh)
if ! command -v man >/dev/null; then echo "not checked: no man here shows the pages"; exit 0; fi
shown=$(MANPATH=$scratch/moved/share/man MANWIDTH=100 man --pager=cat dtrain-stage)
[[ $shown == *"--from PATH"*"CSV"* ]] || { echo "man shows: $shown" >&2; exit 1; }
