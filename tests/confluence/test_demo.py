"""The program of `make demo` that trains twice, with a model that a step takes no time of."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples/train_and_kill.py"


def test_a_killed_run_ends_as_the_whole_one_and_the_report_draws_a_context(tiny, tmp_path):
    settings = [part for setting in tiny for part in ("--set", setting)]
    store = tiny[0].removeprefix("data.stores=")
    # Long enough to be killed in, whatever else the machine does.
    settings += ["--set", "optimizer.steps=60", "--set", "data.tasks=['churn', 'spend']"]
    ended = subprocess.run(
        [sys.executable, PROGRAM, store, tmp_path, *settings],
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "identical: all 60 losses, and the metrics, to the last bit" in ended.stdout
    assert re.search(r"demo-shop/churn, test: auroc 0\.\d{3} \(", ended.stdout)
    kept = int(re.search(r"killed with -9 after step (\d+) of 60", ended.stdout)[1])
    assert 30 <= kept < 60
    report = (tmp_path / "killed/report.html").read_text()
    for page in ("context-0.html", "context-1.html"):
        assert f'<iframe src="{page}"' in report
        assert "drawn by headwater" in (tmp_path / "killed" / page).read_text()
