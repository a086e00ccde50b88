"""The audit from Python, and the drafted questions asked as they are."""

import re
import subprocess
import sys

import pytest

import headwater


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    headwater_command("demo-data", folder / "shop")
    headwater.prepare(folder / "shop", folder / "shop/schema.toml", folder / "shop.db")
    return folder


def headwater_command(*arguments):
    return subprocess.run([sys.executable, "-m", "headwater", *arguments], check=True)


def test_p7_the_demo_is_clean(shop):
    report = headwater.audit(shop / "shop.db", ["churn", "spend"])
    assert report["findings"] == report["allowed"] == []
    assert report["root"] == headwater.Store(shop / "shop.db").root
    assert [task["task"] for task in report["tasks"]] == ["churn", "spend"]
    assert all(task["replayed"] > 300 for task in report["tasks"])
    assert report["not_replayed"] is None


def test_bad_arguments_are_told(shop):
    for arguments, message in [
        ({"tasks": ["chrun"]}, "name one of churn, spend"),
        ({"allowed": ["customers.nam"]}, "expected a table or a table.column"),
        ({"seeds": 99}, "seeds: expected 100"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=message):
            headwater.audit(shop / "shop.db", **arguments)


def test_drafted_questions_can_be_asked_as_they_are(shop):
    (shop / "shop/task_churn.csv").unlink()
    (shop / "shop/task_spend.csv").unlink()
    drafted = headwater.draft_schema(shop / "shop")
    tables, questions = drafted.split("# Questions that", 1)
    sizes = [int(size) for size in re.findall(r"At most (\d+) seeds", questions)]
    asked = "\n".join(
        line.removeprefix("# ") for line in questions.splitlines()[1:] if "?" not in line
    )
    (shop / "asked.toml").write_text(tables + asked)
    headwater.prepare(shop / "shop", shop / "asked.toml", shop / "asked.db")
    tasks = headwater.Store(shop / "asked.db").metadata()["tasks"]
    assert len(tasks) == len(sizes) == 5
    for task, size in zip(tasks, sizes, strict=True):
        assert size / 4 < task["seed_count"] <= size, task["name"]
    # The horizon is such that both answers occur.
    exists = tasks[0]["target"]["derived"]["column"]["stats"]
    assert 0.2 < exists["true_count"] / tasks[0]["seed_count"] < 0.95
