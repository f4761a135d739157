# shellcheck shell=bash
# To be sourced by the tests of scripts: runs a command and compares its exit code and a piece of its output.
failures=0
check() {  # CODE PIECE COMMAND...
  local code=$1 piece=$2 output status=0
  shift 2
  output=$("$@" 2>&1 </dev/null) || status=$?
  if [[ $status != "$code" || $output != *"$piece"* ]]; then
    printf 'FAILED: %s\n  wanted exit code %s and "%s", got %s and:\n%s\n' "$*" "$code" "$piece" "$status" "$output"
    failures=$((failures + 1))
  fi
}
finish() { if ((failures)); then exit 1; fi; echo "all as wanted"; }
