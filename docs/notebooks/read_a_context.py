# %% [markdown]
# # Read a context
#
# A context is what a model sees of one seed: a few rows and their cells. This notebook makes the
# smallest database that shows all of it, and reads one context twice: as text, and as the arrays
# of a batch. It takes seconds.
#
# ## A database of five rows
#
# Ada has three orders. We ask on 1 March whether she comes back. One of her orders is of April:
# nobody knew it then.

# %%
from datetime import datetime

import pyarrow

import headwater

day = datetime.fromisoformat
tables = {
    "customers": pyarrow.table({"id": ["ada", "bob"], "city": ["Oslo", "Lima"]}),
    "orders": pyarrow.table(
        {
            "id": [1, 2, 3],
            "customer": ["ada", "ada", "ada"],
            "placed_at": [day("2024-01-05"), day("2024-02-20"), day("2024-04-09")],
            "price": [10.0, None, 40.0],
        }
    ),
    "returns": pyarrow.table(
        {"customer": ["ada"], "at": [day("2024-03-01")], "returns": [True], "split": ["train"]}
    ),
}
schema = {
    "database": "tiny",
    "table": [
        {"name": "customers", "key": "id", "columns": {"id": "ignored", "city": "categorical"}},
        {
            "name": "orders",
            "key": "id",
            "time": {"column": "placed_at"},
            "references": [{"columns": "customer", "to": "customers"}],
            "columns": {
                "id": "ignored",
                "customer": "ignored",
                "placed_at": "timestamp",
                "price": "numerical",
            },
        },
    ],
    "task": [
        {
            "name": "returns",
            "derived": {
                "anchor": "customers",
                "source": "returns",
                "key": "customer",
                "time": "at",
                "target": "returns",
                "type": "boolean",
                "split": "split",
            },
        }
    ],
}
report = headwater.prepare(tables, schema, "tiny.db")
print(report["row_count"], "rows,", report["link_count"], "links")

# %% [markdown]
# ```text
# 5 rows, 3 links
# ```
#
# Five rows of two tables; each order is linked to its customer. The question is no row of them: it
# is a seed of the task.
#
# ## As text
#
# `draw` shows the context of one seed with the settings of the sampler.

# %%
sampler = headwater.Sampler(
    "tiny.db", seed=1, default_batch_size=1, default_sequence_length=8, max_rows=4
)
page = sampler.draw("returns", 0)
print(page.text)

# %% [markdown]
# ```text
# task tiny/returns, seed_index 0: observed at 2024-03-01 00:00:00
# target returns = true
# 3 rows and 6 cells in the context; 1 row came to exist later
#
# customers ada  [hop 0]  (later: 1 orders.customer)
# │    city = "Oslo", returns = NULL (the target)
# ├─ ← customer of orders 1  2024-01-05 00:00:00, 56 days before  [hop 1]
# │       placed_at = 2024-01-05 00:00:00, price = 10
# └─ ← customer of orders 2  2024-02-20 00:00:00, 10 days before  [hop 1]
#         placed_at = 2024-02-20 00:00:00, price = NULL
# ```
#
# Read it from the top:
#
# - The first two lines are the question and its answer. The answer is the label: it is shown to
#   you, and the model gets it as the label alone. So the cell `returns` of the row is NULL, "the
#   target".
# - The seed's row stands first, at hop 0. Each `←` is a link that the walk took: an order that
#   points to Ada.
# - "later: 1" is the order of April. The walk did not take it, since it came to exist after the
#   observation time.
# - Bob is not there: no link leads from Ada to him.
#
# `page.save("context.html")` writes the same as a page for a browser, with the attention masks.

# %%
page.save("context.html")

# %% [markdown]
# ## As arrays
#
# A batch has the cells of each sequence one after another, here of one sequence of at most 8
# cells. What is left is padding. `semantic_types` says how to read a cell: 1 is a number, 2 a
# time, 3 a boolean, 4 a category.

# %%
batch = sampler.next_train_batch()
cells = batch["is_padding"][0] == 0
print("cells:         ", cells.sum())
print("semantic_types:", batch["semantic_types"][0, cells])
print("row of a cell: ", batch["seq_row_ids"][0, cells])
print("is_null:       ", batch["is_null"][0, cells])
print("is_target:     ", batch["is_target"][0, cells])

# %% [markdown]
# ```text
# cells:          6
# semantic_types: [4 3 2 1 2 1]
# row of a cell:  [0 0 1 1 2 2]
# is_null:        [0 0 0 0 0 1]
# is_target:      [0 1 0 0 0 0]
# ```
#
# The cells of row 0 are those of Ada; the second is the target. The NULL is the price that the
# data do not have. The target is not NULL here, since its value is the label. A model must not
# read it: `is_target` says where.
#
# A number is a z-score: its distance from the mean of the column, in standard deviations. The
# label lies at the target's place in the array of its type.

# %%
place = batch["target_pos"][0]
print("label:", batch["bool_values"][0, place])

# %% [markdown]
# ```text
# label: 1
# ```
#
# ## The rows, and the promise
#
# Rows have times and hops of their own. No row is later than the observation time: this is promise
# P7, and here it can be seen.

# %%
count = batch["num_rows"][0]
print("hops:", batch["row_hop"][0, :count])
times = batch["row_time"][0, :count]
known = times[times > -(2**63)]
print("no row is later:", (known <= batch["obs_time"][0]).all())
sampler.shutdown()

# %% [markdown]
# ```text
# hops: [0 1 1]
# no row is later: True
# ```
#
# All arrays of a batch are described in the [format of batches](../../src/sampler/FORMAT.md).
