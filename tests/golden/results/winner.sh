#!/bin/sh
# Sweep laptop: Run budget 8, topk 1, window 256: it is 1.26 (1.12 to 1.41) x no speculation and
# 1.15 (1.03 to 1.29) x the plain chain, over 6 cells, measured again in 2 rounds beside the
# baselines. It passes 20 of 25 problems (0.61 to 0.91), the same ones as no speculation.
# PORT and NAME may be set; the rest is what was measured.
set -eu
exec python -m ddtree_tune.builtin \
  --algorithm tree \
  --budget 8 \
  --topk 1 \
  --window 256 \
  --max-running-requests 8 \
  --host 127.0.0.1 \
  --port "${PORT:-30000}" \
  --served-model-name "${NAME:-default}"
