#!/usr/bin/env bash
# A network for each node of the SLURM that up.sh brings up: networks.sh up NODES; networks.sh down.
# Needs the right to make network namespaces. NUMBER tells apart several SLURMs at a time.
set -euo pipefail
NUMBER=${NUMBER:-0}
BRIDGE=allcores$NUMBER NETWORK=10.77.$NUMBER

case $1 in
  up)
    ip link add "$BRIDGE" type bridge
    ip addr add "$NETWORK.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    for i in $(seq "$2"); do
      ip netns add "$BRIDGE-n$i"
      ip link add "$BRIDGE-v$i" type veth peer name eth0 netns "$BRIDGE-n$i"
      ip link set "$BRIDGE-v$i" master "$BRIDGE" up
      ip -n "$BRIDGE-n$i" addr add "$NETWORK.$((10 + i))/24" dev eth0
      ip -n "$BRIDGE-n$i" link set lo up
      ip -n "$BRIDGE-n$i" link set eth0 up
    done
    ;;
  down)
    for network in $(ip netns list 2>/dev/null | grep -o "^$BRIDGE-n[0-9]*"); do ip netns del "$network" || true; done
    ip link del "$BRIDGE" 2>/dev/null || true
    ;;
esac
