# shellcheck shell=bash
# To be sourced by the job scripts, with `top` set to the checkout: `train NAME OPTIONS` starts dtrain on all nodes of the
# job, hands signals on, and does with the job what the run's file `state` asks for. From the environment:
#   DTRAIN             the program [./dtrain of the checkout]
#   DTRAIN_LAUNCHER    srun, or mpirun [srun in a Slurm job, else mpirun]
#   RANKS_PER_NODE     [the GPUs of a node where the job has some, else the tasks per node that it asked for, else 1]
#   BIND               cores, or none: for cores that several ranks or nodes share [cores]
#   MPIRUN_OPTIONS     further ones of mpirun, such as --with-ft ulfm
#   OUTPUT             folder of runs, which all nodes see [runs of the checkout]
#   RESULTS            a folder that gets a copy of the run without its checkpoints [none]
#   NODE_LOCAL         folder of each node's own storage [TMPDIR, else /tmp]
#   ATTEMPTS           how often a run is started at most, starts after a time limit or a stop on request not counted [10]
#   PAUSE_S            without Slurm: seconds before it is started once more [10]

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,/^[^#]/{/^##*SBATCH/d;s/^# \{0,1\}//p}' "$0"
  echo 'From the environment, beside NAME, the name of the run (not of scaling.sh, array_study.sh and doctor.sh):'
  sed -n '2,/^[^#]/s/^#   /  /p' "${top:?the checkout}/jobs/launch.sh"
  exit
fi

me=${SLURM_JOB_NAME:-${0##*/}}  # a script in the queue runs under another file name
fail() { printf '%s: %s\n' "$me" "$1" >&2; exit "${2:-2}"; }
counted() { if (($1 == 1)); then echo "1 $2"; else echo "$1 ${2}s"; fi; }
say() { printf '%(%F %T)T %s: %s\n' -1 "$me" "$*"; }

# shellcheck source=jobs/env.sh
. "${top:?the checkout}/jobs/env.sh"
dtrain=${DTRAIN:-$top/dtrain}
[[ -x $dtrain ]] || fail "$dtrain: no such program; build it with jobs/build.sh, or set DTRAIN"
launcher=${DTRAIN_LAUNCHER:-$([[ -n ${SLURM_JOB_ID:-} ]] && echo srun || echo mpirun)}
[[ $launcher == srun || $launcher == mpirun ]] || fail "DTRAIN_LAUNCHER=$launcher: it can be srun or mpirun"
command -v "$launcher" >/dev/null || fail "there is no $launcher; load the module that has it, or set DTRAIN_LAUNCHER"
nodes=${SLURM_JOB_NUM_NODES:-1}
output=${OUTPUT:-$top/runs}
# shellcheck disable=SC2034  # for the job scripts
node_local=${NODE_LOCAL:-${TMPDIR:-/tmp}}
bind=${BIND:-cores}
attempts=${ATTEMPTS:-10}
launched='' stop_asked=''

# What can be known to be wrong before a rank is started: an hour in the queue is not to end in a mesh that does not fit.
check_number() {  # NAME VALUE LEAST
  if [[ ! $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3)); then fail "$1=$2: it can be a whole number from $3 on"; fi
}
gpus_per_node() {  # of the job: what Slurm has given this node, or what was asked for (4, a100:4); 0 without
  local asked=${SLURM_GPUS_ON_NODE:-${SLURM_GPUS_PER_NODE:-0}}
  echo "${asked##*:}"
}
choose_ranks_per_node() {
  local gpus tasks=${SLURM_NTASKS_PER_NODE:-}
  [[ -z ${SLURM_GPUS_PER_TASK:-} ]] ||
    fail "the job asks for --gpus-per-task: a rank that sees only one GPU cannot use the links to its neighbours' GPUs; ask for --gpus-per-node"
  gpus=$(gpus_per_node)
  check_number "GPUs per node" "$gpus" 0
  if [[ -z $tasks && -n ${SLURM_NTASKS:-} ]]; then
    check_number SLURM_NTASKS "$SLURM_NTASKS" 1
    ((SLURM_NTASKS % nodes == 0)) ||
      fail "the job has $SLURM_NTASKS tasks on $nodes nodes: give sbatch --ntasks-per-node, so that all nodes have as many"
    tasks=$((SLURM_NTASKS / nodes))
  fi
  if [[ -n ${RANKS_PER_NODE:-} ]]; then
    ranks_per_node=$RANKS_PER_NODE
  elif ((gpus > 0)); then
    ranks_per_node=$gpus
  else
    ranks_per_node=${tasks:-1}
  fi
  check_number RANKS_PER_NODE "$ranks_per_node" 1
  [[ $launcher != srun || -z $tasks ]] || ((ranks_per_node <= tasks)) ||
    fail "$ranks_per_node ranks per node$( ((gpus == 0)) || echo ", one for each of $gpus GPUs,") are more than the job's $tasks tasks per node: give sbatch --ntasks-per-node=$ranks_per_node"
  ((gpus == 0 || ranks_per_node <= gpus)) ||
    fail "$ranks_per_node ranks per node would share $gpus GPUs: give sbatch --gpus-per-node=$ranks_per_node, or set RANKS_PER_NODE=$gpus"
}
check_number "nodes of the job" "$nodes" 1
check_number ATTEMPTS "$attempts" 1
check_number PAUSE_S "${PAUSE_S:-10}" 0
check_number SLURM_CPUS_PER_TASK "${SLURM_CPUS_PER_TASK:-1}" 1
check_number SLURM_CPUS_PER_GPU "${SLURM_CPUS_PER_GPU:-1}" 1
[[ $bind == cores || $bind == none ]] || fail "BIND=$bind: it can be cores or none"
choose_ranks_per_node
cpus_per_gpu=${SLURM_CPUS_PER_GPU:-}
unset SLURM_CPUS_PER_GPU  # srun takes it for an option, which it refuses beside --cpus-per-task
# shellcheck disable=SC2034  # for the job scripts
device=$([[ $(gpus_per_node) == 0 ]] && echo auto || echo cuda)
for folder in "$output" ${RESULTS:+"$RESULTS"}; do
  mkdir -p "$folder" 2>/dev/null || true
  [[ -w $folder ]] ||
    fail "$folder: this folder cannot be made or written to; set OUTPUT and RESULTS to folders that all nodes see"
done

# Slurm's warning (--signal=B:USR1@SECONDS) comes to the job script alone. Asked before the launcher is there, `train`
# does not start it.
ask_to_stop() {
  stop_asked=yes
  say "asked to stop: the run writes a checkpoint"
  [[ -z $launched ]] || kill -USR1 "$launched" 2>/dev/null || true
}

# All nodes at once, before any rank is started. Slurm's srun asks them whatever starts the ranks: mpirun now and then hangs
# over a program that ends at once.
check_node_local() {
  local ask=() without
  if [[ -n ${SLURM_JOB_ID:-} ]]; then
    ask=(timeout 60 srun --mpi=none --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1)
  fi
  # shellcheck disable=SC2016  # for the nodes' shells
  without=$("${ask[@]}" sh -c '[ -d "$0" ] && [ -w "$0" ] || uname -n' "$node_local" </dev/null | sort | paste -sd' ')
  [[ -z $without ]] || fail "NODE_LOCAL=$node_local: no folder that can be written to on $without; name the nodes' own storage"
}

# mpirun waits for nodes that it cannot reach any more long after the run has ended, and says so in its `state`.
end_launcher_after() {  # LAUNCHER FOLDER MARK: of `state` before the run
  local over=0
  while kill -0 "$1" 2>/dev/null; do
    sleep 2
    [[ $(mark_of "$2") != "$3" && $(cat "$2/state") != running ]] || continue
    over=$((over + 2))
    ((over < 20)) || { kill -TERM "$1"; sleep 5; kill -KILL "$1" 2>/dev/null; }
  done
}

# Tells a `state` from one that was written before.
mark_of() { stat -c '%i %y' "$1/state" 2>/dev/null || true; }

cores_per_rank() {  # what the job asked for by task, or by GPU
  local gpus
  gpus=$(gpus_per_node)
  if [[ -z ${SLURM_CPUS_PER_TASK:-} && -n $cpus_per_gpu ]] && ((gpus > 0)); then
    echo $((cpus_per_gpu * gpus / ranks_per_node))
  else
    echo "${SLURM_CPUS_PER_TASK:-1}"
  fi
}

start_ranks() {  # OPTIONS: dtrain on `nodes` nodes, for the run that `train` is about; returns the launcher's status
  local ranks=$((nodes * ranks_per_node)) cores command status=0
  cores=$(cores_per_rank)
  case $launcher in
    srun)
      # Without --mpi=pmix each rank would take itself for the only one. Once a rank has ended the others have a minute:
      # a rank that was lost must not leave the rest waiting for the job's end.
      command=(srun --mpi=pmix --nodes="$nodes" --ntasks="$ranks" --ntasks-per-node="$ranks_per_node" --wait=60
        --cpus-per-task="$cores" --cpu-bind="$bind") ;;
    mpirun)
      command=(mpirun -np "$ranks" --map-by "ppr:$ranks_per_node:node")
      if [[ $bind == cores ]]; then command=(mpirun -np "$ranks" --map-by "ppr:$ranks_per_node:node:PE=$cores" --bind-to core)
      else command+=(--bind-to none); fi
      # shellcheck disable=SC2206  # options are words
      command+=(${MPIRUN_OPTIONS:-}) ;;
  esac
  [[ -z $stop_asked ]] || return 75
  "${command[@]}" "$dtrain" "$@" </dev/null &
  launched=$!
  end_launcher_after "$launched" "$folder" "$before" &
  local watcher=$!
  wait "$launched" || status=$?  # which may have ended already
  # A signal ends `wait` before the launcher ends.
  while kill -0 "$launched" 2>/dev/null; do status=0; wait "$launched" || status=$?; done
  launched=''
  kill "$watcher" 2>/dev/null || true
  return "$status"
}

copy_results() {  # of the run in folder $1
  [[ -n ${RESULTS:-} && -d $1 ]] || return 0
  local copy=$RESULTS/${1##*/}
  mkdir -p "$copy"
  tar -C "$1" --exclude=./checkpoints -cf - . | tar -C "$copy" -xf - || fail "cannot copy $1 to $copy" 1
  say "results copied to $copy; checkpoints stay in $1"
}

# What a job leaves to be done: nothing more (0, or the code of a failure), or the same again (75).
outcome() {  # STATE CODE
  case $1:$2 in
    completed:4) echo 4 ;;  # trained, but a checkpoint could not be written
    completed:*) echo 0 ;;
    preempted:*) echo 75 ;;
    failed:[1-4]) echo "$2" ;;
    failed:* | running:*) echo 75 ;;  # a rank or its node was lost
    *) if [[ $2 == [0-4] && -z $stop_asked ]]; then echo "$2"; else echo 75; fi ;;  # the run did not come to write a state
  esac
}

# dtrain takes processes of other nodes for alive until their files have been silent for a minute, and refuses to resume
# their run. Here it is known that the earlier attempt is over; that an unreachable node is dead as well is seen from the
# files, which rank 0 (`alive`) and each rank touch every second.
bury() {  # FOLDER: of an attempt that was killed
  local tries
  [[ $(cat "$1/state" 2>/dev/null) == running ]] || return 0
  for ((tries = 0; tries < 60; ++tries)); do
    if [[ -z $(find "$1/ranks" "$1/alive" -newermt '10 seconds ago' -type f 2>/dev/null) ]]; then
      echo failed >"$1/.state" && mv "$1/.state" "$1/state"
      rm -f "$1/alive"
      return
    fi
    sleep 1
  done
}

# How many attempts of this job at the run `name` were lost. Slurm starts the script anew after each: a file keeps the number.
lost_file() { echo "$output/.lost-$SLURM_JOB_ID-$name"; }
lost_so_far() { if [[ -n ${SLURM_JOB_ID:-} ]]; then cat "$(lost_file)" 2>/dev/null || echo 0; else echo 0; fi; }
keep_lost() {
  [[ -z ${SLURM_JOB_ID:-} ]] || { mkdir -p "$output" && echo "$1" >"$(lost_file)"; } || say "$output takes no count of attempts"
}
forget_lost() { [[ -z ${SLURM_JOB_ID:-} ]] || rm -f "$(lost_file)"; }

# Gives the job back to Slurm, which starts it under its number once more. Without Slurm it returns, for another attempt in
# place, unless the run was asked to stop.
again() {  # STATE
  if [[ -n ${SLURM_JOB_ID:-} ]]; then
    scontrol show job "$SLURM_JOB_ID" | grep -q 'JobState=CANCELLED' && { forget_lost; exit 75; }
    say "back to the queue, to go on from the newest checkpoint"
    scontrol requeue "$SLURM_JOB_ID" || say "the queue does not take it: submit the same command again"
    exit 75
  fi
  [[ $1 != preempted && -z $stop_asked ]] || { say "stopped on request: the same command goes on"; exit 75; }
  say "once more, from the newest checkpoint"
  sleep "${PAUSE_S:-10}"
}

train() {  # NAME OPTIONS
  local name=$1 folder=$output/$1 word before state code lost started=${SLURM_RESTART_COUNT:-0}
  shift
  for word in "$@"; do
    [[ $word != --name && $word != --name=* && $word != --output && $word != --output=* ]] ||
      fail "${word%%=*}: this script follows the folder of the run: leave it out, or say NAME=... or OUTPUT=... before the command"
  done
  trap ask_to_stop USR1
  lost=$(lost_so_far)
  while true; do
    if ((lost >= attempts)); then
      forget_lost
      fail "$folder: given up after $attempts attempts; see the messages above, or raise ATTEMPTS" 5
    fi
    ((started == 0)) || bury "$folder"
    say "attempt $((lost + 1)) of $attempts: $(counted "$nodes" node) x $(counted "$ranks_per_node" rank) by $launcher"
    keep_lost $((lost + 1))  # should the script's own node die meanwhile
    before=$(mark_of "$folder")
    code=0
    start_ranks --output "$output" --name "$name" "$@" || code=$?
    state=$(cat "$folder/state" 2>/dev/null || true)
    # One of an earlier attempt says nothing about this one.
    [[ $(mark_of "$folder") != "$before" ]] || state=''
    say "the launcher ended with $code, the run's state is ${state:-not written}"
    code=$(outcome "$state" "$code")
    ((code == 75)) || break
    if [[ $state == preempted || -n $stop_asked ]]; then keep_lost "$lost"; else lost=$((lost + 1)); fi
    again "$state"
    started=$((started + 1))
  done
  forget_lost
  copy_results "$folder"
  return "$code"
}
