#!/usr/bin/env bash
# One submission, many runs: snakemake packs them onto all cores of an allocation of SLURM.
#
#   sbatch --nodes 4 --exclusive --time 12:00:00 profiles/allocation.sh --configfile config/mine.yaml
#
# from the project's folder; what follows the script's name goes to snakemake. On one node a run starts as
# on any machine; on several, as a step of SLURM's own, which chooses the node and binds the cores.
# Two minutes before the time limit, and after a node has died, runs save what they have and stop, and the job goes
# back to the queue, where it goes on by itself. On SIGTERM they do so, too; whether it is queued again is then SLURM's business.
#
#SBATCH --job-name=allcores
#SBATCH --output=allcores-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# A node that dies takes its runs only: the others save, and all go on in the job's next turn. In this one SLURM would
# never give away again the cores that were busy as the node died (22.05).
#SBATCH --no-kill
# Two minutes before the time limit.
#SBATCH --signal=B:USR1@120
set -euo pipefail

BIN=${BIN:-.venv/bin}
SNAKEMAKE=("$BIN/python" -m snakemake)

# "48(x2),24": CPUs of the nodes.
read -r cores least < <(
  tr , '\n' <<<"$SLURM_JOB_CPUS_PER_NODE" | tr '(x)' '   ' |
    awk '{n = $2 ? $2 : 1; all += n * $1; if (!least || $1 < least) least = $1} END {print all, least}'
)
memory=${SLURM_MEM_PER_NODE:+$((SLURM_MEM_PER_NODE * SLURM_JOB_NUM_NODES))}
memory=${memory:-${SLURM_MEM_PER_CPU:+$((SLURM_MEM_PER_CPU * cores))}}
# srun takes them for options of its own that contradict those below.
unset SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU

if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  export ALLCORES_NODE_CORES=$least ALLCORES_NODES=$SLURM_JOB_NUM_NODES
  # One process on each node of a run; what is in braces is filled in. Another batch system: another line.
  export ALLCORES_LAUNCHER='srun --exact --nodes={resources.nodes} --ntasks-per-node=1 --cpus-per-task=$(({threads} / {resources.nodes})) --mem={resources.mem_mb} --kill-on-bad-exit=1 --wait=0 --input=none --quiet'
  # On each node a process from which runs are forked; without one they start by themselves.
  mkdir -p .snakemake
  for node in $(scontrol show hostnames); do # a step of several nodes would end with one of them
    {
      srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" --input=none --quiet \
        "$BIN/python" scripts/warm_node.py ".snakemake/warm_process_$node.log" || true
      if sinfo --noheader --nodes="$node" --format=%T | grep -q down; then kill -USR1 $$; fi
    } &
  done
fi

requeue=no
stop() {
  requeue=$1 # whether nobody else does it
  kill -TERM "$snakemake" 2>/dev/null || true # no further runs
  # Those that there are save and stop. Of SIGTERM srun would kill them at once; this it passes on. Again, for one that
  # was just being started.
  while pkill -USR1 -P "$snakemake" -f 'srun|scripts/start.py'; do sleep 2; done
}

# The job that was here before has the same number and is over; its lock may be left. Others' locks stay.
others=$(squeue --me --noheader --states=RUNNING --format='%A %Z' | grep -v "^$SLURM_JOB_ID " | grep -cF " $PWD" || true)
if [ "${SLURM_RESTART_COUNT:-0}" != 0 ] && [ "$others" = 0 ]; then "${SNAKEMAKE[@]}" "$@" --unlock; fi
"${SNAKEMAKE[@]}" --cores "$cores" --retries 2 ${memory:+--resources mem_mb="$memory"} "$@" &
snakemake=$!
trap 'stop yes' USR1
trap 'stop no' TERM
status=0
while kill -0 "$snakemake" 2>/dev/null; do # a signal ends the wait, not snakemake
  wait "$snakemake" && status=0 || status=$?
done
if [ "$requeue" = yes ] && [ "$status" != 0 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
