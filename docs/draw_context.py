"""Draws docs/context.svg: one context of the demo shop, from the store that `make demo` makes.

    python docs/draw_context.py demo/churn docs/context.svg

Every value, time and arrow is read from the store. The script stops if the sampler's context of the
same seed has another number of rows or references.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

import headwater

RowView = dict[str, Any]

CUSTOMER, OBSERVED = 5, np.datetime64("2022-02-19T00:00:00")
# The settings of examples/demo-shop/train.toml, with some reviews of each product and no labels.
SETTINGS = {
    "default_batch_size": 1,
    "default_sequence_length": 80,
    "max_rows": 44,
    "bfs_child_width": 4,
    "child_widths": {
        "orders.customer_id": 1,
        "reviews.product_id": 2,
        "order_items.product_id": 0,
        "churn labels.customer_id": 0,
    },
    "children": "latest",
}
Key = tuple[str, str]
WIDTH, HEIGHT, BOX, TALL = 900, 330, 148, 52
LEFT = [16, 196, 376, 556, 736]
# The place of each row: its table, its key, its column (the hop) and the middle of its box.
PLACES = [
    ("customers", "5", 0, 140),
    ("orders", "73", 1, 140),
    ("deliveries", "73", 2, 90),
    ("order_items", "73|1", 2, 165),
    ("order_items", "73|2", 2, 240),
    ("products", "17", 3, 165),
    ("products", "159", 3, 240),
    ("reviews", "3376", 4, 90),
    ("reviews", "7930", 4, 149),
    ("reviews", "1924", 4, 208),
    ("reviews", "7959", 4, 267),
]
HIDDEN = ("orders", "74", 1, 240)
STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #1f2328 }
.name { font-weight: bold }
.small { font-size: 11px; fill: #57606a }
.box { fill: #eef4fb; stroke: #4a7ab0 }
.seed { fill: #fff3d6; stroke: #b7791f; stroke-width: 2.5 }
.hidden { fill: #ececec; stroke: #9a9a9a; stroke-dasharray: 5 4 }
.hidden-text { fill: #6e6e6e }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.3 }
.hidden-arrow { stroke-dasharray: 5 4; stroke: #9a9a9a }
"""
HEAD = """\
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker></defs>"""


def cell_text(cells: dict[str, object]) -> str:
    """Returns the cells that are not times, as text."""
    times = (np.datetime64, type(None))
    shown = [f"{name} {value}" for name, value in cells.items() if not isinstance(value, times)]
    return ", ".join(shown).replace("True", "true").replace("False", "false").replace(".0", "")


def main(store_path: str, out: str) -> None:
    """Writes the picture as SVG."""
    store = headwater.Store(store_path)
    rows = {(table, key): store.row(table, key) for table, key, _, _ in [*PLACES, HIDDEN]}
    at = {(table, key): (LEFT[hop], middle) for table, key, hop, middle in [*PLACES, HIDDEN]}
    hidden = HIDDEN[:2]
    parents = parent_tables(store)
    arrows = [
        (child, parent)
        for child, view in rows.items()
        for name, row in view["parents"].items()
        for parent, other in rows.items()
        if (parent[0], other["row"]) == (parents[name], row)
    ]
    check(store_path, rows, arrows, hidden)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>One context of the demo shop: rows as boxes, references as arrows</title>",
        f"<style>{STYLE}</style>",
        HEAD,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff" stroke="#d0d7de"/>',
        text(16, 26, f"Task churn: does customer {CUSTOMER} stay away?", "name"),
        text(
            16, 44, f"Observation time: {day(OBSERVED)}. No later row is in the context.", "small"
        ),
    ]
    parts += [arrow(at[child], at[parent], child == hidden) for child, parent in arrows]
    for key in rows:
        kind = "seed" if key == PLACES[0][:2] else "hidden" if key == hidden else "box"
        parts += box(*at[key], key, rows[key], kind)
    legend = "Boxes are rows, arrows are references from child to parent. Grey: hidden by its time."
    parts.append(text(16, HEIGHT - 14, legend, "small"))
    Path(out).write_text("\n".join([*parts, "</svg>"]) + "\n")


def parent_tables(store: headwater.Store) -> dict[str, str]:
    """Returns the table that each relation refers to."""
    metadata = store.metadata()
    tables = [table["name"] for table in metadata["tables"]]
    return {
        f"{tables[relation['child']]}.{relation['name']}": tables[relation["parent"]]
        for relation in metadata["relations"]
    }


def check(
    store_path: str,
    rows: dict[Key, RowView],
    arrows: list[tuple[Key, Key]],
    hidden: Key,
) -> None:
    """Compares the picture with the context that the sampler makes."""
    for key, view in rows.items():
        is_visible = view["time"] is None or view["time"] <= OBSERVED
        assert is_visible == (key != hidden), f"{key}: {view['time']}"
    with headwater.Sampler(store_path, tasks=["churn"], **SETTINGS) as sampler:
        batch = sampler.sample("churn", [CUSTOMER], [OBSERVED])
    drawn = [arrow for arrow in arrows if hidden not in arrow]
    assert int(batch["num_rows"][0]) == len(rows) - 1, batch["num_rows"]
    assert int(batch["fk_adj"].sum()) == len(drawn), batch["fk_adj"].sum()


def day(time: np.datetime64) -> str:
    """Returns a time to the minute, as text."""
    return str(time.astype("datetime64[m]")).replace("T", " ")


def text(x: int, y: int, words: str, kind: str) -> str:
    """Returns one line of text as SVG."""
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def box(x: int, middle: int, key: Key, view: RowView, kind: str) -> list[str]:
    """Returns a row as SVG: its name, its time, its cells."""
    y = middle - TALL // 2
    time = "always visible" if view["time"] is None else day(view["time"])
    grey = " hidden-text" if kind == "hidden" else ""
    last = {"seed": "the seed", "hidden": "hidden: came later"}.get(kind)
    shape = f'<rect x="{x}" y="{y}" width="{BOX}" height="{TALL}" rx="6" class="{kind}"/>'
    return [
        shape,
        text(x + 8, y + 16, " ".join(key), f"name{grey}"),
        text(x + 8, y + 31, time, f"small{grey}"),
        text(x + 8, y + 45, last or cell_text(view["cells"]), f"small{grey}"),
    ]


def arrow(child: tuple[int, int], parent: tuple[int, int], is_hidden: bool) -> str:
    """Returns a reference as SVG, from the edge of the child's box to the edge of the parent's."""
    to_left = parent[0] < child[0]
    x1, x2 = (child[0], parent[0] + BOX) if to_left else (child[0] + BOX, parent[0])
    bend = (x1 + x2) // 2
    kind = "arrow hidden-arrow" if is_hidden else "arrow"
    path = f"M{x1} {child[1]} C{bend} {child[1]} {bend} {parent[1]} {x2} {parent[1]}"
    return f'<path d="{path}" class="{kind}" marker-end="url(#head)"/>'


if __name__ == "__main__":
    main(*sys.argv[1:])
