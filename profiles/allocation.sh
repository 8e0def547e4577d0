#!/usr/bin/env bash
# Submit many runs as one job: snakemake packs them onto the cores of a node of SLURM.
#
#   sbatch --nodes 1 --exclusive --time 12:00:00 profiles/allocation.sh --configfile config/mine.yaml
#
# from the project's folder or, if allcores was installed by pip, from any folder
#
#   sbatch --nodes 1 --exclusive --time 12:00:00 "$(allcores folder)/profiles/allocation.sh" --configfile mine.yaml
#
# What follows the script's name goes to snakemake. Two minutes before the time limit, runs save and stop, and the job
# returns to the queue; in its next turn, they resume. On SIGTERM, they also save and stop; SLURM then decides whether to
# queue the job again. Several nodes are used by --profile slurm, which submits each run as a job.
#
#SBATCH --job-name=allcores
#SBATCH --output=allcores-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# Two minutes before the time limit.
#SBATCH --signal=B:USR1@120
set -euo pipefail
set -m # snakemake and its runs become a process group, which is told to stop as a terminal does

fail() {
  echo "$1" >&2
  exit 1
}
BIN=${BIN:-.venv/bin} PLACE=.
if [ -x "$BIN/python" ] && [ -e workflow/Snakefile ]; then
  PYTHON=$BIN/python
elif ALLCORES=$(command -v allcores || command -v "$BIN/allcores"); then # a wheel
  PLACE=$("$ALLCORES" folder) PYTHON=$("$ALLCORES" python)
else
  fail "found no $BIN/python with workflow/Snakefile in $PWD, and no command allcores; submit from the project's folder or with --chdir; if jobs do not get your environment (--export=NONE), add --export=BIN=/folder/of/the/environment/bin"
fi
[ -n "${SLURMD_NODENAME:-}" ] || fail "this is not a job of SLURM; submit profiles/allocation.sh with sbatch"
[ "$SLURM_JOB_NUM_NODES" = 1 ] || fail "found $SLURM_JOB_NUM_NODES nodes; expected --nodes 1; for more, use --profile slurm"

# One worker for each core, not for each hardware thread, unless HYPERTHREADS=yes. SLURM counts threads, or cores if it
# is configured to.
threads=1 cpus=$SLURM_CPUS_ON_NODE
if [ "${HYPERTHREADS:-no}" != yes ] && [ "${SLURM_HINT:-}" != nomultithread ] && [ "${SLURM_THREADS_PER_CORE:-}" != 1 ]; then
  threads=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o 'ThreadsPerCore=[0-9]*' | cut -d= -f2)
fi
export ALLCORES_CORE_CPUS=$threads
cores=$((cpus > threads ? cpus / threads : 1))
memory=${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * cpus))}

results=results # where snakemake writes
for word in "$@"; do
  case ${before:-} in -d | --directory) results=$word/results ;; esac
  case $word in --directory=*) results=${word#*=}/results ;; -d?*) results=${word#-d}/results ;; esac
  before=$word
done

# A flag follows --resources, which would take targets for more of them.
"$PYTHON" -m snakemake -s "$PLACE/workflow/Snakefile" $( ((memory)) && echo --resources mem_mb="$memory") \
  --cores "$cores" --retries 2 "$@" &
snakemake=$! requeue=no
stop() {
  requeue=$1 # whether this script has to requeue the job
  kill -INT -- "-$snakemake" 2>/dev/null || true
}
trap 'stop yes' USR1
trap 'stop no' TERM
status=0
while kill -0 "$snakemake" 2>/dev/null; do # a signal ends the wait, not snakemake
  wait "$snakemake" && status=0 || status=$?
done
if [ "$requeue" = yes ] && [ "$status" != 0 ]; then
  # A run that has made progress has left a checkpoint or a result, since snakemake wrote that it began.
  # The folder may be a link, as to a scratch file system.
  began=$(grep -Rl --include=call.json "\"pid\": $snakemake," "$results" || true)
  if [ -n "$began" ] && [ -n "$(find -L "${began%/calls/*}" -newer "$began" \( -name metrics.json -o -name latest.allcores -o -name dataset.json \))" ]; then
    scontrol requeue "$SLURM_JOB_ID"
  else
    echo "not queued again: no run made progress in this turn; request more than $SECONDS s and 2 minutes (--time)" >&2
  fi
fi
exit "$status"
