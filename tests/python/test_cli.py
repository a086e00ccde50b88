"""The command `headwater` of the Python package."""

import html.parser
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import headwater
from headwater import _cli, _headwater

SCRIPT = Path(sys.executable).with_name("headwater")
CURSORS = Path(__file__).parents[2] / "checkpoints"


def run(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)


def bytes_of(store):
    return sum(path.stat().st_size for path in store.rglob("*.bin"))


def test_help_and_version():
    version = rf"headwater {re.escape(headwater.__version__)} \((avx512|avx2|scalar) kernels\)\n"
    assert re.fullmatch(version, run("--version").stdout)
    done = run("--help")
    assert done.returncode == 0
    assert "inspect" in done.stdout


@pytest.mark.parametrize("name", ["headwater", "headwater-reduce"])
def test_shells_and_man_know_each_subcommand(name):
    def said(*arguments):
        command = [SCRIPT.with_name(name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    overview = said("--help").split("Commands:")[1].split("Options:")[0]
    verbs = set(re.findall(r"^  ([a-z-]+)", overview, re.MULTILINE)) - {"help"}
    assert {"completions", "man"} < verbs
    for shell in ("bash", "zsh", "fish", "elvish", "powershell"):
        script = said("completions", shell)
        assert [verb for verb in verbs if verb not in script] == []
    page = said("man")
    assert f".TH {name} 1" in page
    for verb in verbs:
        in_page = verb.replace("-", r"\-")
        assert in_page in page
        assert in_page in said("man", verb)
    command = [SCRIPT.with_name(name), "man", "prepar"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'expected a subcommand, one of "' in done.stderr
    assert 'found "prepar"' in done.stderr


def test_bash_accepts_its_completions_and_completes_a_word():
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    script = run("completions", "bash").stdout
    ask = "COMP_WORDS=(headwater pre); COMP_CWORD=1; _headwater headwater pre headwater"
    done = subprocess.run(
        ["bash", "-c", f'eval "$1"; {ask}; printf "%s\n" "${{COMPREPLY[@]}}"', "bash", script],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "prepare\n"


def test_the_command_prepares_verifies_and_inspects_a_store(
    tmp_path, shop_folder, schema_file, store_path
):
    out = tmp_path / "db"
    arguments = ["prepare", shop_folder, "--schema", schema_file, "--out", out]
    done = run(*arguments, "--dimension", "32", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["root"] == headwater.Store(store_path).root
    done = run("verify", out)
    assert done.returncode == 0
    assert ": OK, " in done.stdout
    done = run("warm", out)
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == (f"{out}: {bytes_of(out) / 1e6:.1f} MB in memory\n", "")
    report = json.loads(run("warm", out, "--json").stdout)
    assert report == {"root": headwater.Store(out).root, "bytes": bytes_of(out)}
    done = run("inspect", out, "--table", "orders", "--row", "3", "--json")
    assert json.loads(done.stdout)["key"] == "3"


def test_a_number_below_zero_is_a_key_or_out_of_range(store_path):
    task = headwater.Store(store_path).metadata()["tasks"][0]["name"]
    done = run("inspect", store_path, "--task", task, "--seed-index", "-1")
    assert done.returncode == 2
    assert "'-1' for '--seed-index <N>': -1 is not in 0..=4294967295" in done.stderr
    done = run("inspect", store_path, "--table", "orders", "--row", "-1")
    assert done.returncode == 1
    assert 'no row of table "orders" has the key "-1"' in done.stderr


def test_force_replaces_a_store_and_tables_select(tmp_path, shop_folder, schema_file, store_path):
    out = tmp_path / "db"
    arguments = ["prepare", shop_folder, "--schema", schema_file, "--out", out, "--dimension"]
    assert run(*arguments, "8").returncode == 0
    before = headwater.Store(out).root
    refused = run(*arguments, "32")
    assert refused.returncode == 1
    assert "replace the store there (--force" in refused.stderr
    assert headwater.Store(out).root == before
    done = run(*arguments, "32", "--force")
    assert done.returncode == 0, done.stderr
    assert headwater.Store(out).root == headwater.Store(store_path).root
    assert [path.name for path in tmp_path.iterdir()] == ["db"]
    report = headwater.prepare(shop_folder, schema_file, out, dimension=8, force=True)
    assert report["root"] == headwater.Store(out).root == before

    drafted = run("schema", shop_folder, "--tables", "orders").stdout
    assert [table["name"] for table in tomllib.loads(drafted)["table"]] == ["orders"]
    done = run("schema", shop_folder, "--tables", "customers,ordres")
    assert done.returncode == 1
    assert 'has no table "ordres"; did you mean "orders"?' in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["frobnicate"], 2, "unrecognized subcommand"),
        (["verify", "/nowhere"], 1, "/nowhere"),
        (["verify", "."], 3, "not a store"),
        (["warm", "."], 3, "not a store"),
        (["stage", ".", "/nowhere/copy"], 3, "not a store"),
        (["cursor", CURSORS / "bad" / "cursor-flipped-bit.cursor"], 3, "damaged"),
    ],
)
def test_exit_statuses(arguments, status, message):
    done = run(*arguments)
    assert done.returncode == status
    assert message in done.stderr


def test_a_closed_pipe_is_not_an_error(store_path):
    command = f"{SCRIPT} inspect {store_path} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Balanced(html.parser.HTMLParser):
    """Checks that the elements of a page are nested; collects their ids."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self):
        super().__init__()
        self.open = []
        self.ids = []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"line {self.getpos()}"


def test_a_context_is_drawn_as_a_page(store_path, tmp_path):
    page = tmp_path / "context.html"
    task = headwater.Store(store_path).metadata()["tasks"][0]["name"]
    context = ["inspect", store_path, "--task", task, "--seed-index", "1"]
    shown = json.loads(run(*context, "--json").stdout)
    done = run(*context, "--html", page)
    assert done.returncode == 0, done.stderr
    assert str(page) in done.stdout
    parser = Balanced()
    parser.feed(page.read_text())
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    assert {f"r{row['place']}" for row in shown["rows"]} <= set(parser.ids)


@pytest.mark.parametrize("command", ["headwater", "headwater-reduce"])
def test_a_first_interrupt_is_reported_if_the_step_goes_on(command, monkeypatch, capsys):
    ran = []

    def work(arguments):
        ran.append(arguments)
        if "--version" in arguments:
            return 7
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            # The next one ends the process.
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
            end = time.monotonic() + 10
            while "--deaf" in arguments and not ran[1:] and time.monotonic() < end:
                ran.extend(capsys.readouterr().err.splitlines())
                time.sleep(0.01)
            raise

    name, call = ("main", _cli.main) if command == "headwater" else ("reduce_main", _cli.reduce)
    monkeypatch.setattr(_headwater, name, work)
    for patience, options in ((0.05, ["--deaf"]), (600, []), (0.05, ["--version"])):
        monkeypatch.setattr(_cli, "_PATIENCE", patience)
        monkeypatch.setattr(sys, "argv", ["python", *options])
        ran.clear()
        if "--version" in options:
            # Its exit status is returned, and nothing is told later.
            assert call() == 7
            time.sleep(0.1)
        else:
            with pytest.raises(KeyboardInterrupt):
                call()
        told = f"{command}: stopping after the step that runs; Ctrl-C again ends it at once"
        assert ran == [[command, *options]] + [told] * ("--deaf" in options)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert capsys.readouterr().err == ""


def test_an_ignored_interrupt_stays_ignored(monkeypatch):
    found = []
    monkeypatch.setattr(_headwater, "main", lambda _: found.append(signal.getsignal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _cli.main()
        assert [*found, signal.getsignal(signal.SIGINT)] == [signal.SIG_IGN] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_interrupt_ends_work_that_does_not_look(tmp_path):
    # Such as a call of a function inside DuckDB, which takes a minute for a text of 2 GB.
    deaf = """
import time
from headwater import _cli, _headwater
def work(arguments):
    words = iter(["ready", "once"])
    while True:
        try:
            print(next(words), flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            continue
_headwater.main = work
_cli.main()
"""
    command = [sys.executable, "-c", deaf]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "once\n"
            told = "headwater: stopping after the step that runs; Ctrl-C again ends it at once\n"
            assert process.stderr.readline() == told
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == -signal.SIGINT
        finally:
            process.kill()
