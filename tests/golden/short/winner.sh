#!/bin/sh
# Sweep short: Inconclusive. The best tree, budget 8, topk 4, window none, is 1.64 (1.19 to 2.25) x
# no speculation and 1.28 (0.93 to 1.76) x the plain chain, over 2 cells, measured again in 2 rounds
# beside the baselines. More rounds (search.final.rounds) would tell. It passes 16 of 20 problems
# (0.58 to 0.92), the same ones as no speculation.
# HOST, PORT and NAME may be set; the rest is what was measured.
set -eu
exec python -m ddtree_tune.builtin \
  --algorithm tree \
  --budget 8 \
  --topk 4 \
  --window none \
  --max-running-requests 4 \
  --host "${HOST:-127.0.0.1}" \
  --port "${PORT:-30000}" \
  --served-model-name "${NAME:-default}"
