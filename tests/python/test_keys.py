"""The text of a key from Python is the text that `prepare` made of the same value in a column."""

import datetime
import decimal

import numpy as np
import polars
import pytest

import headwater
from headwater._headwater import key_text

VALUES = {
    "integer": (polars.Int64, [-5, 0, 2**60], [-5, 0, 2**60]),
    "float": (polars.Float64, [0.5, 2.0, 1e300], [0.5, 2.0, 1e300]),
    "float32": (polars.Float32, [0.1, 3.0], [np.float32(0.1), np.float32(3.0)]),
    "boolean": (polars.Boolean, [True, False], [True, np.bool_(False)]),
    "text": (polars.String, ["a|b", "1.0", "\\"], ["a|b", "1.0", "\\"]),
    "bytes": (polars.Binary, [b"\x01\xff"], [b"\x01\xff"]),
    "decimal": (
        polars.Decimal(12, 3),
        [decimal.Decimal("1.500"), decimal.Decimal("7.000")],
        [decimal.Decimal("1.5"), decimal.Decimal("7.0000")],
    ),
    "date": (polars.Date, [datetime.date(2023, 4, 1)], [datetime.date(2023, 4, 1)]),
    "datetime": (
        polars.Datetime("us"),
        [datetime.datetime(2023, 4, 1), datetime.datetime(2023, 4, 1, 9, 30, 0, 500_000)],
        [np.datetime64("2023-04-01"), datetime.datetime(2023, 4, 1, 9, 30, 0, 500_000)],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_key_from_python_finds_its_row(name, tmp_path):
    kind, stored, given = VALUES[name]
    rows = polars.DataFrame({"key": polars.Series(stored, dtype=kind), "n": range(len(stored))})
    schema = {
        "database": "keys",
        "table": [{"name": "t", "key": "key", "columns": {"key": "identifier", "n": "numerical"}}],
    }
    headwater.prepare({"t": rows}, schema, tmp_path / "db")
    store = headwater.Store(tmp_path / "db")
    for row, key in enumerate(given):
        assert store.row("t", key_text(key))["row"] == row, key


def test_a_composite_key_is_a_tuple_of_its_parts():
    assert key_text(("a|b", 2.0, True)) == "a\\|b|2|true"
    assert key_text((7,)) == "7"


@pytest.mark.parametrize("key", [None, [1], {}, ("a", None), object()])
def test_a_key_of_an_unsupported_type_is_refused(key):
    with pytest.raises(headwater.InvalidArgument, match="expected a key, or a tuple of its parts"):
        key_text(key)
