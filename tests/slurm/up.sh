#!/usr/bin/env bash
# Bring up a real SLURM (munge, slurmctld, slurmd) on this one machine, without systemd, as root.
#
#   LAB=/some/folder tests/slurm/up.sh && . /some/folder/env.sh && sinfo
#
# All state lies in $LAB; down.sh ends it. Each of the nodes n1 .. nN has a network of its own, behind a bridge
# that nothing else is connected to; where that is not allowed, all are on the loopback interface. Each has CPUS cores
# of THREADS hardware threads. NUMBER tells apart several SLURMs at a time. Installs Debian's packages where they are
# missing; ends with status 77 where that cannot be done.
set -euo pipefail
LAB=${LAB:?the folder for all state}
NODES=${NODES:-3} CPUS=${CPUS:-2} THREADS=${THREADS:-1} MEMORY=${MEMORY:-8000} NUMBER=${NUMBER:-0}
export NUMBER
PORT=$((16817 + 100 * NUMBER)) NETWORK=10.77.$NUMBER
HOST=$(hostname -s)
say() { echo "[slurm up] $*"; }
die() { echo "[slurm up] ERROR: $*" >&2; tail -n 15 "$LAB"/log/*.log >&2 2>/dev/null || true; exit 1; }

cannot() { echo "$*" >&2; exit 77; }

[ "$(id -u)" = 0 ] || cannot "SLURM cannot be installed here: that takes root"
command -v apt-get >/dev/null || cannot "SLURM cannot be installed here: that takes Debian's packages"

apart=yes
unshare --mount --uts true 2>/dev/null || apart=no
[ $apart = yes ] || [ "$NUMBER" = 0 ] || cannot "several SLURMs at a time take mount namespaces, which are not allowed here"

# Another may be installing the same.
exec {installing}>/run/lock/allcores-slurm
flock "$installing"
missing=()
for pair in munged:munge slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client ip:iproute2; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # The packages must not start anything themselves: policy-rc.d says so for the time being.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; trap 'rm -f $policy' EXIT; }
  # Somebody else may be installing something.
  apt() { apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Lock::Timeout=300 "$@"; }
  said=$({ apt update && apt install -y --no-install-recommends "${missing[@]}"; } 2>&1) ||
    cannot "SLURM cannot be installed here: apt-get: $(grep -m1 '^E:' <<<"$said" || tail -n1 <<<"$said")"
fi
exec {installing}>&-

mkdir -p "$LAB"/{etc,log,run,state,spool}

networks=no control=127.0.0.1
address() { if [ $networks = yes ]; then echo "$NETWORK.$((10 + $1))"; else echo "127.0.$NUMBER.$((10 + $1))"; fi; }
"$(dirname "$0")/networks.sh" down
if "$(dirname "$0")/networks.sh" up "$NODES" 2>"$LAB/log/networks.log"; then
  networks=yes control=$NETWORK.1
fi
[ -s "$LAB/etc/munge.key" ] || (umask 077; dd if=/dev/urandom of="$LAB/etc/munge.key" bs=128 count=1 status=none)
{
  echo "127.0.0.1 localhost $HOST"
  for i in $(seq "$NODES"); do echo "$(address "$i") n$i"; done
} >"$LAB/etc/hosts"
{
  cat <<CONF
ClusterName=lab
SlurmctldHost=$HOST($control)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A job that is requeued waits as long as a credential is valid, 2 minutes if nobody says otherwise.
AuthInfo=socket=$LAB/run/munge.sock,cred_expire=5
StateSaveLocation=$LAB/state
SlurmdSpoolDir=$LAB/spool/%n
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmdPidFile=$LAB/run/slurmd.%n.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdLogFile=$LAB/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
# The numbers of CPUs below are believed, whatever the machine has.
SlurmdParameters=config_overrides
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000,bf_interval=2
KillWait=20
SlurmdTimeout=${SLURMD_TIMEOUT:-60}
# Ended jobs stay visible to squeue, by which Snakemake asks for them.
MinJobAge=${MIN_JOB_AGE:-600}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
AccountingStorageType=accounting_storage/none
CONF
  for i in $(seq "$NODES"); do
    echo "NodeName=n$i NodeHostname=n$i NodeAddr=$(address "$i") Port=$((PORT + i)) CPUs=$((CPUS * THREADS)) CoresPerSocket=$CPUS ThreadsPerCore=$THREADS RealMemory=$MEMORY State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=ALL Default=YES DefaultTime=10 MaxTime=24:00:00 State=UP"
  # Jobs of `urgent` take nodes away from those of `main`, which are queued again.
  echo "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=off State=UP"
} >"$LAB/etc/slurm.conf"
: >"$LAB/etc/cgroup.conf"
echo "export SLURM_CONF=$LAB/etc/slurm.conf" >"$LAB/env.sh"
export SLURM_CONF=$LAB/etc/slurm.conf

munged --key-file="$LAB/etc/munge.key" --socket="$LAB/run/munge.sock" --pid-file="$LAB/run/munged.pid" \
  --log-file="$LAB/log/munged.log" --seed-file="$LAB/run/munged.seed" || die "munged"
slurmctld || die "slurmctld"

# Inside a job Snakemake's executor removes SLURM_CONF, so slurm.conf has to be at its default place there:
# each slurmd gets a mount namespace in which it is. Where that is not allowed (a container without
# CAP_SYS_ADMIN), the default place becomes a link for the time being.
mkdir -p /etc/slurm
if [ $apart = yes ]; then
  # No name server: torch asks for the names of addresses, and would wait 10 s for each.
  echo "nameserver 127.0.0.1" >"$LAB/etc/resolv.conf"
  inside='mount --bind "$1/etc/resolv.conf" /etc/resolv.conf && mount --bind "$1/etc/hosts" /etc/hosts &&
    mount --bind "$1/etc" /etc/slurm && hostname "$2" && exec slurmd -N "$2"'
  start() {
    local network=()
    [ $networks = no ] || network=(nsenter "--net=/run/netns/allcores$NUMBER-$1")
    "${network[@]}" unshare --mount --uts --propagation slave bash -c "$inside" _ "$LAB" "$1"
  }
else
  [ ! -e /etc/slurm/slurm.conf ] || [ -L /etc/slurm/slurm.conf ] || die "/etc/slurm/slurm.conf is in the way"
  ln -sfn "$LAB/etc/slurm.conf" /etc/slurm/slurm.conf
  start() { slurmd -N "$1"; }
fi
for i in $(seq "$NODES"); do mkdir -p "$LAB/spool/n$i"; start "n$i" || die "slurmd n$i"; done

for _ in $(seq 150); do
  up=$(sinfo -h -N -p main -o '%N %t' 2>/dev/null | grep -cE ' (idle|mix|alloc)$' || true)
  [ "$up" = "$NODES" ] && { say "$NODES nodes of $CPUS CPUs are up, networks of their own: $networks"; exit 0; }
  sleep 0.2
done
sinfo -N -l >&2 || true
die "only $up of $NODES nodes came up"
