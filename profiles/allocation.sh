#!/usr/bin/env bash
# One submission, many runs: snakemake packs them onto all cores of an allocation of SLURM.
#
#   sbatch --nodes 4 --exclusive --time 12:00:00 profiles/allocation.sh --configfile config/mine.yaml
#
# from the project's folder, or, where allcores was installed by pip, from any folder
#
#   sbatch --nodes 4 --exclusive --time 12:00:00 "$(allcores folder)/profiles/allocation.sh" --configfile mine.yaml
#
# What follows the script's name goes to snakemake. On one node a run starts as
# on any machine; on several, as a step, on nodes that profiles/step.py chooses.
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

BIN=${BIN:-.venv/bin} PLACE=.
if [ -x "$BIN/python" ] && [ -e workflow/Snakefile ]; then
  PYTHON=$BIN/python
elif ALLCORES=$(command -v allcores || command -v "$BIN/allcores"); then # a wheel
  PLACE=$("$ALLCORES" folder) PYTHON=$("$ALLCORES" python)
else
  echo "found no $BIN/python with workflow/Snakefile in $PWD, and no command allcores; submit from the project's folder, or say --chdir; where jobs do not get your environment (--export=NONE), say --export=BIN=/folder/of/the/environment/bin" >&2
  exit 1
fi
SNAKEMAKE=("$PYTHON" -m snakemake -s "$PLACE/workflow/Snakefile")
if [ -z "${SLURMD_NODENAME:-}" ]; then
  echo "this is not a node of the allocation; submit profiles/allocation.sh by sbatch, instead of calling it under salloc" >&2
  exit 1
fi

# A worker for each core, not for each of its hardware threads, unless HYPERTHREADS=yes. SLURM counts threads, or cores
# if it is configured to.
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
# srun would take the options of sbatch, which are in these variables, for its own. Only those that say which job this
# is stay; steps get what their options say.
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
  # One process on each node of a run; what is in braces is filled in. Another batch system: another line.
  export ALLCORES_ROOM ALLCORES_NODE_MB
  # Paths may have blanks.
  export ALLCORES_LAUNCHER="$(printf '%q -I -S %q' "$PYTHON" "$PLACE/profiles/step.py") --nodes {resources.nodes} --cores \$(({threads} / {resources.nodes})) --mem {resources.mem_mb} --"
  # On each node a process from which runs are forked; without one they start by themselves.
  for node in "${nodes[@]}"; do # a step of several nodes would end with one of them
    {
      srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" --input=none --quiet \
        "$PYTHON" "$PLACE/scripts/warm_node.py" ".snakemake/warm_process_$node.log" 2>/dev/null || true
      # Not by sinfo, which says "drained" of a drained node that is down.
      if scontrol --oneliner show node "$node" | grep -q 'State=[^ ]*DOWN'; then kill -USR1 $$; fi
    } &
  done
fi

requeue=no
stop() {
  requeue=$1 # whether this script has to do it
  kill -TERM "$snakemake" 2>/dev/null || true # no further runs
  # Running ones save and stop. On SIGTERM srun would kill them at once; USR1 it passes on. It is sent again, for a run
  # that was just being started. Reports are left to end, in the two minutes that there are.
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
    echo "not queued again: no run came any further in this turn; ask for more than $SECONDS s and 2 minutes (--time)" >&2
  fi
fi
rm -f "$began" ".snakemake/steps_$SLURM_JOB_ID.json"
exit "$status"
