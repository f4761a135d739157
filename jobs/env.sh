# shellcheck shell=sh
# To be sourced: `. jobs/env.sh`. Puts the right mpirun first in PATH, and sets what running as root and running more
# ranks than cores need. Understood by bash, zsh and any POSIX shell (there: from the top of the checkout).

if [ -n "${BASH_VERSION:-}" ]; then
  # shellcheck disable=SC3028,SC3054  # bash only
  _dtrain_file=${BASH_SOURCE[0]}
elif [ -n "${ZSH_VERSION:-}" ]; then
  eval '_dtrain_file=${(%):-%x}'
else
  _dtrain_file=./jobs/env.sh
fi
_dtrain_deps=${DTRAIN_DEPS:-$(CDPATH='' cd -- "$(dirname "$_dtrain_file")/.." && pwd)/.deps}

_dtrain_prepend() { # FOLDER: first in PATH, once
  case "$PATH:" in
    "$1":*) ;;
    *) PATH=$1:$PATH ;;
  esac
}
_dtrain_mpi=$(sed -n 's/^MPI_HOME=//p' "$_dtrain_deps/choices.env" 2>/dev/null || true)
if [ -d "$_dtrain_deps/system/usr/bin" ]; then # what --from-bundle unpacked without root
  _dtrain_prepend "$_dtrain_deps/system/usr/bin"
  _dtrain_libraries=$_dtrain_deps/system/usr/lib/$(uname -m)-linux-gnu
  case ":${LD_LIBRARY_PATH:-}:" in
    *":$_dtrain_libraries:"*) ;;
    *) export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$_dtrain_libraries" ;;
  esac
fi
[ ! -d "$_dtrain_deps/venv/bin" ] || _dtrain_prepend "$_dtrain_deps/venv/bin"
# Only where it is not the first already: /usr/bin must not hide the Python of the venv.
[ -z "$_dtrain_mpi" ] || [ "$(command -v mpirun)" = "$_dtrain_mpi/bin/mpirun" ] || _dtrain_prepend "$_dtrain_mpi/bin"
export PATH
command -v mpirun >/dev/null 2>&1 ||
  echo "jobs/env.sh: no mpirun in $_dtrain_deps; run jobs/setup.sh, or set DTRAIN_DEPS" >&2

if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Outside a batch job more ranks than cores are welcome: they share the cores unbound. A job that was submitted from such
# a shell inherits that, and mpirun would then start all ranks on its first node.
if [ -z "${SLURM_JOB_ID:-}" ] && [ -z "${PBS_JOBID:-}" ] && [ -z "${LSB_JOBID:-}" ]; then
  export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
  export OMPI_MCA_rmaps_base_oversubscribe=1
else
  unset PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_rmaps_base_oversubscribe
fi
# Without a fabric there is nothing for Open MPI's btl/ofi, which sleeps a second at each start all the same. A job that
# was submitted from a machine without one inherits that to nodes that have one: what was set here is taken back there.
_dtrain_fabrics=${DTRAIN_FABRICS:-/sys/class}
if [ -n "$(find -L "$_dtrain_fabrics/infiniband" "$_dtrain_fabrics/cxi" "$_dtrain_fabrics/hfi1" -mindepth 1 -maxdepth 1 2>/dev/null)" ]; then
  [ -z "${DTRAIN_NO_FABRIC:-}" ] || unset OMPI_MCA_btl DTRAIN_NO_FABRIC
elif [ -z "${OMPI_MCA_btl:-}" ]; then
  export OMPI_MCA_btl=^ofi DTRAIN_NO_FABRIC=1
fi
unset -f _dtrain_prepend
unset _dtrain_fabrics _dtrain_file _dtrain_deps _dtrain_mpi _dtrain_libraries
