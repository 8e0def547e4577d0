#!/usr/bin/env bash
# End the SLURM that up.sh started in $LAB: only processes that its pid files name.
set -uo pipefail
LAB=${LAB:?the folder for all state}
export SLURM_CONF=$LAB/etc/slurm.conf
end() { # pid file, name of the program
  local pid
  pid=$(cat "$1" 2>/dev/null) || return 0
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || return 0
  kill "$pid"
  for _ in $(seq 100); do
    if [ ! -d "/proc/$pid" ] || grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null
}
timeout 10 scancel -u "$(id -un)" 2>/dev/null
for _ in $(seq 50); do [ -z "$(timeout 5 squeue -h -t R,CG,PD -o %i 2>/dev/null)" ] && break; sleep 0.2; done
for file in "$LAB"/run/slurmd.*.pid; do end "$file" slurmd; done
end "$LAB/run/slurmctld.pid" slurmctld
end "$LAB/run/munged.pid" munged
"$(dirname "$0")/networks.sh" down
[ "$(readlink /etc/slurm/slurm.conf 2>/dev/null)" = "$LAB/etc/slurm.conf" ] && rm -f /etc/slurm/slurm.conf
exit 0
