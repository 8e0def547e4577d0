#!/usr/bin/env bash
# Submit many runs as one job: snakemake packs them onto all cores of a SLURM allocation.
#
#   sbatch --nodes 4 --exclusive --time 12:00:00 profiles/allocation.sh --configfile config/mine.yaml
#
# from the project's folder or, if allcores was installed by pip, from any folder
#
#   sbatch --nodes 4 --exclusive --time 12:00:00 "$(allcores folder)/profiles/allocation.sh" --configfile mine.yaml
#
# What follows the script's name goes to snakemake. On one node, a run starts as on any machine. On several nodes, it
# starts as a step on nodes that profiles/step.py chooses.
# Two minutes before the time limit, and after a node has died, runs save and stop, and the job returns to the queue.
# In its next turn, they resume. On SIGTERM, they also save and stop; SLURM then decides whether to queue the job again.
#
#SBATCH --job-name=allcores
#SBATCH --output=allcores-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# A node that dies ends only its own runs: the others save, and all resume in the job's next turn. In the current turn,
# SLURM (22.05) would never give away again the cores that were busy when the node died.
#SBATCH --no-kill
# Two minutes before the time limit.
#SBATCH --signal=B:USR1@120
set -euo pipefail

BIN=${BIN:-.venv/bin} PLACE=.
if [ -x "$BIN/python" ] && [ -e workflow/Snakefile ]; then
  PYTHON=$BIN/python
elif ALLCORES=$(command -v allcores || command -v "$BIN/allcores"); then # a wheel
  PLACE=$("$ALLCORES" folder) PYTHON=$("$ALLCORES" python)
else
  echo "found no $BIN/python with workflow/Snakefile in $PWD, and no command allcores; submit from the project's folder or with --chdir; if jobs do not get your environment (--export=NONE), add --export=BIN=/folder/of/the/environment/bin" >&2
  exit 1
fi
SNAKEMAKE=("$PYTHON" -m snakemake -s "$PLACE/workflow/Snakefile")
if [ -z "${SLURMD_NODENAME:-}" ]; then
  echo "this is not a node of the allocation; submit profiles/allocation.sh with sbatch instead of running it under salloc" >&2
  exit 1
fi

# One worker for each core, not for each hardware thread, unless HYPERTHREADS=yes. SLURM counts threads, or cores if it
# is configured to.
threads=1
if [ "${HYPERTHREADS:-no}" != yes ] && [ "${SLURM_HINT:-}" != nomultithread ] && [ "${SLURM_THREADS_PER_CORE:-}" != 1 ]; then
  threads=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o 'ThreadsPerCore=[0-9]*' | cut -d= -f2)
fi
export ALLCORES_CORE_CPUS=$threads
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# "48(x2),24": CPUs of the nodes.
mapfile -t cpus < <(tr , '\n' <<<"$SLURM_JOB_CPUS_PER_NODE" | awk -F '[(x)]+' '{n = $2 ? $2 : 1; while (n--) print $1}')
cores=0 least= memory=0 ALLCORES_ROOM= ALLCORES_NODE_MB=0
for i in "${!nodes[@]}"; do
  node_cores=$((cpus[i] > threads ? cpus[i] / threads : 1))
  mb=${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * cpus[i]))}
  cores=$((cores + node_cores)) memory=$((memory + mb))
  if [ -z "$least" ] || [ "$node_cores" -lt "$least" ]; then least=$node_cores; fi
  mb=$((mb ? mb : 10 ** 9)) # without a limit: more than any node has
  if [ "$mb" -gt "$ALLCORES_NODE_MB" ]; then ALLCORES_NODE_MB=$mb; fi
  # Name, cores and MB.
  ALLCORES_ROOM+="${nodes[i]} $node_cores $mb"$'\n'
done
# srun would use the options of sbatch, which are in these variables, as its own. Only those that identify the job stay;
# steps get what their own options request.
for name in $(compgen -e SLURM_); do
  case $name in
  SLURM_JOB_ID | SLURM_JOBID | SLURM_JOB_NUM_NODES | SLURM_JOB_NODELIST | SLURM_RESTART_COUNT) ;;
  SLURM_CONF | SLURM_CLUSTER_NAME | SLURM_WORKING_CLUSTER | SLURM_NODE_ALIASES) ;;
  *) unset "$name" ;;
  esac
done

mkdir -p .snakemake
if [ "$memory" != 0 ]; then export ALLCORES_NODE_MB; fi
if [ "${#nodes[@]}" -gt 1 ]; then
  export ALLCORES_NODE_CORES=$least ALLCORES_NODES=${#nodes[@]}
  # Starts one process on each node of a run; the workflow fills in the braces. For another batch system, change this.
  export ALLCORES_ROOM ALLCORES_NODE_MB
  # %q, because paths may contain spaces.
  export ALLCORES_LAUNCHER="$(printf '%q -I -S %q' "$PYTHON" "$PLACE/profiles/step.py") --nodes {resources.nodes} --cores \$(({threads} / {resources.nodes})) --mem {resources.mem_mb} --"
  # One process on each node, from which runs are forked; without it, they start by themselves.
  for node in "${nodes[@]}"; do # a step over several nodes would end with the first of them
    {
      srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" --input=none --quiet \
        "$PYTHON" "$PLACE/scripts/warm_node.py" ".snakemake/warm_process_$node.log" 2>/dev/null || true
      # Not with sinfo, which reports a drained node as "drained" even if it is down.
      if scontrol --oneliner show node "$node" | grep -q 'State=[^ ]*DOWN'; then kill -USR1 $$; fi
    } &
  done
fi

requeue=no
stop() {
  requeue=$1 # whether this script has to requeue the job
  kill -TERM "$snakemake" 2>/dev/null || true # no further runs
  # Running ones save and stop. On SIGTERM, srun would kill them at once, but it passes USR1 on. The signal is repeated
  # for runs that were just being started. Reports may end, in the two minutes that are left.
  while pkill -USR1 -P "$snakemake" -f 'srun|profiles/step.py|scripts/(train|calibrate|prepare_dataset|plan).py'; do
    sleep 2
  done
}

began=.snakemake/began_$SLURM_JOB_ID
touch "$began"
"${SNAKEMAKE[@]}" --cores "$cores" $( ((memory)) && echo --resources mem_mb="$memory") --retries 2 "$@" &
snakemake=$!
trap 'stop yes' USR1
trap 'stop no' TERM
status=0
while kill -0 "$snakemake" 2>/dev/null; do # a signal ends the wait, not snakemake
  wait "$snakemake" && status=0 || status=$?
done
if [ "$requeue" = yes ] && [ "$status" != 0 ]; then
  # A run that has made progress has left a checkpoint or a result.
  made=$(find results -newer "$began" \( -name metrics.json -o -name latest.allcores -o -name dataset.json \) 2>/dev/null || true)
  if [ -n "$made" ]; then
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "not queued again: no run made progress in this turn; request more than $SECONDS s and 2 minutes (--time)" >&2
  fi
fi
rm -f "$began" ".snakemake/steps_$SLURM_JOB_ID.json"
exit "$status"
