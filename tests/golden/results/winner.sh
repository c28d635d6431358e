#!/bin/sh
# Sweep laptop: Run budget 10, topk 2, window 256: it is 1.26 (1.21 to 1.32) x no speculation and
# 1.26 (1.20 to 1.31) x the plain chain, over 6 cells, measured again in 3 rounds beside the
# baselines. It passes 20 of 25 problems (0.61 to 0.91), the same ones as no speculation.
# Speculation may not pay at: context 60, concurrency 8.
# HOST, PORT and NAME may be set; the rest is what was measured.
set -eu
exec python -m ddtree_tune.builtin \
  --algorithm tree \
  --budget 10 \
  --topk 2 \
  --window 256 \
  --max-running-requests 8 \
  --host "${HOST:-127.0.0.1}" \
  --port "${PORT:-30000}" \
  --served-model-name "${NAME:-default}"
