"""The n-th call of the package fails, for each n: no panic, no wrong bytes, and good files stay."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from shop import SCHEMA, customers, orders, write_csv
from test_sql import SQL_TASK

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FEW = "4"


def test_any_call_of_the_package_may_fail(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("faults are injected on Linux alone")
    library, state = tmp_path / "inject.so", tmp_path / "state"
    options = ["-shared", "-fPIC", "-O1", "-o"]
    command = ["cc", *options, library, ROOT / "tests/faults/inject.c"]
    subprocess.run(command, check=True)
    state.write_bytes(bytes(512))
    base, room = tmp_path / "base", tmp_path / "room"
    for folder in (base, room):
        folder.mkdir()
    for name, golden in [("store", "store-v4-small"), ("events", "events-v1-small")]:
        shutil.copytree(ROOT / "checkpoints" / golden, base / name)
    (base / "schema.toml").write_text(SCHEMA)
    (base / "sql.toml").write_text(SCHEMA + SQL_TASK)
    (base / "data").mkdir()
    write_csv(base / "data", {"customers": customers(), "orders": orders(50)})
    count = os.environ.get("HEADWATER_FAULTS", FEW).replace("all", str(10**9))
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "FAULTS_STATE": str(state),
        "FAULTS_FOLDER": str(room / "here"),
        "PYTHONPATH": str(Path(headwater.__file__).parents[1]),
    }
    program = [sys.executable, Path(__file__).with_name("faults.py"), base, room, count]
    run = subprocess.run(program, env=environment, capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
