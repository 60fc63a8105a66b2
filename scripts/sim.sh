#!/bin/sh
# Builds the simulation, optimised, and runs it (Tests/Simulation/README.md).
#
#   scripts/sim.sh --seeds 500 [--first 1] [--threads 2]   prints every broken rule with its seed
#   scripts/sim.sh --seed 17                               runs one seed and prints its events
set -eu
cd "$(dirname "$0")/.."
mkdir -p .local
# Shows the output of the build only if it fails.
swift build -c release --product push-gateway-sim >.local/sim-build.log 2>&1 || {
  cat .local/sim-build.log >&2
  exit 1
}
exec "$(swift build -c release --show-bin-path)/push-gateway-sim" "$@"
