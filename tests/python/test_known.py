"""Columns known later than their rows, and columns that a task hides: the database of the docs."""

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

import headwater

DOCS = Path(__file__).parents[2] / "docs" / "schema.md"
SECTION = "## Values that are known later"
# The third match is never finished.
MATCHES = """id,kickoff,finished,home,away,score,crowd,goals,winner
1,2024-01-01 15:00:00,2024-01-01 17:00:00,A,B,2,100,3,A
2,2024-01-02 15:00:00,2024-01-02 19:00:00,B,A,1,300,1,B
3,2024-01-03 15:00:00,,A,B,5,200,6,A
"""
REST = """
[[table]]
name = "teams"
key = "id"
columns = { id = "identifier" }

[[task]]
name = "score"
cell = { table = "matches", column = "score", hide = "crowd" }
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    section = DOCS.read_text().split(SECTION)[1].split("\n## ")[0]
    matches, results, _ = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    (folder / "schema.toml").write_text(f'database = "league"\n{matches}{results}{REST}')
    source = folder / "league"
    source.mkdir()
    (source / "teams.csv").write_text("id\nA\nB\n")
    (source / "matches.csv").write_text(MATCHES)
    headwater.prepare(source, folder / "schema.toml", folder / "league.db")
    return folder / "league.db"


def seen(path, match, time, column, table="matches"):
    """Returns how many rows of a context have the column, and how many of them its value."""
    metadata = headwater.Store(path).metadata()
    columns = next(found["columns"] for found in metadata["tables"] if found["name"] == table)
    index = next(found["index"] for found in columns if found["name"] == column)
    time = int(datetime.fromisoformat(f"2024-01-{time}+00:00").timestamp() * 1e6)
    with headwater.Sampler(path, default_batch_size=1, max_rows=64) as sampler:
        batch = sampler.sample("score", [match], [time])
    is_cell = (batch["column_ids"][0] == index) & (batch["is_padding"][0] == 0)
    return int(is_cell.sum()), int((is_cell & (batch["is_null"][0] == 0)).sum())


def test_p7_a_column_is_null_until_it_is_known(path):
    # At its kick-off a match sees the one before: its row, its score and its crowd.
    assert seen(path, "2", "02 15:00:00", "crowd") == (2, 1)
    # A match that has not begun has a row without values.
    assert seen(path, "3", "01 17:00:00", "kickoff") == (1, 0)
    # A score is known at the end of its match, a crowd three hours after the kick-off.
    assert seen(path, "1", "02 18:59:59", "crowd") == (2, 1)
    assert seen(path, "1", "02 17:59:59", "crowd") == (2, 0)
    assert seen(path, "1", "02 18:00:00", "crowd") == (2, 1)
    assert seen(path, "2", "03 15:00:00", "score")[0] == 3


def test_p7_a_task_hides_columns_of_the_seed_row_alone(path):
    # Of three matches, the seed's own crowd is hidden, and those of the others are known.
    assert seen(path, "1", "09 00:00:00", "crowd") == (3, 2)


def test_a_second_table_of_one_source_holds_what_is_known_later(path):
    goals = [seen(path, "1", time, "goals", "results") for time in ("01 16:59:59", "01 17:00:00")]
    # The result of the unfinished match has no time, so that it is always visible, as the docs say.
    assert [values for _, values in goals] == [1, 2]


def test_inspect_tells_when_columns_are_known(path):
    command = Path(sys.executable).parent / "headwater"
    text = subprocess.run(
        [command, "inspect", path, "--table", "matches"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"score .* known at finished", text), text
    assert re.search(r"crowd .* known 3 hours after its row", text), text
