"""Prepares stores of tables that a test makes, and takes the place of one."""

import csv

import numpy as np

import headwater

# The time of a row that is never visible.
NEVER = "NaT"


class FewRows:
    """A store of members with these keys and times, whose task is "club/pays"."""

    def __init__(self, *members):
        self.members = members

    def metadata(self):
        task = {"name": "pays", "anchor": 1}
        tables = [{}, {"name": "members", "key": ["id"], "row_count": len(self.members)}]
        return {"tasks": [{"name": "else", "anchor": 0}, task], "tables": tables}

    def row(self, table, key=None, *, index=None):
        assert table == "members"
        keys = [of for of, _ in self.members]
        if key is not None and key not in keys:
            raise headwater.InvalidArgument(key)
        at = index if key is None else keys.index(key)
        key, time = self.members[at]
        return {"row": at, "key": key, "time": time and np.datetime64(time, "us")}

    def category(self, number):
        return f"category {number}"


def prepare_tables(folder, schema, tables, dimension):
    """Returns the store of tables, each a header and rows, which become CSV files."""
    for name, (header, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([str(cell).lower() for cell in row] for row in rows)
    (folder / "schema.toml").write_text(schema)
    headwater.prepare(folder, folder / "schema.toml", folder / "store", dimension=dimension)
    return folder / "store"
