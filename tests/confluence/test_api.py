"""The functions that the package exports."""

import json
import subprocess
import sys

import pytest

import confluence
import runs
from confluence import config

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_importing_the_package_imports_no_jax():
    program = "import sys, confluence; confluence.load('base'); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    assert {"Config", "evaluate", "load", "predict", "train"} <= set(dir(confluence))
    assert confluence.load is config.load
    with pytest.raises(AttributeError, match="has no attribute 'trane'"):
        confluence.trane  # noqa: B018


def test_a_run_from_python_equals_the_command(whole, tiny, tmp_path):
    found = confluence.train(confluence.load(None, tiny), tmp_path / "run").results
    assert runs.records(tmp_path / "run") == runs.records(whole)
    assert runs.without_seconds(json.loads(json.dumps(found.to_dict()))) == runs.results(whole)


def test_evaluate_and_predict_from_python(whole):
    found = confluence.evaluate(whole, splits=["test"])
    expected = runs.results(whole)
    assert found.step == expected["step"]
    for task, of_task in expected["tasks"].items():
        scores = found.tasks[task]["test"]
        assert scores[of_task["leading"]] == of_task["test"][of_task["leading"]]
    assert repr(found).startswith(f"step {found.step}\ntask ")
    assert "<tr><td>demo-shop/churn</td><td>test</td>" in found._repr_html_()
    (prediction,) = confluence.predict(whole, "churn", [("1", "2022-01-01")])
    assert 0 <= float(prediction.value) <= 1
    with pytest.raises(config.ConfigError, match="seed 1 .*: expected an observation time"):
        confluence.predict(whole, "churn", [("1", None)])
