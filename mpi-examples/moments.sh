#!/usr/bin/env bash
# The moments of a Parquet table with NULL and NaN, on 1, 2 and 3 ranks: one digest, equal to NumPy.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python - "$folder/t.parquet" <<'PYTHON'
import sys
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

rows, draws = 100_003, np.random.default_rng(13)
price = draws.lognormal(3, 1, rows)
price[draws.random(rows) < 0.01] = np.nan
price[:2] = np.inf, -np.inf
discount = draws.normal(-0.1, 0.03, rows).astype(np.float32)
columns = {
    "order": pa.array([f"order {row}" for row in range(rows)]),
    "price": pa.array(price),
    "discount": pa.array(discount, mask=draws.random(rows) < 0.2),
    "quantity": pa.array(draws.integers(1, 51, rows, np.int32), mask=draws.random(rows) < 0.001),
}
pq.write_table(pa.table(columns), sys.argv[1], row_group_size=9_000)
PYTHON

# The last line decides, not the exit status of mpirun, which may be of something after the result.
digests=$(for ranks in 1 2 3; do
  { mpirun --oversubscribe -n "$ranks" headwater-reduce moments --input "$folder/t.parquet" \
    --select price discount quantity --out "$folder/m$ranks.json" --chunk-rows 1024 \
    --threads 1 2>/dev/null || true; } |
    python -c 'import json, sys; print(json.loads(sys.stdin.readlines()[-1])["digest"])'
done)
echo "$digests"
test "$(wc -l <<<"$digests")" = 3
test "$(sort -u <<<"$digests" | wc -l)" = 1

python - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq

folder = Path(sys.argv[1])
names = ["price", "discount", "quantity"]
table = pq.read_table(folder / "t.parquet", columns=names)
said = [json.loads((folder / f"m{ranks}.json").read_text())["result"] for ranks in (1, 2, 3)]
assert said[0] == said[1] == said[2]
for name, found in zip(names, said[0], strict=True):
    column = table[name]
    there = column.drop_null().to_numpy().astype(np.float64)
    finite = there[np.isfinite(there)]
    exact = {
        "nulls": column.null_count,
        "nans": np.isnan(there).sum(),
        "positive_infinities": np.isposinf(there).sum(),
        "negative_infinities": np.isneginf(there).sum(),
        "finite": len(finite),
        "max": there[~np.isnan(there)].max() if name != "price" else "Infinity",
    }
    for what, expected in exact.items():
        assert found[what] == expected, (name, what, found[what], expected)
    for what, expected in {"mean": finite.mean(), "std": finite.std()}.items():
        assert abs(found[what] - expected) <= 1e-9 * abs(expected), (name, what, found[what], expected)
    print(f"{name:8}  mean {found['mean']:8.4f}  std {found['std']:8.4f}  {exact['finite']} numbers")
assert said[0][0]["nans"] > 900
assert said[0][1]["nulls"] > 19_000
PYTHON
echo "moments: one digest on 1, 2 and 3 ranks, with the moments of NumPy"
