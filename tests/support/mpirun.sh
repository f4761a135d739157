#!/usr/bin/env bash
# mpirun.sh N PROGRAM [ARGS]: starts N ranks on this machine, however few cores it has and whoever runs it.
set -euo pipefail
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=${OMPI_MCA_btl:-^ofi}  # which sleeps a second at each start where there is no fabric
# Tests mean the CPU, also where --device auto would find GPUs; those of GPUs say so.
[[ ${DTRAIN_TEST_GPUS:-} == 1 ]] || export CUDA_VISIBLE_DEVICES=
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mpirun=${DTRAIN_MPIRUN:-mpirun}
if [[ $mpirun -ef ${BASH_SOURCE[0]} ]]; then  # it would call itself for ever
  echo "mpirun.sh: DTRAIN_MPIRUN names this script; name an mpirun, or unset it" >&2
  exit 2
fi
version=$("$mpirun" --version 2>/dev/null || true)
case $version in
  *'Open MPI) 5'* | *prterun*) oversubscribe=(--map-by :OVERSUBSCRIBE --bind-to none) ;;
  *HYDRA*)  # MPICH, whose waits keep the cores from other ranks unless they yield at each look
    export MPIR_CVAR_POLLS_BEFORE_YIELD=${MPIR_CVAR_POLLS_BEFORE_YIELD:-1}
    oversubscribe=(-bind-to none) ;;
  *) oversubscribe=(--oversubscribe --bind-to none) ;;
esac
# What a killed mpirun left may bear our number, and Open MPI 5 would hold it for one that still runs.
rm -rf -- "${TMPDIR:-/tmp}/ompi.$$"
# shellcheck disable=SC2086  # the flags are words
exec "$mpirun" "${oversubscribe[@]}" -np "$ranks" ${DTRAIN_MPIRUN_FLAGS:-} "$@"
