"""What the options of `confluence train` mean, and how the command ends."""

import argparse
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from confluence import api, cli, cli_draft, config
from confluence.config import ConfigError
from confluence.parallel import Processes
from confluence.rollcall import JoinError
from confluence.training import Interrupted
from headwater import _headwater

HERE = "x:1"


def options(*arguments):
    """Returns the options of `confluence train`, of which the run's folder is `out`."""
    return cli._parser()[0].parse_args(["train", "--out", "out", *arguments])


@pytest.fixture
def launched(monkeypatch):
    """Sets what a launcher started."""

    def start(count, rank=0, launcher="srun"):
        found = Processes(count, rank, None, True, launcher) if count > 1 else Processes()
        monkeypatch.setattr(Processes, "launched", classmethod(lambda _: found))

    start(1)
    return start


def processes(*arguments):
    return cli._processes(options(*arguments))


def refused(*arguments):
    with pytest.raises((ConfigError, JoinError)) as found:
        processes(*arguments)
    return str(found.value)


def test_without_options_the_processes_are_those_of_the_launcher(launched):
    assert processes() == Processes()
    launched(3, 2)
    assert processes() == Processes(3, 2, None, True, "srun")
    # Or one alone in each of them.
    assert processes("--processes", "1") == Processes()
    assert processes("--processes", "3", "--coordinator", HERE) == Processes(
        3, 2, HERE, True, "srun"
    )
    assert processes("--rank", "0").rank == 0
    assert refused("--processes", "2").startswith(
        "expected --processes 3, as many as srun started, or 1 to train alone, found 2"
    )


def test_options_name_the_processes_without_a_launcher(launched):
    all_of_them = ["--processes", "2", "--rank", "1", "--coordinator", HERE]
    assert processes(*all_of_them) == Processes(2, 1, HERE)
    launched(3, 2)
    # All three options leave nothing to the launcher.
    assert processes(*all_of_them) == Processes(2, 1, HERE)


def test_processes_that_cannot_meet_are_refused(launched):
    alone = "with --processes 2, because no launcher started this process, found none"
    assert refused("--processes", "2") == f"expected --rank R and --coordinator HOST:PORT {alone}"
    assert refused("--processes", "2", "--rank", "1") == f"expected --coordinator HOST:PORT {alone}"
    assert refused("--processes", "2", "--coordinator", HERE) == f"expected --rank R {alone}"
    assert refused("--processes", "2", "--rank", "1", "--coordinator", "x") == (
        "expected --coordinator HOST:PORT, found 'x'"
    )
    for rank in ("-1", "2"):
        assert refused("--processes", "2", "--rank", rank, "--coordinator", HERE) == (
            f"expected a --rank from 0 to 1, found {rank}"
        )
    assert processes("--processes", "2", "--rank", "0", "--coordinator", HERE).rank == 0


def write(folder, *settings):
    folder.mkdir()
    text = config.load(None, ["data.stores=here", *settings]).to_toml()
    (folder / "config.toml").write_text(text)
    return str(folder)


def test_the_configuration_is_the_own_or_that_of_the_run_to_go_on_or_start_from(tmp_path):
    own, other = (write(tmp_path / f"run {n}", f"data.seed={n}") for n in (7, 8))

    def loaded(*arguments):
        # The last one of an option counts.
        found = cli._loaded(options("--set", "run.threads=3", *arguments))
        assert found.run.threads == 3
        return found.data.seed

    default = config.load(None).data.seed
    assert loaded() == default
    # A folder that another run may be in is no configuration.
    assert loaded("--out", own) == default
    assert loaded("--out", own, "--resume") == 7
    assert loaded("--out", own, "--resume", "--from", other) == 7
    assert loaded("--from", other) == 8
    assert loaded("--from", str(tmp_path / "none")) == default
    (tmp_path / "my.toml").write_text("[data]\nseed = 9\n")
    assert loaded("--from", other, "--config", str(tmp_path / "my.toml")) == 9
    assert cli._loaded(options("--members", "3")).run.members == 3
    assert cli._loaded(options("--out", own, "--resume", "--members", "3")).run.members == 3


@pytest.mark.parametrize(
    ("text", "steps"), [(None, None), ("3:4", (3, 4)), ("1:1", (1, 1)), ("100:110", (100, 110))]
)
def test_the_steps_of_a_profile_are_the_first_and_the_last(text, steps):
    assert cli._steps_to_profile(text) == steps


@pytest.mark.parametrize("text", ["4", "4:", ":4", "a:4", "4:b", "0:4", "5:4"])
def test_a_profile_of_no_steps_is_refused(text):
    with pytest.raises(ConfigError, match="expected two steps such as 100:110 for --profile"):
        cli._steps_to_profile(text)


@pytest.fixture
def trained(monkeypatch, launched):
    """What is trained, by a training that only notes it."""
    calls = []

    def train(settings, out, **more):
        calls.append((settings, out, more))
        results = types.SimpleNamespace(table=lambda _: "the table")
        return types.SimpleNamespace(results=results)

    monkeypatch.setattr(api, "train", train)
    return calls


def test_train_hands_on_its_options_and_shows_the_results(trained, capsys):
    more = ["--set", "data.seed=7", "--profile", "3:4", "--from", "there"]
    assert cli.main(["train", "--out", "out", *more]) == 0
    [(settings, out, given)] = trained
    assert (settings.data.seed, out) == (7, Path("out"))
    assert given == {
        "resume": False,
        "start_from": Path("there"),
        "processes": Processes(),
        "profile": (3, 4),
    }
    assert capsys.readouterr() == ("the table\ncurves and contexts: out/report.html\n", "")


def test_another_rank_shows_no_results_and_no_advice(trained, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_inherited_limit", lambda args, settings: "the advice")
    ranks = ["train", "--out", "out", "--processes", "2", "--coordinator", HERE, "--rank"]
    assert cli.main([*ranks, "1"]) == 0
    assert capsys.readouterr() == ("", "")
    assert cli.main([*ranks, "0"]) == 0
    assert "confluence: advice: the advice\n" in capsys.readouterr().err


@pytest.mark.parametrize("too_short", ["", "too few minutes"])
def test_train_drafts_the_configuration_of_a_store(
    too_short, trained, monkeypatch, capsys, tmp_path
):
    drafted = types.SimpleNamespace(
        too_short=too_short, summary=["title", "one", "two"], config=config.load(None, [])
    )
    monkeypatch.setattr(cli_draft, "make_draft", lambda args: drafted)
    command = ["train", "my.db", "--task", "churn", "--out", str(tmp_path / "out")]
    found = cli.main(command)
    if too_short:
        assert (found, capsys.readouterr().err) == (1, "confluence: too few minutes\n")
    else:
        assert (found, capsys.readouterr().err) == (0, "confluence: one\nconfluence: two\n")
    # Who says the steps knows what to do.
    trained.clear()
    assert cli.main([*command, "--set", "optimizer.steps=7"]) == 0
    assert trained[0][0].optimizer.steps == 7
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.toml").touch()
    assert cli.main(command) == 1
    assert "already holds a run" in capsys.readouterr().err


def test_a_store_needs_one_process(trained, capsys):
    several = ["--processes", "2", "--rank", "0", "--coordinator", HERE]
    assert cli.main(["train", "my.db", "--out", "out", *several]) == 1
    assert "or --processes, found both" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="for 2 processes, found a store"):
        api.check_is_alone(Processes(2, 0, HERE), "my.db")
    api.check_is_alone(Processes(), "my.db")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ConfigError("no such task"), 1, "confluence: no such task\n"),
        (OSError("no such file"), 1, "confluence: no such file\n"),
        (Interrupted("stopped after step 5"), 130, "confluence: stopped after step 5\n"),
        (KeyboardInterrupt(), 130, "confluence: interrupted\n"),
    ],
)
def test_each_end_of_the_command_has_its_status(error, status, said, monkeypatch, capsys):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(cli_draft, "check_options", fail)
    assert cli.main(["train", "--out", "out"]) == status
    assert capsys.readouterr() == ("", said)


def test_a_reader_that_has_enough_ends_the_command_quietly(monkeypatch, capfd):
    def fail(_):
        raise BrokenPipeError

    monkeypatch.setattr(cli_draft, "check_options", fail)
    moved = []
    monkeypatch.setattr(cli.os, "dup2", lambda *of: moved.append(of))
    assert cli.main(["train", "--out", "out"]) == 0
    [(nowhere, output)] = moved
    assert output == sys.stdout.fileno()
    # What is left in the buffer goes to no file.
    assert os.path.samestat(os.fstat(nowhere), os.stat(os.devnull))
    os.write(nowhere, b"x")
    os.close(nowhere)
    assert capfd.readouterr() == ("", "")


def test_the_command_starts_without_jax():
    """It sets what JAX reads when it is imported, and its help is quick."""
    program = "import sys, confluence.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("found", "rank", "is_leader"),
    [
        (None, [], True),
        (None, ["--rank", "0"], True),
        (None, ["--rank", "1"], False),
        (("srun", 1, 2, False), [], False),
        (("srun", 0, 2, True), [], True),
        (("srun", 1, 2, True), ["--rank", "0"], True),
    ],
)
def test_rank_0_alone_says_that_it_starts(found, rank, is_leader, monkeypatch):
    said = []

    def line(*, is_leader=True):
        return types.SimpleNamespace(show=lambda _: said.append(is_leader), end=lambda: None)

    def refuse(_):
        raise ConfigError("the end of the test")

    monkeypatch.setattr(cli, "StatusLine", line)
    monkeypatch.setattr(_headwater, "launched", lambda: found)
    monkeypatch.setattr(cli_draft, "check_options", refuse)
    assert cli.main(["train", "--out", "out", *rank]) == 1
    assert said == [is_leader]


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli_draft, "check_options", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", "--out", "out"])


def test_an_interrupted_command_ends_at_once(monkeypatch, capsys):
    ended = []
    monkeypatch.setattr(cli.os, "_exit", ended.append)
    cli._exit_interrupted()
    assert (ended, capsys.readouterr().err) == ([130], "confluence: interrupted\n")


def test_the_command_handles_ctrl_c_and_restarts_and_a_call_does_neither(monkeypatch):
    calls = []
    monkeypatch.setattr(cli.signal, "signal", lambda *of: calls.append(of))
    monkeypatch.setattr(cli.signal, "pthread_sigmask", lambda *of: calls.append(of))
    monkeypatch.setattr(cli, "restart_with_tunables", lambda: calls.append("restart"))
    monkeypatch.setattr("sys.argv", ["confluence", "presets"])
    assert cli.main(["presets"]) == 0
    assert calls == []
    assert cli.main() == 0
    assert calls == [
        (signal.SIGINT, cli._exit_interrupted),
        (signal.SIG_UNBLOCK, {signal.SIGINT}),
        "restart",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the following arguments are required: --out"),
        ([], "the following arguments are required: VERB"),
        (["baselines", "my.db"], "the following arguments are required: --task"),
        (["inspect", "run", "--task", "x"], "the following arguments are required: --seed-index"),
        (["inspect", "run", "--seed-index", "0"], "the following arguments are required: --task"),
        # A beginning of an option is none.
        (
            ["train", "--out", "out", "--resum"],
            "--resum; did you mean --resume for --resum?",
        ),
        (["train", "--out", "out", "--zzz=3"], "error: unrecognized arguments: --zzz=3\n"),
    ],
)
def test_options_that_are_missing_or_unknown_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_noise_of_orbax_is_silenced_and_nothing_else(monkeypatch):
    shown = []
    monkeypatch.setattr("sys.__unraisablehook__", shown.append)
    monkeypatch.setattr("sys.unraisablehook", None)
    cli._silence_orbax()
    for text in ("Event loop is closed", "mine"):
        cli.sys.unraisablehook(types.SimpleNamespace(exc_value=RuntimeError(text)))
    assert [str(of.exc_value) for of in shown] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--config", "cpu-small"], "--config"),
        (["--resume"], "--resume"),
        (["--from", "x"], "--from"),
        (["--members", "1"], "--members"),
        (["--processes", "2"], "--processes"),
    ],
)
def test_a_store_contradicts_another_configuration(arguments, name):
    with pytest.raises(ConfigError, match=f"or {name}, found both; leave out {name}, or write"):
        cli_draft.check_options(options("my.db", *arguments))
    cli_draft.check_options(options("my.db", "--task", "x", "--minutes", "3", "--processes", "1"))
    cli_draft.check_options(options(*arguments))


def test_the_options_of_a_draft_need_a_store():
    for arguments in (["--task", "x"], ["--minutes", "0"]):
        with pytest.raises(ConfigError, match=f"expected a STORE with {arguments[0]}, found none"):
            cli_draft.check_options(options(*arguments))


def test_init_shows_what_it_chose_and_writes_it_to_a_new_file(monkeypatch, capsys, tmp_path):
    drafted = types.SimpleNamespace(summary=["title", "one", "two"], to_toml=lambda: "the draft\n")
    monkeypatch.setattr(cli_draft, "make_draft", lambda _: drafted)
    assert cli.main(["init", "my.db"]) == 0
    assert capsys.readouterr().out == "the draft\n"
    path = tmp_path / "my draft.toml"
    assert cli.main(["init", "my.db", "--out", str(path)]) == 0
    assert path.read_text() == "the draft\n"
    assert capsys.readouterr().out == (
        f"one\ntwo\nnext: confluence train --config '{path}' --out FOLDER\n"
    )
    assert cli.main(["init", "my.db", "--out", str(path)]) == 1
    assert cli.main(["init", "my.db", "--out", str(tmp_path / "no/my.toml")]) == 1
    assert "expected a folder for" in capsys.readouterr().err


def test_a_draft_has_some_minutes_unless_they_are_given(monkeypatch):
    from confluence import draft

    asked = []
    monkeypatch.setattr(draft, "init", lambda *of: asked.append(of))
    for minutes in (None, 0):
        found = argparse.Namespace(store="my.db", tasks=["x"], minutes=minutes)
        cli_draft.make_draft(found)
    assert asked == [("my.db", ["x"], draft.MINUTES), ("my.db", ["x"], 0)]


@pytest.mark.parametrize(("last", "status", "word"), [(0.9, 0, "learnt"), (1.1, 1, "NOT LEARNT")])
def test_smoke_fails_unless_each_type_is_learnt(last, status, word, monkeypatch, capsys):
    from confluence import smoke

    def of_types(*, report, attention):
        assert (report, attention) == (print, "structured")
        return {"boolean": (2.0, 0.1), "numerical": (2.0, last)}

    monkeypatch.setattr(smoke, "smoke", of_types)
    assert cli.main(["smoke", "--attention", "structured"]) == status
    assert capsys.readouterr().out == (
        f"boolean      2.0000 -> 0.1000  learnt\nnumerical    2.0000 -> {last:.4f}  {word}\n"
    )


@pytest.mark.parametrize(
    ("options_of_bench", "subject"),
    [([], "both"), (["--no-train"], "batches"), (["--synthetic-data"], "steps")],
)
def test_bench_measures_a_part_or_both(options_of_bench, subject, monkeypatch, capsys):
    from confluence import bench

    asked = []
    monkeypatch.setattr(bench, "bench", lambda _, *of: asked.append(of) or {"steps": of[0]})
    for steps in (["--steps", "1"], []):
        assert cli.main(["bench", *options_of_bench, *steps]) == 0
    assert asked == [(1, subject), (30, subject)]
    assert '"steps": 1\n' in capsys.readouterr().out
    assert cli.main(["bench", "--steps", "0"]) == 1
    assert capsys.readouterr().err == "confluence: expected at least 1 for --steps, found 0\n"


def test_evaluate_and_baselines_hand_on_their_options(monkeypatch, capsys):
    from confluence import answers, baselines, calibration, hiding

    asked = []

    class Found:
        tasks, periods = "tasks", {}

        def __str__(self):
            return "results"

    monkeypatch.setattr(api, "evaluate", lambda *of, **more: asked.append((of, more)) or Found())
    monkeypatch.setattr(calibration, "text", lambda tasks: f"bins of {tasks}")
    monkeypatch.setattr(hiding, "text", lambda _: "")
    monkeypatch.setattr(answers, "table", lambda of: f"periods {of}")
    assert cli.main(["evaluate", "run"]) == 0
    Found.periods = {"x": 1}
    given = ["--split", "val", "--split", "test", "--by", "year", "--relations", "--out", "a.csv"]
    more = ["--checkpoint", "latest", "--store", "there", "--visible-until", "2020-01-01"]
    assert cli.main(["evaluate", "run", *given, *more]) == 0
    defaults = {
        "splits": ("test",), "checkpoint": "best", "stores": [], "visible_until": None,
        "out": None, "by": None, "relations": False,
    }  # fmt: skip
    assert asked == [
        ((Path("run"),), defaults),
        ((Path("run"),), {
            "splits": ["val", "test"], "checkpoint": "latest", "stores": ["there"],
            "visible_until": "2020-01-01", "out": Path("a.csv"), "by": "year", "relations": True,
        }),
    ]  # fmt: skip
    assert capsys.readouterr().out == (
        "results\n\nbins of tasks\nresults\n\nbins of tasks\n\nperiods {'x': 1}\n"
    )
    asked.clear()
    monkeypatch.setattr(
        api, "compare_baselines", lambda *of, **more: asked.append((of, more)) or "found"
    )
    monkeypatch.setattr(baselines, "table", lambda of: f"table of {of}")
    assert cli.main(["baselines", "my.db", "--task", "x", "--visible-until", "2020"]) == 0
    assert asked == [((Path("my.db"), "x"), {"visible_until": "2020"})]
    assert capsys.readouterr().out == "table of found\n"
