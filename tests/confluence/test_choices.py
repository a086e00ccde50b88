"""Words that an argument accepts, and what is said of others."""

import pytest

from confluence import choices
from confluence.config import ConfigError

TASKS = ["shop/churn", "shop/spend"]


def refused(check, *arguments):
    with pytest.raises(ConfigError) as found:
        check(*arguments)
    return str(found.value)


def test_an_unknown_word_is_refused():
    choices.check("by", "day", ("day", "week"))
    start = "expected one of 'day', 'week' for by, found "
    assert refused(choices.check, "by", "weak", ("day", "week")) == (
        f"{start}'weak'; did you mean 'week'?"
    )
    assert refused(choices.check, "by", 7, ("day", "week")) == f"{start}7"


def test_splits_are_a_list_of_names():
    choices.check_splits(["train", "val", "test"])
    assert refused(choices.check_splits, "test").endswith("found 'test'; write ['test']")
    assert refused(choices.check_splits, ["val", "tests"]) == (
        "expected one of 'train', 'val', 'test' for splits, found 'tests'; did you mean 'test'?"
    )


def test_a_task_has_its_name_with_or_without_the_database():
    for name in ("churn", "shop/churn"):
        choices.check_task(name, TASKS)
    assert refused(choices.check_task, "chrun", TASKS) == (
        "no task is called 'chrun'; did you mean 'churn'?"
    )
    assert refused(choices.check_task, "zzz", TASKS).endswith("name one of shop/churn, shop/spend")
    assert refused(choices.check_task, "zzz", []).endswith("name one of none")


def test_a_task_of_a_store_is_known(demo_store):
    choices.check_tasks_of_stores(["churn", "demo-shop/spend"], [demo_store])
    assert "did you mean 'spend'" in refused(choices.check_tasks_of_stores, ["spent"], [demo_store])
