# %% [markdown]
# # From CSV files to a trained model
#
# A shop asks which customers leave. We write its tables, tell headwater what the columns are, and
# train a small model. Run the cells in order, in an empty folder.
#
# ## The tables
#
# 300 customers place orders, some of which come late. After a late order most customers leave.
# `leaves` is the table of questions: for one customer and one time, whether the customer left
# after it, and whether the row is for training, for choosing the best step (val), or for the score
# at the end (test).

# %%
import csv
import random
from datetime import datetime, timedelta
from pathlib import Path

chance = random.Random(7).random
orders, leaves = [], []
for customer in range(1, 301):
    time = datetime(2023, 1, 1) + timedelta(days=int(60 * chance()))
    while time < datetime(2024, 1, 1):
        late = chance() < 0.4
        orders.append([len(orders) + 1, customer, time, f"{5 + 95 * chance():.2f}", late])
        left = chance() < (0.85 if late else 0.1)
        asked = time + timedelta(days=1)
        split = "train" if asked.month < 9 else "val" if asked.month < 11 else "test"
        leaves.append([customer, asked, left, split])
        time += timedelta(days=30 + int(60 * chance()))
customers = [[number, ["Oslo", "Lima", "Kyoto"][number % 3]] for number in range(1, 301)]

Path("shop").mkdir()
for name, header, rows in [
    ("customers", ["id", "city"], customers),
    ("orders", ["id", "customer_id", "placed_at", "price", "late"], orders),
    ("leaves", ["customer_id", "at", "leaves", "split"], leaves),
]:
    with open(f"shop/{name}.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
print(f"{len(orders)} orders, {len(leaves)} questions")

# %% [markdown]
# ```text
# 1872 orders, 1872 questions
# ```
#
# ## The schema
#
# A schema says which columns are keys, references, times and values.
# `headwater.draft_schema("shop")` drafts one from the files; here is what a person makes of it. A
# key that is `ignored` links rows, and the model does not see its value. `time` is from when a row
# may be seen: this line is what keeps the future out.

# %%
schema = """
database = "shop"

[[table]]
name = "customers"
key = "id"
columns = { id = "ignored", city = "categorical" }

[[table]]
name = "orders"
key = "id"
time = { column = "placed_at" }
references = [{ columns = "customer_id", to = "customers" }]

[table.columns]
id = "ignored"
customer_id = "ignored"
placed_at = "timestamp"
price = "numerical"
late = "boolean"

[[task]]
name = "leaves"

[task.derived]
anchor = "customers"
source = "leaves"
key = "customer_id"
time = "at"
target = "leaves"
type = "boolean"
split = "split"
"""
Path("schema.toml").write_text(schema)

# %% [markdown]
# ## The store
#
# `prepare` reads each table once and writes a folder, the store. Its root is the identity of the
# data: the same rows and the same schema have the same root on every machine.

# %%
import headwater

report = headwater.prepare("shop", "schema.toml", "shop.db")
print(report["row_count"], "rows,", report["link_count"], "links, root", report["root"][:16])

# %% [markdown]
# ```text
# 2172 rows, 1872 links, root ...
# ```
#
# The task knows its seeds (the rows of `leaves`), how they are split, and its labels. Look at both
# before you train: a split without seeds, or labels that are all equal, would make every metric
# worthless.

# %%
store = headwater.Store("shop.db")
task = store.task("leaves")
print(task.splits)
print(task.labels)

# %% [markdown]
# ```text
# {'train': 1252, 'val': 304, 'test': 316}
# {'false': 1099, 'true': 773, 'NULL': 0}
# ```
#
# ## What the model sees
#
# A context is what is known about one seed at its observation time.

# %%
with headwater.Sampler(store) as sampler:
    print(sampler.draw("leaves", 0).text)

# %% [markdown]
# ```text
# task shop/leaves, seed_index 0: observed at 2023-01-21 00:00:00
# target leaves = true
# 2 rows and 5 cells in the context; 6 rows came to exist later
#
# customers 1  [hop 0]  (later: 6 orders.customer_id)
# │    city = "Lima", leaves = NULL (the target)
# └─ ← customer_id of orders 1  2023-01-20 00:00:00, 1 day before  [hop 1]
#         placed_at = 2023-01-20 00:00:00, price = 66.84, late = true
# ```
#
# Rows that came to exist later are counted in the third line, and are not in the context: that is
# the promise which makes a score worth something. [Read a context](read_a_context.py) explains
# each line.
#
# ## Training
#
# `confluence.init(store, "leaves", minutes=3)` would choose the settings by measuring. To be done
# in seconds, we choose a tiny model ourselves: 80 steps of 32 seeds each. The first time JAX
# compiles it, which takes a minute more; what it compiles is kept for the next time.

# %%
import confluence

settings = confluence.load(
    None,
    [
        "data.stores=shop.db", "data.tasks=['leaves']", "data.batch_size=32",
        "data.sequence_length=24", "data.max_rows=8", "data.child_width=4", "data.children=latest",
        "model.width=32", "model.heads=2", "model.layers=1", "model.hidden=64",
        "model.rematerialise=false", "model.epochs=false",
        "optimizer.steps=80", "optimizer.warmup_steps=10", "optimizer.adam_rate=4e-3",
        "run.evaluate_every=40", "run.checkpoint_every=40", "run.boosting=false",
    ],
)  # fmt: skip
run = confluence.train(settings, "runs/1")

# %% [markdown]
# ## Is it any good?
#
# AUROC is the chance that the model ranks a customer who leaves above one who stays: 0.5 is a
# guess. Beside the model stand baselines that need no model; a model that does not beat them has
# learned nothing.

# %%
for row in run.metrics:
    if row["split"] == "test" and row["metric"] == "auroc":
        print(f"{row['model']:18} {row['value']:.2f}")

# %% [markdown]
# ```text
# confluence         0...
# mean               0.50
# mean of the entity 0.51
# ```
#
# The customers leave after a late order, so 0.85 against 0.1 is all there is to know, and no model
# can reach 1.
#
# ## Predictions
#
# A question is a key and a time. The answer is a probability, from what was known at that time.

# %%
answers = confluence.predict(run, "leaves", [("17", "2023-12-01"), ("18", "2023-12-01")])
for answer in answers:
    print(f"{float(answer.value):.2f}")

# %% [markdown]
# ```text
# 0...
# 0...
# ```
#
# The run is a folder: `runs/1/report.html` shows its curves, and `confluence.open("runs/1")` opens
# it later.
