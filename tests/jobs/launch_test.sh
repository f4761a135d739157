#!/usr/bin/env bash
# launch_test.sh ROOT DEPS: the job scripts refuse what they were given wrong in one sentence, before they start a rank, and
# make as many ranks of a node as it has GPUs. A stand-in for srun says how it was called. Exit code 77: skipped.
set -euo pipefail
root=$1 deps=$2
# shellcheck source=tests/jobs/check.sh
. "$root/tests/jobs/check.sh"
[[ -x $deps/venv/bin/mpirun ]] || { echo "skipped: the MPI in use was not installed by jobs/setup.sh"; exit 77; }
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/node"

# It leaves what a run would: a state. Asked about the nodes' own storage it runs the command.
cat >"$scratch/bin/srun" <<'EOF'
#!/bin/sh
case "$*" in *" sh -c "*) shift 4; exec "$@" ;; esac
echo "srun $*"
echo "by GPU: ${SLURM_CPUS_PER_GPU:-unset}"
while [ $# -gt 0 ]; do
  case $1 in --output) output=$2 ;; --name) name=$2 ;; esac
  shift
done
[ -z "${name:-}" ] || { mkdir -p "$output/$name" && echo completed >"$output/$name/state"; }
EOF
chmod +x "$scratch/bin/srun"

job() {  # SCRIPT [NAME=VALUE]...: as in a job of two nodes
  local script=$1
  shift
  [[ $script == /* ]] || script=$root/jobs/$script
  env -i HOME="$HOME" PATH="$scratch/bin:/usr/bin:/bin" DTRAIN_DEPS="$deps" DTRAIN=/bin/true OUTPUT="$scratch/runs" NODE_LOCAL="$scratch/node" \
    SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NAME=mine "$@" bash "$script" --epochs 1
}

# A rank for each task, for each GPU, or what was said.
check 0 "--ntasks=2 --ntasks-per-node=1 " job singlenode.sh
check 0 "--ntasks=6 --ntasks-per-node=3 " job singlenode.sh SLURM_NTASKS_PER_NODE=3 SLURM_NTASKS=6
check 0 "--ntasks=6 --ntasks-per-node=3 " job singlenode.sh SLURM_NTASKS=6
check 0 "--ntasks=8 --ntasks-per-node=4 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_TASK=8
check 0 "--cpus-per-task=8 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_TASK=8
# Cores that the job asked for by GPU are those of the ranks that have these GPUs; srun refuses both numbers.
check 0 "--cpus-per-task=8 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_GPU=8
check 0 "by GPU: unset" job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_GPU=8
check 0 "--cpus-per-task=16 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_GPU=8 RANKS_PER_NODE=2
check 0 "--cpus-per-task=3 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_CPUS_PER_GPU=8 SLURM_CPUS_PER_TASK=3
check 0 "--staging local=$scratch/node --device cuda --epochs 1" job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4
check 0 "--ntasks=8 --ntasks-per-node=4 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_PER_NODE=a100:4
check 0 "--ntasks=8 --ntasks-per-node=4 " job nodes.sh SLURM_NTASKS_PER_NODE=8 SLURM_GPUS_ON_NODE=4
check 0 "--ntasks=4 --ntasks-per-node=2 " job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 RANKS_PER_NODE=2
check 0 "--device auto --epochs 1" job nodes.sh SLURM_NTASKS_PER_NODE=4
check 0 "/bin/true doctor --output $scratch/runs --epochs 1" job doctor.sh SLURM_NTASKS_PER_NODE=2

# A launcher that is not there, and one that ends at once, before anything waits for it.
mkdir "$scratch/without"
find /usr/bin /bin -maxdepth 1 ! -name srun ! -type d -exec ln -sf -t "$scratch/without" {} +
check 2 "there is no srun; load the module that has it" env -i HOME="$HOME" PATH="$scratch/without" DTRAIN_DEPS="$deps" DTRAIN=/bin/true \
  OUTPUT="$scratch/runs" NODE_LOCAL="$scratch/node" SLURM_JOB_ID=7 bash "$root/jobs/singlenode.sh"
mkdir "$scratch/failing"
cat >"$scratch/failing/srun" <<'EOF'
#!/bin/sh
case "$*" in *" sh -c "*) shift 4; exec "$@" ;; esac
exit 3
EOF
chmod +x "$scratch/failing/srun"
for _ in 1 2 3; do
  check 3 "the launcher ended with 3" job singlenode.sh PATH="$scratch/failing:/usr/bin:/bin"
  rm -rf "$scratch/runs"
done

# Tasks and GPUs that do not fit one another.
check 2 "4 ranks per node, one for each of 4 GPUs, are more than the job's 2 tasks per node: give sbatch --ntasks-per-node=4" \
  job nodes.sh SLURM_NTASKS_PER_NODE=2 SLURM_GPUS_ON_NODE=4
check 2 "3 ranks per node are more than the job's 2 tasks" job singlenode.sh SLURM_NTASKS_PER_NODE=2 RANKS_PER_NODE=3
check 2 "8 ranks per node would share 4 GPUs" job nodes.sh SLURM_NTASKS_PER_NODE=8 SLURM_GPUS_ON_NODE=4 RANKS_PER_NODE=8
check 2 "5 tasks on 2 nodes" job singlenode.sh SLURM_NTASKS=5
check 2 "ask for --gpus-per-node" job nodes.sh SLURM_NTASKS_PER_NODE=4 SLURM_GPUS_ON_NODE=4 SLURM_GPUS_PER_TASK=1

# Slurm runs a copy of a script, which finds its checkout as the folder it was submitted from; else it lies in the checkout.
mkdir -p "$scratch/spool/job7" "$scratch/elsewhere"
for script in nodes singlenode multinode_vgg11 scaling array_study resnet18_cifar10 doctor; do
  cp "$root/jobs/$script.sh" "$scratch/spool/job7/slurm_script"
  check 2 "mine: $scratch/elsewhere is no checkout of dtrain: submit it from the checkout" env -i PATH=/usr/bin:/bin SLURM_JOB_ID=7 \
    SLURM_JOB_NAME=mine SLURM_SUBMIT_DIR="$scratch/elsewhere" bash "$scratch/spool/job7/slurm_script"
done
cp "$root/jobs/singlenode.sh" "$scratch/spool/job7/slurm_script"
check 0 "--ntasks=2 --ntasks-per-node=1 " job "$scratch/spool/job7/slurm_script" SLURM_SUBMIT_DIR="$root"
check 0 "--ntasks=2 --ntasks-per-node=1 " job singlenode.sh SLURM_SUBMIT_DIR="$scratch/elsewhere"

# The pattern of runs for the notebook, from a folder with letters that bash would write in a form of its own.
mkdir -p "$scratch/deps/venv/bin"
cat >"$scratch/deps/venv/bin/python3" <<'EOF'
#!/bin/sh
case "$1 $2" in
  "-c import h5py"*) ;;
  "-m nbconvert") exec /usr/bin/python3 -c 'import os, shlex; print("runs:", os.fsencode(*shlex.split(os.environ["RUNS"])).decode("utf-8", "strict"))' ;;
  *) exec /usr/bin/python3 "$@" ;;
esac
EOF
chmod +x "$scratch/deps/venv/bin/python3"
check 0 "runs: $scratch/a rün/scaling-7/nodes-*" job scaling.sh LC_ALL=C DTRAIN_DEPS="$scratch/deps" OUTPUT="$scratch/a rün"
# A number of nodes that cannot be is found before a run of the numbers in front of it.
check 2 "NODE_COUNTS=9: the job has 2 nodes" job scaling.sh DTRAIN_DEPS="$scratch/deps" NODE_COUNTS="1 9"
for wrong in 0 -1 two 1.5 1,2; do
  check 2 "NODE_COUNTS=$wrong: it can be a whole number from 1 on" job scaling.sh DTRAIN_DEPS="$scratch/deps" NODE_COUNTS="1 $wrong"
done
check 1 "" test -e "$scratch/runs/scaling-7"

# The scripts follow the run that they name, and say how they are used without starting one.
for said in --name --name=x --output; do
  check 2 "${said%%=*}: this script follows the folder of the run: leave it out, or say NAME=" env -i HOME="$HOME" PATH="$scratch/bin:/usr/bin:/bin" DTRAIN_DEPS="$deps" \
    DTRAIN=/bin/true OUTPUT="$scratch/runs" NODE_LOCAL="$scratch/node" SLURM_JOB_ID=7 bash "$root/jobs/singlenode.sh" "$said" x
done
for script in nodes singlenode multinode_vgg11 scaling array_study mpirun_hosts resnet18_cifar10 doctor; do
  check 0 "from" bash "$root/jobs/$script.sh" --help
done
check 0 "RANKS_PER_NODE" bash "$root/jobs/nodes.sh" --help
check 0 "takes no options" bash "$root/jobs/quickstart.sh" --help
check 0 "jobs/build.sh [TARGET...]" bash "$root/jobs/build.sh" --help

# Variables that cannot be.
for wrong in 0 -1 two 1.5 9999999; do
  check 2 "RANKS_PER_NODE=$wrong: it can be a whole number from 1 on" job singlenode.sh RANKS_PER_NODE="$wrong"
done
check 2 "ATTEMPTS=many: it can be a whole number from 1 on" job singlenode.sh ATTEMPTS=many
check 2 "SLURM_CPUS_PER_GPU=x: it can be a whole number from 1 on" job nodes.sh SLURM_GPUS_ON_NODE=1 SLURM_CPUS_PER_GPU=x
check 2 "PAUSE_S=-1: it can be a whole number from 0 on" job singlenode.sh PAUSE_S=-1
check 2 "GPUs per node=x: it can be" job nodes.sh SLURM_GPUS_ON_NODE=x
check 2 "BIND=core: it can be cores or none" job singlenode.sh BIND=core
check 2 "DTRAIN_LAUNCHER=mpiexec: it can be srun or mpirun" job singlenode.sh DTRAIN_LAUNCHER=mpiexec
check 2 "no such program" job singlenode.sh DTRAIN="$scratch/none"
check 2 "NODE_LOCAL=$scratch/none: no folder" job nodes.sh NODE_LOCAL="$scratch/none" SLURM_GPUS_ON_NODE=1
check 2 "/proc/runs: this folder cannot be made" job singlenode.sh OUTPUT=/proc/runs
check 2 "/proc/copy: this folder cannot be made" job singlenode.sh RESULTS=/proc/copy
finish
