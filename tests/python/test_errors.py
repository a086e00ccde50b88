"""An exception class for each kind of error."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

import headwater
from shop import SCHEMA

CURSORS = Path(__file__).parents[2] / "checkpoints"


def copy_of(store_path, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(store_path, path)
    return path


def test_every_class_is_a_headwater_error():
    for name in headwater.__all__:
        value = getattr(headwater, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, headwater.HeadwaterError)
            assert value.__module__ == "headwater"
            assert value.__doc__
    assert issubclass(headwater.IoError, OSError)
    assert issubclass(headwater.InvalidArgument, ValueError)


def test_io_errors_have_an_errno(tmp_path):
    with pytest.raises(OSError, match="nowhere") as caught:
        headwater.Store(tmp_path / "nowhere")
    assert isinstance(caught.value, headwater.IoError)
    assert caught.value.errno == errno.ENOENT


def test_a_folder_that_is_not_a_store_raises_not_ours(tmp_path):
    with pytest.raises(headwater.NotOurs, match="not a store"):
        headwater.Store(tmp_path)


def test_another_format_version_is_refused(store_path, tmp_path):
    path = copy_of(store_path, tmp_path)
    text = (path / "metadata.json").read_text()
    text = text.replace('"format_version": 4', '"format_version": 99')
    (path / "metadata.json").write_text(text)
    with pytest.raises(headwater.VersionMismatch, match="version 99"):
        headwater.Store(path)


def test_verify_reports_a_flipped_bit_as_corrupt(store_path, tmp_path):
    path = copy_of(store_path, tmp_path)
    file = path / "tables" / "orders.bin"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(headwater.Corrupt, match="orders.bin"):
        headwater.Store(path).verify()


def test_too_many_categories_exceed_a_limit(tmp_path, shop_folder):
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA + "[limits]\ncategories = 2\n")
    with pytest.raises(headwater.LimitExceeded, match='table "customers": column "city": 3 categ'):
        headwater.prepare(shop_folder, schema, tmp_path / "db")


def test_an_existing_folder_is_an_invalid_argument(store_path, shop_folder, schema_file):
    with pytest.raises(ValueError, match="is there already"):
        headwater.prepare(shop_folder, schema_file, store_path)


def test_a_wrong_schema_is_a_schema_error(tmp_path, shop_folder):
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.replace("references", "refrences"))
    with pytest.raises(
        headwater.SchemaError, match='found ..table.refrences..; did you mean "references"'
    ):
        headwater.prepare(shop_folder, schema, tmp_path / "db")
    with pytest.raises(headwater.SchemaError, match="the schema's dictionary"):
        headwater.prepare(shop_folder, {"database": "x", "tabel": []}, tmp_path / "db")


def test_wrong_data_are_a_data_error(tmp_path):
    columns = {"k": "identifier", "x": "numerical"}
    schema = {"database": "x", "table": [{"name": "t", "key": "k", "columns": columns}]}
    table = pyarrow.table({"k": [1, 2], "x": ["3", "abc"]})
    with pytest.raises(headwater.DataError, match='column "x": .*found "abc" in row 2'):
        headwater.prepare({"t": table}, schema, tmp_path / "db")
    table = pyarrow.table({"k": [1, 1], "x": [3, 4]})
    with pytest.raises(headwater.DataError, match="repeat a key"):
        headwater.prepare({"t": table}, schema, tmp_path / "db")


def test_a_cursor_shows_its_plan_and_position():
    data = (CURSORS / "cursor-v1-typical.cursor").read_bytes()
    cursor = headwater.Cursor.read(CURSORS / "cursor-v1-typical.cursor")
    assert cursor == headwater.Cursor.decode(data)
    assert cursor.encode() == data
    assert cursor.kind == "sampler"
    assert len(cursor.fingerprint) == 64
    assert all(isinstance(count, int) for count in cursor.position.values())
    assert cursor.position
    assert cursor.settings


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flipped-bit", headwater.Corrupt),
        ("newer-version", headwater.VersionMismatch),
        ("other-file", headwater.NotOurs),
        ("cut-short", headwater.Corrupt),
    ],
)
def test_a_bad_cursor_is_refused(name, kind):
    with pytest.raises(kind):
        headwater.Cursor.read(CURSORS / "bad" / f"cursor-{name}.cursor")


@pytest.mark.parametrize(
    ("module", "library", "command"),
    [
        ("torch", "torch", "pip install torch"),
        ("jax", "jax", "pip install jax"),
        ("grain", "grain", "pip install grain"),
        ("orbax", "orbax", "pip install orbax-checkpoint"),
        ("maxtext", "grain", "pip install grain"),
    ],
)
def test_a_module_whose_library_is_missing_says_how_to_install_it(module, library, command):
    program = f"import sys; sys.modules[{library!r}] = None; import headwater.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(f"; install it: {command}"), done.stderr
