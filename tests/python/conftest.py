"""The shop of `shop.py`, as files and as a store."""

import tomllib

import pytest

import headwater
from shop import LISTED, SCHEMA, asked, shop, write_csv


@pytest.fixture(scope="session")
def shop_folder(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("shop"), shop())


@pytest.fixture(scope="session")
def schema_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    path.write_text(SCHEMA)
    return path


@pytest.fixture(scope="session")
def store_path(tmp_path_factory, shop_folder, schema_file):
    path = tmp_path_factory.mktemp("store") / "db"
    headwater.prepare(shop_folder, schema_file, path, dimension=32)
    return path


@pytest.fixture(scope="session")
def int8_store(tmp_path_factory, shop_folder, schema_file):
    """The same store with text vectors of 8-bit integers."""
    path = tmp_path_factory.mktemp("int8") / "db"
    headwater.prepare(shop_folder, schema_file, path, dimension=32, text_vectors="int8")
    return path


@pytest.fixture(scope="session")
def listed_store(tmp_path_factory):
    """The shop with a task whose labels are rows of a table, which has no key."""
    # The tests of PyTorch run in an environment without pyarrow.
    import pyarrow

    path = tmp_path_factory.mktemp("listed") / "db"
    tables = {name: pyarrow.table(of) for name, of in (shop() | {"asked": asked()}).items()}
    headwater.prepare(tables, tomllib.loads(SCHEMA + LISTED), path, dimension=32)
    return path
