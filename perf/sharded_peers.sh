#!/usr/bin/env bash
# perf/sharded_peers.sh [OPTIONS]: sharded and compressed training beside PyTorch's FSDP2 and DDP hooks; see --help. DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/sharded_peers.py" "$@"
