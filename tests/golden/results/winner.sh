#!/bin/sh
# Sweep laptop: Run budget 10, topk 2, window 256: it is 1.26 (1.21 to 1.32) x no speculation and
# 1.26 (1.20 to 1.31) x the plain chain, over 6 cells, measured again in 3 rounds beside the
# baselines. It passes 20 of 25 problems (0.61 to 0.91), the same ones as no speculation.
# Speculation may not pay at: context 60, concurrency 8.
# For a number of requests in flight, as in `sh winner.sh 8`, it launches what is best there:
#   1 and more: 10/2/128 (at 1: 1.80 x no speculation, measured once)
#   4 and more: 10/2/256 (at 4: 1.23 (1.19 to 1.28) x no speculation, sure; at 8: 1.01 (0.90 to
#     1.14) x no speculation, tie with no speculation)
# HOST, PORT and NAME may be set; the rest is what was measured.
set -eu
best() {
  exec python -m ddtree_tune.builtin \
    --algorithm tree \
    --budget 10 \
    --topk 2 \
    --window 256 \
    --max-running-requests 8 \
    --host "${HOST:-127.0.0.1}" \
    --port "${PORT:-30000}" \
    --served-model-name "${NAME:-default}"
}
from_1() {
  exec python -m ddtree_tune.builtin \
    --algorithm tree \
    --budget 10 \
    --topk 2 \
    --window 128 \
    --max-running-requests 8 \
    --host "${HOST:-127.0.0.1}" \
    --port "${PORT:-30000}" \
    --served-model-name "${NAME:-default}"
}
users=${1:-0}
case "$users" in *[!0-9]*) echo "winner.sh: must get a number, but got $users" >&2; exit 2 ;; esac
if [ "$users" -ge 4 ]; then best; fi
if [ "$users" -ge 1 ]; then from_1; fi
best
