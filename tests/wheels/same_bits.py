"""Uses an installed headwater in an empty folder, and prints digests that every platform shares.

    python tests/wheels/same_bits.py

`tests/wheels/installed.py` runs it with each Python. It needs nothing beside headwater and NumPy,
and starts no process, so that it runs in an emulator of another processor, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

import numpy as np

import headwater
import headwater._headwater

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Prints one JSON object."""
    found = {"golden": golden()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found |= {"store": store(), "loop": loop(), "gram": gram()}
        os.chdir("/")
    print(json.dumps(found))


def golden() -> dict[str, str]:
    """Reads the golden cursors and stores of this version."""
    found = {}
    for path in sorted((ROOT / "checkpoints").glob("cursor-v1-*.cursor")):
        encoded = headwater.Cursor.read(str(path)).encode()
        assert encoded == path.read_bytes(), f"{path} is encoded otherwise than before"
        found[path.name] = hashlib.sha256(encoded).hexdigest()[:16]
    path = ROOT / "checkpoints/store-v4-small"
    command("verify", str(path))
    with headwater.Sampler(str(path), seed=1, default_batch_size=4) as sampler:
        found[path.name] = digest(sampler.next_train_batch() for _ in range(30))
    return found


def store() -> str:
    """Prepares the store of the demo shop in demo/store; returns the digest of its files."""
    command("demo-data", "shop")
    command("prepare", "shop", "--schema", "shop/schema.toml", "--out", "demo/store")
    files = (path for path in Path("demo/store").rglob("*") if path.is_file())
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(str(path).encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def loop() -> str:
    """Runs the loop of the README twice, which resumes; returns the digest of the batches."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (code,) = [block for block in blocks if "Sampler(" in block]
    batches = []

    def train_step(batch) -> None:
        batches.append({name: tensor.copy() for name, tensor in batch.items()})

    for _ in range(2):
        exec(code, {"train_step": train_step})
    step = headwater.Cursor.read("run.cursor").position["train/step"]
    assert step == len(batches) == 200, f"expected 200 steps, found {step} and {len(batches)}"
    return digest(batches)


def gram() -> dict[str, str]:
    """Folds a matrix of numbers whose sums are rounded; returns the digests of the results."""
    # Multiples of an odd number: NumPy's own random numbers may change with its version.
    numbers = np.arange(5000 * 24, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = ((numbers >> np.uint64(11)).astype(np.float64) / 2.0**53 - 0.3).reshape(5000, 24)
    short = {"chunk_rows": 1024, "sums": "f32x128"}
    return {
        "f64": str(headwater.reduce.gram(x, chunk_rows=1024).digest),
        "f32x128": str(headwater.reduce.gram(x.astype(np.float32), **short).digest),
        "moments": str(headwater.reduce.moments(x, chunk_rows=1024).digest),
    }


def digest(batches) -> str:
    """Returns the digest of all tensors of batches."""
    whole = hashlib.sha256()
    for batch in batches:
        for name, tensor in batch.items():
            whole.update(name.encode())
            whole.update(np.ascontiguousarray(tensor).tobytes())
    return whole.hexdigest()[:16]


def command(*arguments: str) -> None:
    """Runs the command `headwater` in this process, with its output on standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        status = headwater._headwater.main(["headwater", *arguments])
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert status == 0, f"headwater {' '.join(arguments)} ended with status {status}"


if __name__ == "__main__":
    main()
