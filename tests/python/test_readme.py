"""What the README shows in Python runs as it stands."""

import re
from pathlib import Path

import numpy as np

import headwater
from test_reduce import done

README = Path(__file__).parents[2] / "README.md"


def block_with(word):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return found


def test_the_training_loop_runs_and_goes_on(store_path, tmp_path, monkeypatch):
    loop = block_with("save_cursor")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "store").symlink_to(store_path)
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(2):
        exec(loop, {"train_step": lambda batch: seen.append(batch["seed_row"].copy())})
    position = headwater.Cursor.read("run.cursor").position
    assert position["train/step"] == 200
    assert len(seen) == 200
    with headwater.Sampler(store_path, seed=1) as sampler:
        for rows in seen:
            assert (rows == sampler.next_train_batch()["seed_row"]).all()


def test_arrays_are_folded_to_the_digest_of_the_command(tmp_path, monkeypatch):
    rows = np.random.default_rng(4).standard_normal((20_000, 12)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", rows)
    seen = {}
    example = block_with("GramJob").replace("reduction.missing()", "missing = reduction.missing()")
    exec(example, seen)
    assert seen["missing"] == [(16_384, 20_000)]
    assert np.allclose(seen["gram"], rows.astype(float).T @ rows)
    said = done("gram", "--input", "X.npy", "--out", "gram.npy")
    assert seen["reduction"].digest == said["digest"]
