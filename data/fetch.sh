#!/usr/bin/env bash
# Gets the original files of a dataset, checks them, and stages them for dtrain. Files that are there already and
# whole are kept; a dataset that is staged already is left alone. Exit codes as dtrain's: 2 usage, 3 data.
#
# A recipe, NAME.recipe, says where the files are and what they must be, a line each:
#   url FOLDER     where the files are on the network, by https; several are tried in turn
#   SUM FILE       SHA-256 of a file below that folder
#   mirror FOLDER  what --mirror calls it (default: NAME); sums that follow are of the files there, if they differ
#   prepare SCRIPT OPTIONS   a Python script of this folder that makes of the folder of files, its first argument, what is
#                  to be staged, in its second
#   stage OPTIONS  how dtrain is to stage them
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")

names() { find "$here" -maxdepth 1 -name '*.recipe' -printf '%f\n' | sed 's/\.recipe$//' | sort | paste -sd' '; }
usage() {
  cat <<EOF
usage: data/fetch.sh NAME [--mirror DIR] [--data-root DIR] [--raw-root DIR] [--no-stage]
  NAME             one of: $(names)
  --mirror DIR     take the files from DIR/NAME/ (or as the recipe calls it) instead of the network
  --data-root DIR  stage into DIR/NAME (default: data/staged)
  --raw-root DIR   keep the original files in DIR/NAME (default: data/raw)
  --no-stage       only get and check the original files
EOF
}
fail() { printf 'fetch: %s\n' "$2" >&2; exit "$1"; }

name='' mirror='' data_root=$top/data/staged raw_root=$top/data/raw stage=yes
while (($#)); do
  case $1 in
    --mirror | --data-root | --raw-root)
      [[ -n ${2:-} ]] || fail 2 "$1 needs a folder; see data/fetch.sh --help"
      case $1 in --mirror) mirror=$2 ;; --data-root) data_root=$2 ;; --raw-root) raw_root=$2 ;; esac
      shift 2 ;;
    --no-stage) stage=no; shift ;;
    --help | -h) usage; exit 0 ;;
    -*) fail 2 "unknown option '$1'; see data/fetch.sh --help" ;;
    *) [[ -z $name ]] || fail 2 "one dataset at a time, not '$name' and '$1'"; name=$1; shift ;;
  esac
done
[[ -n $name ]] || { usage >&2; exit 2; }
recipe=$here/$name.recipe
[[ $name != */* && -r $recipe ]] || fail 3 "no recipe for the dataset '$name'; there are: $(names)"

sums() { grep -E '^[0-9a-f]{64} ' || true; }
files=$(sed '/^mirror /,$d' "$recipe" | sums)
if [[ -n $mirror ]]; then
  folder=$mirror/$(sed -n 's/^mirror //p' "$recipe")
  [[ $folder != "$mirror/" && -d $folder ]] || folder=$mirror/$name
  [[ -d $folder ]] || fail 3 "$folder: no such folder; --mirror names the folder above it"
  there=$(sed -n '/^mirror /,$p' "$recipe" | sums)
  # A mirror may as well hold what the network has.
  first=$(head -1 <<<"$files")
  if [[ -n $there && ! -r $folder/${first#* } ]]; then files=$there; fi
fi

raw=$raw_root/$name
mkdir -p "$raw" 2>/dev/null || fail 3 "cannot write to $raw; choose another --raw-root"
part='' chosen='' made=''
trap '[[ -z $part ]] || rm -f "$part"; [[ -z $chosen ]] || rm -rf "$chosen"; [[ -z $made ]] || rm -rf "$made"' EXIT

matches() {  # FILE SUM
  [[ $(sha256sum <"$1" | cut -d' ' -f1) == "$2" ]]
}

largest_bytes=1000000000  # of a file; the largest has 170 MB
get() {  # FILE SUM: into $raw, whole or not at all
  local file=$1 sum=$2 source sources=() wrong=''
  if [[ -r $raw/$file ]] && matches "$raw/$file" "$sum"; then return 0; fi
  mkdir -p "$(dirname "$raw/$file")"
  if [[ -n $mirror ]]; then
    [[ -f $folder/$file && -r $folder/$file ]] || fail 3 "$folder/$file: not there; put it there or leave --mirror out"
    sources=("$folder/$file")
  else
    mapfile -t sources < <(sed -n "s|^url \(.*\)|\1/$file|p" "$recipe")
  fi
  part=$(mktemp "$raw/$file.XXXXXX") || fail 3 "cannot write to $raw; choose another --raw-root"  # two may fetch at once
  chmod "$(printf '%o' $((0666 & ~$(umask))))" "$part"
  for source in "${sources[@]}"; do
    echo "fetch: $source"
    if [[ -n $mirror ]]; then
      (($(stat -Lc %s "$source") <= largest_bytes)) || fail 3 "$source: is larger than $largest_bytes bytes; it is another file"
      cp "$source" "$part" || continue
    else
      [[ $source == https://* || $source == file://* ]] || fail 3 "$source: is not https; correct data/$name.recipe"
      curl --fail --silent --location --proto "=${source%%:*}" --proto-redir =https --max-filesize "$largest_bytes" \
        --connect-timeout 20 --speed-limit 1000 --speed-time 30 --retry 2 --output "$part" "$source" || continue
    fi
    if matches "$part" "$sum"; then
      mv "$part" "$raw/$file"
      part=''
      return 0
    fi
    wrong=$source
  done
  [[ -z $wrong ]] ||
    fail 3 "$wrong: its checksum is not that of data/$name.recipe; the copy is damaged or changed, take another with --mirror DIR"
  [[ -z $mirror ]] || fail 3 "cannot copy $file of $name from $mirror; the line above says why"
  fail 3 "cannot download $file of $name; check the network, or copy the files to DIR/$name/ and say --mirror DIR"
}

[[ -n $mirror ]] || command -v curl >/dev/null || fail 2 "curl is missing; run jobs/setup.sh"
while read -r sum file; do
  get "$file" "$sum"
done <<<"$files"
echo "fetch: $name is complete and checked in $raw"
[[ $stage == yes ]] || exit 0

if [[ -e $data_root/$name/dataset.json ]]; then
  echo "fetch: $data_root/$name is staged already; remove that folder to stage it again"
  exit 0
fi
[[ -x $top/dtrain ]] || fail 2 "./dtrain is not built yet; run jobs/build.sh and call this again"
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
read -ra options < <(sed -n 's/^stage //p' "$recipe") || true
# Once fetched from the network and once from a mirror, the same samples lie there twice: stage what was checked now.
from=$raw
while read -r file; do
  cut -d' ' -f2 <<<"$files" | grep -qxF "$file" || from=''
done < <(CDPATH='' cd -- "$raw" && find . -type f -printf '%P\n')
if [[ -z $from ]]; then
  chosen=$(mktemp -d "$raw_root/.$name.XXXXXX")
  from=$chosen
  while read -r _ file; do
    mkdir -p "$(dirname "$chosen/$file")"
    ln -s "$(CDPATH='' cd -- "$raw" && pwd)/$file" "$chosen/$file"
  done <<<"$files"
fi
read -ra script < <(sed -n 's/^prepare //p' "$recipe") || true
if ((${#script[@]})); then
  made=$(mktemp -d "$raw_root/.$name.XXXXXX")
  python3 "$here/${script[0]}" "$from" "$made" "${script[@]:1}" || fail 3 "${script[0]} could not read $from; the line above says why"
  from=$made
fi
"$top/dtrain" stage "$name" --from "$from" --data-root "$data_root" "${options[@]}"
