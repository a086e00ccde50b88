#!/usr/bin/env bash
# The Gram matrix of one file on 1, 2, 3 and 4 ranks: one digest.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python - "$folder/x.npy" <<'PYTHON'
import sys
import numpy as np
np.save(sys.argv[1], np.random.default_rng(7).standard_normal((50_003, 48), np.float32))
PYTHON

# The last line decides, not the exit status of mpirun, which may be of something after the result.
digests=$(for ranks in 1 2 3 4; do
  { mpirun --oversubscribe -n "$ranks" headwater-reduce gram --input "$folder/x.npy" \
    --out "$folder/g.npy" --chunk-rows 256 --threads 1 2>/dev/null || true; } |
    python -c 'import json, sys; print(json.loads(sys.stdin.readlines()[-1])["digest"])'
done)
echo "$digests"
test "$(wc -l <<<"$digests")" = 4
test "$(sort -u <<<"$digests" | wc -l)" = 1
echo "ranks: one digest on 1, 2, 3 and 4 ranks"
