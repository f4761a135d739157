#!/usr/bin/env bash
# fetch_test.sh ROOT: data/fetch.sh takes whole files only, says in one sentence what is wrong, and leaves no halves.
set -euo pipefail
root=$1
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A copy of the script with a recipe of its own, so that the test needs neither network nor datasets.
mkdir -p "$scratch/data" "$scratch/mirror/tiny" "$scratch/empty/tiny"
cp "$root/data/fetch.sh" "$scratch/data"
printf 'images\n' >"$scratch/mirror/tiny/images.gz"
printf 'labels\n' >"$scratch/mirror/tiny/labels.gz"
{
  echo "url file://$scratch/nowhere"
  (cd "$scratch/mirror/tiny" && sha256sum images.gz labels.gz | sed 's/  / /')
} >"$scratch/data/tiny.recipe"
fetch=("$scratch/data/fetch.sh" --raw-root "$scratch/raw")

check 2 usage: "${fetch[@]}"
check 2 "unknown option '--mirrors'" "${fetch[@]}" tiny --mirrors x
check 2 "--mirror needs a folder" "${fetch[@]}" tiny --mirror
check 3 "no recipe for the dataset 'nope'; there are: tiny" "${fetch[@]}" nope
check 3 "no such folder" "${fetch[@]}" tiny --mirror "$scratch/nowhere"
check 3 "images.gz: not there" "${fetch[@]}" tiny --mirror "$scratch/empty"
check 3 "cannot download images.gz of tiny; check the network" "${fetch[@]}" tiny
printf 'url http://127.0.0.1:9\n%064d images.gz\n' 0 >"$scratch/data/plain.recipe"
check 3 "is not https; correct data/plain.recipe" "${fetch[@]}" plain
rm "$scratch/data/plain.recipe"
check 0 "tiny is complete and checked" "${fetch[@]}" tiny --mirror "$scratch/mirror" --no-stage
mkdir "$scratch/my mirror #1 [%20]"
cp -r "$scratch/mirror/tiny" "$scratch/my mirror #1 [%20]"
check 0 "tiny is complete and checked" "$scratch/data/fetch.sh" --raw-root "$scratch/raw 2" tiny --mirror "$scratch/my mirror #1 [%20]" --no-stage
check 0 "2" sh -c "ls '$scratch/raw 2/tiny' | wc -l"
rm -r "$scratch/mirror/tiny"
check 0 "tiny is complete and checked" "${fetch[@]}" tiny --no-stage  # nothing is fetched twice
check 2 "./dtrain is not built yet" "${fetch[@]}" tiny

mkdir -p "$scratch/bad/tiny"
printf 'imagEs\n' >"$scratch/bad/tiny/images.gz"
check 3 "its checksum is not that of data/tiny.recipe" \
  "$scratch/data/fetch.sh" tiny --raw-root "$scratch/other" --mirror "$scratch/bad"
check 0 "0" sh -c "ls '$scratch/other/tiny' | wc -l"

# A recipe whose mirror has other files, in another folder, than the network.
mkdir -p "$scratch/net" "$scratch/mirror/elsewhere/deep" "$scratch/top"
printf 'all\n' >"$scratch/net/all.tar"
printf 'one\n' >"$scratch/mirror/elsewhere/deep/one.xz"
{
  echo "url file://$scratch/net"
  (cd "$scratch/net" && sha256sum all.tar | sed 's/  / /')
  echo "mirror elsewhere"
  (cd "$scratch/mirror/elsewhere" && sha256sum deep/one.xz | sed 's/  / /')
  echo "stage --format f --standardize"
} >"$scratch/data/two.recipe"
check 0 "two is complete and checked" "${fetch[@]}" two --mirror "$scratch/mirror" --no-stage
check 0 "one" cat "$scratch/raw/two/deep/one.xz"
rm -r "$scratch/raw/two"
check 0 "two is complete and checked" "${fetch[@]}" two --no-stage
check 0 "all" cat "$scratch/raw/two/all.tar"
cp -r "$scratch/net" "$scratch/mirror/two"
rm -r "$scratch/mirror/elsewhere" "$scratch/raw/two"
check 0 "two is complete and checked" "${fetch[@]}" two --mirror "$scratch/mirror" --no-stage
check 0 "all" cat "$scratch/raw/two/all.tar"
# Fetched both ways: what the last call asked for is staged, and the other files stay where they are.
mkdir -p "$scratch/mirror/elsewhere/deep" "$scratch/jobs"
printf 'one\n' >"$scratch/mirror/elsewhere/deep/one.xz"
touch "$scratch/jobs/env.sh"
# shellcheck disable=SC2016  # for the stand-in of dtrain: stage NAME --from FOLDER ...
printf '#!/bin/sh\ncd "$4" && echo "given: $(find . -type f -o -type l | xargs cat | paste -sd" ")."\n' >"$scratch/dtrain"
chmod +x "$scratch/dtrain"
rm -r "$scratch/mirror/two"
check 0 "given: one." "${fetch[@]}" two --mirror "$scratch/mirror"
check 0 "given: all." "${fetch[@]}" two
check 0 "./all.tar ./deep/one.xz" sh -c "cd '$scratch/raw/two' && find . -type f | sort | paste -sd' '"
check 0 "1" sh -c "ls -A '$scratch/raw' | grep -c two"  # nothing else is left there
rm "$scratch/dtrain"
printf 'All\n' >"$scratch/net/all.tar"
rm -r "$scratch/raw/two"
check 3 "its checksum is not that of data/two.recipe" "${fetch[@]}" two --no-stage
check 0 "0" sh -c "ls '$scratch/raw/two' | wc -l"

# A script of the folder makes what is staged.
cp "$root/data/heart_disease_flamby.py" "$root/data/heart-disease-flamby.csv" "$scratch/data"
mkdir -p "$scratch/mirror/ill"
printf '63.0,1.0\n' >"$scratch/mirror/ill/processed.cleveland.data"
{
  echo "url file://$scratch/nowhere"
  (cd "$scratch/mirror/ill" && sha256sum processed.cleveland.data | sed 's/  / /')
  echo "prepare doubled.py --twice"
  echo "stage --format f"
} >"$scratch/data/ill.recipe"
cat >"$scratch/data/doubled.py" <<'EOF'
import pathlib, sys
text = pathlib.Path(sys.argv[1], "processed.cleveland.data").read_text()
pathlib.Path(sys.argv[2], "table.csv").write_text(text * (2 if sys.argv[3] == "--twice" else 1))
EOF
# shellcheck disable=SC2016
printf '#!/bin/sh\ncd "$4" && echo "given: $(cat table.csv | paste -sd" ")."\n' >"$scratch/dtrain"
chmod +x "$scratch/dtrain"
check 0 "given: 63.0,1.0 63.0,1.0." "${fetch[@]}" ill --mirror "$scratch/mirror"
check 0 "0" sh -c "ls -A '$scratch/raw' | grep -c '^\.ill' || true"  # what it made is gone
sed -i 's/doubled.py --twice/heart_disease_flamby.py/' "$scratch/data/ill.recipe"
check 3 "is not the record that heart-disease-flamby.csv means" "${fetch[@]}" ill --mirror "$scratch/mirror"
check 3 "heart_disease_flamby.py could not read" "${fetch[@]}" ill --mirror "$scratch/mirror"

for recipe in "$root"/data/*.recipe; do
  grep -qE '^url https://' "$recipe" || { echo "FAILED: $recipe has no url"; failures=1; }
  ! grep -E '^url ' "$recipe" | grep -v '^url https://' || { echo "FAILED: $recipe has an address that is not https"; failures=1; }
  ! grep -E '^[0-9a-f]{32} ' "$recipe" || { echo "FAILED: $recipe has a sum that is no SHA-256"; failures=1; }
  grep -qE '^[0-9a-f]{64} [^ ]+$' "$recipe" || { echo "FAILED: $recipe has no file"; failures=1; }
  grep -qi '^# licence' "$recipe" || { echo "FAILED: $recipe does not state the licence"; failures=1; }
done
finish
