"""Prepares stores of tables that a test makes."""

import csv

import headwater


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
