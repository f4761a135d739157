#!/usr/bin/env bash
# head.sh FOLDER NODES RATE: first process of an emulated cluster's head, in namespaces of its own: makes the network that
# joins the nodes, starts munge, Slurm's controller and the nodes, and waits to be killed.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 nodes=$2 rate=$3

network() {
  hostname head
  ip link set lo up
  ip link add name bridge type bridge
  ip address add 10.0.0.254/24 dev bridge
  ip link set bridge up
  {
    echo "127.0.0.1 localhost"
    echo "10.0.0.254 head"
    for ((i = 1; i <= nodes; ++i)); do echo "10.0.0.$i node$i"; done
  } >"$folder/hosts"
  mount --bind "$folder/hosts" /etc/hosts
  # No name server answers here: without this each name costs its time-out.
  sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >"$folder/nsswitch.conf"
  mount --bind "$folder/nsswitch.conf" /etc/nsswitch.conf
}

environment() {  # what a command in the cluster needs, on each node
  cat >"$folder/env.sh" <<EOF
# shellcheck shell=sh
export SLURM_CONF=$folder/slurm.conf
export TMPDIR=$folder/local NODE_LOCAL=\${NODE_LOCAL:-$folder/local}
export OMPI_MCA_plm_rsh_agent=$here/remote_shell.sh PRTE_MCA_plm_ssh_agent=$here/remote_shell.sh
export CLUSTER_FOLDER=$folder
EOF
}

slurm_conf() {
  # Every node has all cores of this machine, and more CPUs than that for tests of many ranks. Times are short: a node
  # that is off is noticed within SlurmdTimeout, and a job that was requeued waits for cred_expire.
  cat <<EOF
ClusterName=emulated
SlurmctldHost=head(10.0.0.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
JobRequeue=1
SlurmdTimeout=5
SlurmctldTimeout=30
KillWait=5
MessageTimeout=2
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
TmpFS=$folder/local
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd-%n
SlurmctldPidFile=$folder/state/slurmctld.pid
SlurmdPidFile=$folder/spool/%n/slurmd.pid
EOF
  # GPUs that Slurm counts and gives to jobs; there is nothing behind them.
  echo "GresTypes=gpu"
  touch "$folder"/gpu{0,1}
  echo "Name=gpu File=$folder/gpu[0-1]" >"$folder/gres.conf"
  for ((i = 1; i <= nodes; ++i)); do echo "NodeName=node$i NodeAddr=10.0.0.$i CPUs=64 Gres=gpu:2 State=UNKNOWN"; done
  echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
}

start_munge() {
  (umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
  munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/state/munged.pid" --seed-file="$folder/state/munged.seed" --log-file="$folder/log/munged" &
  munged=$!
  until [[ -S $folder/munge.socket ]]; do kill -0 "$munged"; sleep 0.02; done
}

network
environment
slurm_conf >"$folder/slurm.conf"
start_munge
export SLURM_CONF=$folder/slurm.conf
slurmctld -D &
slurmctld=$!
echo "$rate" >"$folder/rate"
for ((i = 1; i <= nodes; ++i)); do "$here/power.sh" "$folder" on "node$i"; done
# A first process is sent all orphans, which bash takes in while it waits. Without its daemons there is no cluster.
wait -n "$munged" "$slurmctld"
