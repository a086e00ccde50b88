"""Preparations in parts from Python, with the SQL of tasks and labels as rows."""

import pytest

import headwater
from shop import LISTED, SCHEMA, SQL_TASK, asked, orders, shop, write_csv


def test_p1_parts_make_the_store_of_one_process(tmp_path):
    # The tasks read the source themselves: by SQL, and as rows of a table of labels.
    source = write_csv(tmp_path / "shop", shop() | {"asked": asked()})
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA + SQL_TASK + LISTED)
    whole = headwater.prepare(source, schema, tmp_path / "whole.db")
    stages = []
    for number in [3, 1, 2]:
        report = headwater.prepare_part(
            source,
            schema,
            tmp_path / "parts",
            number,
            3,
            progress=lambda stage, done, total: stages.append(stage),
        )
        assert report["part"] == f"{number}/3"
    assert "reading orders" in stages
    out = tmp_path / "merged.db"
    assert headwater.prepare(source, schema, out, merge=tmp_path / "parts") == whole
    headwater.Store(out).verify()
    with pytest.raises(headwater.InvalidArgument, match="is there already"):
        headwater.prepare(source, schema, out, merge=tmp_path / "parts")
    again = headwater.prepare(source, schema, out, merge=tmp_path / "parts", force=True)
    assert again == whole


def test_what_has_no_parts_is_refused(tmp_path):
    source = write_csv(tmp_path / "shop", shop())
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA)
    parts = tmp_path / "parts"
    frames = pytest.importorskip("pandas")
    tables = {name: frames.DataFrame(columns) for name, columns in shop().items()}
    with pytest.raises(headwater.InvalidArgument, match="export its tables to Parquet files first"):
        headwater.prepare_part(tables, schema, parts, 1, 2)
    with pytest.raises(headwater.InvalidArgument, match="number: expected 1 to 2, found 3"):
        headwater.prepare_part(source, schema, parts, 3, 2)
    headwater.prepare_part(source, schema, parts, 1, 2)
    with pytest.raises(headwater.DataError, match="expected 2 parts, found 1"):
        headwater.prepare(source, schema, tmp_path / "db", merge=parts)
    headwater.prepare_part(source, schema, parts, 2, 2)
    write_csv(source, {"orders": orders(19_999)})
    with pytest.raises(headwater.DataError, match="expected a part of the source as it is now"):
        headwater.prepare(source, schema, tmp_path / "db", merge=parts)
    assert not (tmp_path / "db").exists()
