"""The README's training loop runs as it stands."""

import re
from pathlib import Path

import headwater

README = Path(__file__).parents[2] / "README.md"


def test_the_training_loop_runs_and_goes_on(store_path, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (loop,) = [block for block in blocks if "save_cursor" in block]
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
