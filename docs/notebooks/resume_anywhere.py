# %% [markdown]
# # Resume anywhere
#
# A run of headwater is a sequence of batches that a plan fixes. A cursor is a place in this
# sequence. This notebook kills a reader with `kill -9`, goes on from its cursor, with one process
# and with two, and compares every row. It takes seconds.
#
# ## A store
#
# 200 customers and a question for each: enough rows for an order that is worth keeping.

# %%
import random
from datetime import datetime, timedelta

import pyarrow

import headwater

chance = random.Random(3).random
count = 200
asked = [datetime(2024, 1, 1) + timedelta(days=number % 90) for number in range(count)]
tables = {
    "customers": pyarrow.table(
        {"id": range(count), "age": [20 + 60 * chance() for _ in range(count)]}
    ),
    "stays": pyarrow.table(
        {"customer": range(count), "at": asked, "stays": [chance() < 0.5 for _ in range(count)]}
    ),
}
schema = {
    "database": "shop",
    "table": [{"name": "customers", "key": "id", "columns": {"id": "ignored", "age": "numerical"}}],
    "task": [
        {
            "name": "stays",
            "derived": {
                "anchor": "customers",
                "source": "stays",
                "key": "customer",
                "time": "at",
                "target": "stays",
                "type": "boolean",
            },
        }
    ],
}
headwater.prepare(tables, schema, "shop.db")
SETTINGS = {"seed": 1, "default_sequence_length": 8, "max_rows": 4}

# %% [markdown]
# ## The whole run
#
# Twelve steps of four seeds, by one process that nobody disturbs. `seed_row` says which question a
# row of the batch asks.

# %%
with headwater.Sampler("shop.db", default_batch_size=4, **SETTINGS) as sampler:
    whole = [sampler.next_train_batch()["seed_row"].tolist() for _ in range(12)]
print("step 0:", whole[0])
print("step 5:", whole[5])

# %% [markdown]
# ```text
# step 0: [199, 146, 37, 114]
# step 5: [148, 34, 54, 50]
# ```
#
# ## A reader that is killed
#
# This program reads the same plan, saves its cursor after each step, and never ends by itself. A
# cursor is written whole or not at all, so a kill at any moment leaves a good one.

# %%
import subprocess
import sys
import time
from pathlib import Path

Path("reader.py").write_text("""
import time
import headwater

settings = dict(seed=1, default_batch_size=4, default_sequence_length=8, max_rows=4)
with headwater.Sampler("shop.db", **settings) as sampler:
    for step, batch in enumerate(sampler):
        sampler.save_cursor("run.cursor")
        print(step, flush=True)
        time.sleep(0.02)
""")
with subprocess.Popen([sys.executable, "reader.py"], stdout=subprocess.PIPE, text=True) as reader:
    for line in reader.stdout:
        if line.strip() == "4":
            reader.kill()  # kill -9: the reader cannot save anything more
            break
cursor = headwater.Cursor.read("run.cursor")
done = cursor.position["train/step"]
print("the cursor is after at least 5 steps:", done >= 5)
print("it has fewer than 2,000 bytes:", len(cursor.encode()) < 2000)

# %% [markdown]
# ```text
# the cursor is after at least 5 steps: True
# it has fewer than 2,000 bytes: True
# ```
#
# ## On with one process
#
# `resume` takes the place from the cursor. What follows is what would have followed: this is
# promise P2.

# %%
with headwater.Sampler("shop.db", default_batch_size=4, **SETTINGS) as sampler:
    sampler.resume("run.cursor")
    rest = [sampler.next_train_batch()["seed_row"].tolist() for _ in range(done, 12)]
print("the rest is the rest of the whole run:", rest == whole[done:])

# %% [markdown]
# ```text
# the rest is the rest of the whole run: True
# ```
#
# ## On with two processes
#
# Two ranks with two rows each are the same four seeds a step: row `b` of rank `r` is row `2 b + r`
# of the whole batch. Here both ranks live in one process, so that we can look at both. This is
# promise P4.

# %%
ranks = [
    headwater.Sampler("shop.db", rank=rank, world_size=2, default_batch_size=2, **SETTINGS)
    for rank in range(2)
]
for sampler in ranks:
    sampler.resume("run.cursor")
together = []
for _ in range(done, 12):
    even, odd = (sampler.next_train_batch()["seed_row"].tolist() for sampler in ranks)
    together.append([even[0], odd[0], even[1], odd[1]])
for sampler in ranks:
    sampler.shutdown()
print("two ranks make the same steps:", together == whole[done:])

# %% [markdown]
# ```text
# two ranks make the same steps: True
# ```
#
# ## Another plan is refused
#
# A cursor of another plan would be a silent change of the data. It is refused, with each setting
# that differs: this is promise P6.

# %%
with headwater.Sampler("shop.db", default_batch_size=4, **SETTINGS | {"seed": 2}) as sampler:
    try:
        sampler.resume("run.cursor")
    except headwater.PlanMismatch as error:
        print(error)

# %% [markdown]
# ```text
# the cursor does not belong to this plan: 1 setting differs: "seed" was 1 and is now 2; ...
# ```
#
# A place that no cursor has is as cheap: `seek` computes it, whatever lies before.

# %%
with headwater.Sampler("shop.db", default_batch_size=4, **SETTINGS) as sampler:
    start = time.perf_counter()
    sampler.seek("train", 10**12)
    far = sampler.next_train_batch()
    print("a batch after 10^12 steps, in under a second:", time.perf_counter() - start < 1)

# %% [markdown]
# ```text
# a batch after 10^12 steps, in under a second: True
# ```
#
# [Determinism](../determinism.md) computes such places by hand.
