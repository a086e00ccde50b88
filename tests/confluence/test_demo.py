"""The program of `make demo` that trains twice, with a tiny model."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import runs

PROGRAM = Path(__file__).parents[2] / "examples/train_and_kill.py"


def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tiny, tmp_path):
    settings = [part for setting in tiny for part in ("--set", setting)]
    store = tiny[0].removeprefix("data.stores=")
    # Enough steps to kill the run half way on a busy machine too.
    settings += ["--set", "optimizer.steps=60", "--set", "data.tasks=['churn', 'spend']"]
    finished = subprocess.run(
        [sys.executable, PROGRAM, store, tmp_path, *settings],
        capture_output=True, text=True, timeout=runs.TIMEOUT_SECONDS,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "identical to the last bit: 60 losses, and all metrics" in finished.stdout
    assert re.search(r"demo-shop/churn, test: auroc 0\.\d{3} \(", finished.stdout)
    killed = r"killed 2 processes with SIGKILL after step (\d+) of 60"
    kept = int(re.search(killed, finished.stdout)[1])
    assert 30 <= kept < 60
    report = (tmp_path / "killed/report.html").read_text()
    for page in ("context-0.html", "context-1.html"):
        assert f'<iframe src="{page}"' in report
        assert "drawn by headwater" in (tmp_path / "killed" / page).read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_terminated_comparison_leaves_no_run_behind(tiny, tmp_path):
    def left():
        return [p for p in Path("/proc").glob("[0-9]*") if str(tmp_path).encode() in command(p)]

    def command(process):
        try:
            return (process / "cmdline").read_bytes()
        except OSError:  # It ended meanwhile.
            return b""

    store, *settings = [*tiny, *runs.ENDLESS]
    arguments = [store.removeprefix("data.stores="), tmp_path, *runs.sets(settings)]
    program = subprocess.Popen([sys.executable, PROGRAM, *arguments])
    end = time.monotonic() + 60
    while len(left()) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    # More while one starts a program: until then the child has the same command line.
    assert len(left()) >= 4
    program.terminate()
    assert program.wait(timeout=60) == 143
    assert left() == []
