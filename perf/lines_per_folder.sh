#!/usr/bin/env bash
# perf/lines_per_folder.sh COMMIT...: a table of the lines of C++ in app/ and in each folder of lib/, headers included,
# a column for each commit.
set -euo pipefail
CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ${1:-} != --help && ${1:-} != -h ]] || { echo "usage: perf/lines_per_folder.sh COMMIT..."; exit 0; }
(($# >= 1)) || { echo "usage: perf/lines_per_folder.sh COMMIT..." >&2; exit 2; }

columns=()
for commit in "$@"; do columns+=("$commit, $(git show -s --format=%cs "$commit^{commit}")"); done

for commit in "$@"; do
  git grep --count '' "$commit^{commit}" -- 'app/*.cpp' 'app/*.hpp' 'lib/*.cpp' 'lib/*.hpp' |
    awk -F: -v commit="$commit" '{
      split($(NF - 1), part, "/")
      print commit, (part[1] == "app" ? "app" : part[1] "/" part[2]), $NF
    }'
done | awk -v names="$(printf '%s|' "${columns[@]}")" '
  !($1 in seen) { seen[$1]; commits[++columns] = $1 }
  !($2 in known) { known[$2]; folders[++rows] = $2 }
  { lines[$1, $2] += $3; total[$1] += $3 }
  END {
    split(names, name, "|")
    printf "| folder |"
    for (c = 1; c <= columns; ++c) printf " %s |", name[c]
    printf "\n| --- |"
    for (c = 1; c <= columns; ++c) printf " ---: |"
    for (r = 1; r <= rows; ++r) {
      printf "\n| `%s` |", folders[r]
      for (c = 1; c <= columns; ++c) printf " %d |", lines[commits[c], folders[r]]
    }
    printf "\n| all |"
    for (c = 1; c <= columns; ++c) printf " %d |", total[commits[c]]
    printf "\n"
  }'
