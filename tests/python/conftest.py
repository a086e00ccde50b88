"""The shop of `shop.py`, as files and as a store."""

import pytest

import headwater
from shop import SCHEMA, shop, write_csv


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
