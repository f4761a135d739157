#!/usr/bin/env bash
# perf/federated_mnist.sh [OPTIONS]: rounds that FedAvg takes to 99 % on MNIST with 100 clients; goes on where it stopped; see --help.
# DTRAIN=PATH: another binary.
set -euo pipefail
top=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=jobs/env.sh
. "$top/jobs/env.sh"
exec python3 "$top/perf/training/federated_mnist.py" "$@"
