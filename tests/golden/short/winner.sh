#!/bin/sh
# Sweep short: Inconclusive. The best tree, budget 8, topk 4, window none, is 1.64 (1.19 to 2.25) x
# no speculation and 1.28 (0.93 to 1.76) x the plain chain, over 2 cells, measured again in 2 rounds
# beside the baselines. More rounds (search.final.rounds) would tell. It passes 16 of 20 problems
# (0.58 to 0.92), the same ones as no speculation.
# For a number of requests in flight, as in `sh winner.sh 8`, it launches what is best there:
#   1 and more: 8/4/none (at 1: 2.02 (1.41 to 2.91) x no speculation, tie with chain)
#   4 and more: 4/4/128 (at 4: 1.91 x no speculation, measured once)
# HOST, PORT and NAME may be set; the rest is what was measured.
set -eu
best() {
  exec python -m ddtree_tune.builtin \
    --algorithm tree \
    --budget 8 \
    --topk 4 \
    --window none \
    --max-running-requests 4 \
    --host "${HOST:-127.0.0.1}" \
    --port "${PORT:-30000}" \
    --served-model-name "${NAME:-default}"
}
from_4() {
  exec python -m ddtree_tune.builtin \
    --algorithm tree \
    --budget 4 \
    --topk 4 \
    --window 128 \
    --max-running-requests 4 \
    --host "${HOST:-127.0.0.1}" \
    --port "${PORT:-30000}" \
    --served-model-name "${NAME:-default}"
}
users=${1:-0}
case "$users" in *[!0-9]*) echo "winner.sh: must get a number, but got $users" >&2; exit 2 ;; esac
if [ "$users" -ge 4 ]; then from_4; fi
if [ "$users" -ge 1 ]; then best; fi
best
