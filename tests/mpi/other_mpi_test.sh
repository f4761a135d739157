#!/usr/bin/env bash
# other_mpi_test.sh ROOT BUILD DEPS openmpi|mpich [--full]: comm compiled against Debian's Open MPI or MPICH, in a build folder of
# its own, and its tests on several ranks run there. Tests of recovery skip: only Open MPI 5 can go on without a rank. --full runs
# all of them, and meshes; else those of each kind. Exit code 77: skipped.
set -euo pipefail
root=$1 build=$2 deps=$3 mpi=$4 full=${5:-}
compiler=$(command -v "mpicxx.$mpi" || true)
launcher=$(command -v "mpiexec.$mpi" || true)
[[ -n $compiler && -n $launcher ]] || { echo "skipped: Debian's $mpi is not installed (jobs/setup.sh --for-tests)"; exit 77; }
if [[ $mpi == mpich ]]; then package=libmpich-dev; else package=libopenmpi-dev; fi
dpkg-query -W -f='${Package} ${Version}\n' "$package" 2>/dev/null || true

programs=(comm_communicator_test comm_discover_test comm_collectives_test comm_groups_test comm_hang_program)
tests='^comm_(communicator|discover|groups)_test\.np[124]$|^comm_collectives_test\.np2$|^comm_hang_test\.(compute|other)\.nodes2$|^comm_death_test\.send'
if [[ -n $full ]]; then
  programs+=(comm_queue_test comm_all_reduce_test comm_flight_recorder_test comm_mismatch_test parallel_mesh_stress_test)
  tests='^comm_.*_test\.|^parallel_mesh_stress_test\.np4$'
fi
mkdir -p "$build"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDTRAIN_CUDA=OFF -DDTRAIN_PERF=OFF -DDTRAIN_DEPS="$deps" \
  -DMPI_CXX_COMPILER="$compiler" -DMPIEXEC_EXECUTABLE="$launcher" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
cmake --build "$build" --parallel 2 --target "${programs[@]}" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
ctest --test-dir "$build" --no-tests=error --output-on-failure --tests-regex "$tests" --label-regex np
