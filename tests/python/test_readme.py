"""The code of README.md and of every page in docs/ runs as it stands.

A page is run from top to bottom in an empty folder, like a notebook:

- `python`: run, in one namespace for the page; its last line is shown, as in a notebook;
- `pycon`: a session; each answer is compared, `...` stands for anything;
- `console`: commands after `$ `; what follows them is compared, `...` stands for anything;
- `sh`: commands that must succeed; what they print is not compared;
- `toml`, `csv`: with `file=NAME` written to that file, else to be read only.

A block in braces, such as `{toctree}`, is for the site alone: `make docs` checks it.
A block with `needs=arrayrecord` is run if headwater is built with this feature.

A block that is not run is named in `NOT_RUN`, and a page that another test runs in `RUN_ELSEWHERE`,
with the reason.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from features import has_arrayrecord

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BIN = Path(sys.executable).parent
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
LIMIT_SECONDS = 300

# By page and first line of the block.
NOT_RUN = {
    ("README.md", "make demo"): "it builds everything",
    ("README.md", "import os"): "test_the_training_loop_runs_and_resumes runs it twice",
    ("README.md", "events = headwater"): "test_the_loop_over_events_runs runs it on that store",
    ("docs/index.md", "make demo"): "it builds everything",
    ("docs/index.md", "import headwater"): "test_the_loop_of_the_site_is_resumed runs it",
    ("docs/events.md", "pip install maxtext==0.2.5"): "make test-maxtext trains MaxText",
    ("docs/guide.md", 'pip install "dist/headwater'): "make test-wheels installs it",
    ("docs/guide.md", "let store = headwater::store::Store::open("): "cargo compiles Rust",
    ("docs/guide.md", "confluence train shop.db --task leaves --minutes 3"): (
        "three minutes; tests/confluence/test_init.py trains a store in less"
    ),
    ("docs/guide.md", "sbatch --array=1-16"): (
        "launchers that are not here; tests/prepare/parts.rs makes parts and merges them"
    ),
    ("docs/guide.md", "srun --ntasks-per-node=1 headwater stage"): (
        "launchers that are not here; test_stage.py has processes that stage at one time"
    ),
    ("docs/model.md", "confluence train shop.db --task churn --minutes 12"): (
        "12 minutes; tests/confluence/test_init.py trains a store in less"
    ),
    ("docs/model.md", "confluence smoke"): "a minute; tests/confluence/test_smoke.py runs it",
    ("docs/model.md", "confluence train --config examples/demo-shop/train.toml"): (
        "four CPU minutes; the guide runs the same commands on a smaller shop"
    ),
    ("docs/determinism.md", "python examples/elastic_torch.py"): (
        "it needs PyTorch; make test-torch runs it"
    ),
    ("docs/model.md", "mpirun -n 4 --bind-to none confluence train"): (
        "launchers that are not here; tests/confluence/test_elastic.py stands in for them"
    ),
    ("docs/pretraining.md", "headwater demo-data shop"): (
        "five CPU minutes; tests/confluence/test_pretraining.py runs both trainings, smaller"
    ),
    ("docs/statistics.md", "mpirun -n 64"): "64 ranks; the page runs three",
}

# Pages that another test runs, with the reason.
RUN_ELSEWHERE = {"docs/own-data.md": "it needs F1DB; test_own_data.py runs it where F1DB is"}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    info: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.lstrip().splitlines()[0]


def blocks(page: Path) -> list[Block]:
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    found = [Block(*f"{info} ".split(" ", 1), text) for info, text in fences]
    return [block for block in found if not block.language.startswith("{")]


def block_with(name: str, word: str) -> str:
    (found,) = [b.text for b in blocks(ROOT / name) if b.language == "python" and word in b.text]
    return found


def reason_not_to_run(page: str, block: Block) -> str | None:
    """The reason why a block is not run, if it is named."""
    found = [r for (of, start), r in NOT_RUN.items() if of == page and start in block.first_line]
    if "needs=arrayrecord" in block.info and not has_arrayrecord():
        found.append("headwater is built without the feature arrayrecord")
    return found[0] if found else None


def matches(expected: str, found: str) -> bool:
    """Whether an output is as shown; `...` stands for anything, also for lines."""
    parts = map(re.escape, expected.rstrip().split("..."))
    return re.fullmatch(".*".join(parts), found.rstrip(), re.DOTALL) is not None


def shell(command: str) -> str:
    """Runs a command; returns what it prints."""
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        env=ENVIRONMENT,
    )
    # A command may fail if the page shows its error message.
    assert ended.returncode == 0 or re.search(r"^headwater[a-z-]*: ", ended.stdout), ended.stdout
    return ended.stdout


def run_console(text: str) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", part, re.DOTALL).groups()
        found = shell(command)
        assert matches(output, found), f"$ {command}\nexpected:\n{output}\nfound:\n{found}"


def run_session(text: str, namespace: dict[str, object]) -> None:
    session = doctest.DocTestParser().get_doctest(text, namespace, "session", None, None)
    session.globs = namespace
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failed = runner.run(session, clear_globs=False).failed
    assert failed == 0, text


def run_cell(text: str, namespace: dict[str, object]) -> None:
    """Runs Python; what its last line gives is shown, as in a notebook."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "block", "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "block", "eval"), namespace)
        show = getattr(value, "_repr_html_", None)
        assert show is None or show(), value


def run_block(block: Block, namespace: dict[str, object]) -> None:
    if block.language == "python":
        run_cell(block.text, namespace)
    elif block.language == "pycon":
        run_session(block.text, namespace)
    elif block.language == "console":
        run_console(block.text)
    elif block.language == "sh":
        shell(block.text)
    elif block.language in {"toml", "csv"}:
        if named := re.search(r"file=(\S+)", block.info):
            path = Path(named[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    else:
        assert block.language == "text", f"a block of {block.language!r} is not run: name it"


def run_page(name: str) -> None:
    """Runs a page in the current folder."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(ROOT / name):
        if reason_not_to_run(name, block) is None:
            print(f"--- {block.language}: {block.first_line}", flush=True)
            run_block(block, namespace)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "README.md" and name not in RUN_ELSEWHERE]
)
def test_the_code_of_a_page_runs(name, tmp_path):
    # A process of its own: where JAX is loaded, other tests may not fork.
    ended = subprocess.run(
        [sys.executable, __file__, name], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_block_with_a_reason_not_to_run_exists():
    for (page, start), reason in NOT_RUN.items():
        found = [block for block in blocks(ROOT / page) if start in block.first_line]
        assert len(found) == 1, (page, start, reason)
    assert set(RUN_ELSEWHERE) <= set(NAMES)


def test_the_readme_is_short_and_begins_with_two_commands():
    readme = ROOT / "README.md"
    assert len(readme.read_bytes()) <= 5000
    first = next(block for block in blocks(readme) if block.language == "sh")
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == [
        "make demo",
        "make test",
    ]


def test_links_lead_to_files_and_promises_to_their_tests():
    for name in [
        *NAMES,
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "mpi-examples/README.md",
    ]:
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), (name, target)
    promises = re.findall(r"^- \*\*(P\d) .*?(?=^- |^$)", PAGES[0].read_text(), re.M | re.S)
    assert promises == [f"P{n}" for n in range(1, 10)]
    for line in re.split(r"^- ", PAGES[0].read_text(), flags=re.MULTILINE):
        if promise := re.match(r"\*\*(P\d) ", line):
            (test,) = re.findall(r"\]\((tests/[^)]+)\)", line)
            bears_its_name = re.search(
                rf"(fn |def test_)(p\d_)*{promise[1].lower()}_", (ROOT / test).read_text()
            )
            assert bears_its_name, line


def test_the_picture_is_drawn_from_the_demo_shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell("headwater demo-data data")
    shell(f"headwater prepare data --schema {ROOT}/examples/demo-shop/schema.toml --out churn")
    shell(f"{sys.executable} {ROOT}/docs/draw_context.py churn context.svg")
    assert Path("context.svg").read_bytes() == (ROOT / "docs/context.svg").read_bytes()


def test_the_demo_runs_and_stops_at_a_command_that_fails(tmp_path):
    # Its last step trains for minutes: tests/confluence/test_demo.py.
    code = "import demo, pathlib; d = demo.Demo(pathlib.Path('demo'));"
    steps = " demo.prepare(d); demo.look(d); demo.sample(d); demo.fold(d)"
    path = f"{ROOT / 'examples'}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**ENVIRONMENT, "PYTHONPATH": path.rstrip(":")}

    def told(words):
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment,
            timeout=LIMIT_SECONDS,
        )

    story = told(["-c", code + steps])
    assert story.returncode == 0, story.stderr
    assert len(story.stdout.splitlines()) <= 30
    assert re.search(r"7 runs, one digest: [0-9a-f]{32}\n", story.stdout)
    assert re.search(r"2 runs, one digest: [0-9a-f]{64}\n", story.stdout)
    again = told([ROOT / "examples/demo.py", "demo"])
    assert again.returncode == 1
    assert re.search(r"FAILED: \$ headwater demo-data demo/data\nheadwater: ", again.stderr)


def test_the_training_loop_runs_and_resumes(store_path, tmp_path, monkeypatch):
    import headwater

    loop = block_with("README.md", "import os")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "store").symlink_to(store_path)
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(2):
        exec(loop, {"train_step": lambda batch: seen.append(batch["seed_row"].copy())})
    position = headwater.Cursor.read("run.cursor").position
    assert position["train/step"] == 200
    assert len(seen) == 200
    with headwater.Sampler(store_path, seed=1) as sampler:
        for rows in seen:
            assert (rows == sampler.next_train_batch()["seed_row"]).all()


def test_the_loop_of_the_site_is_resumed(store_path, tmp_path, monkeypatch):
    import headwater

    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "store").symlink_to(store_path)
    monkeypatch.chdir(tmp_path)
    seen = []
    loop = block_with("docs/index.md", "headwater.Sampler")
    exec(loop, {"train_step": lambda batch: seen.append(batch["seed_row"].copy())})
    assert len(seen) == 100
    with headwater.Sampler("demo/store", seed=1) as sampler:
        sampler.resume("run.cursor")
        assert sampler.cursor() == headwater.Cursor.read("run.cursor").encode()


def test_the_loop_over_events_runs(tmp_path, monkeypatch):
    import headwater

    example, folder = ROOT / "examples/pings", tmp_path / "demo"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, example / "pings.py", folder / "pings.csv"], check=True)
    headwater.prepare(folder / "pings.csv", example / "events.toml", folder / "pings.db")
    seen = []
    namespace = {"headwater": headwater, "train_step": seen.append}
    exec(block_with("README.md", "headwater.Events"), namespace)
    assert len(seen) == 100
    assert seen[0]["inputs"].shape == (8, 1024)
    assert headwater.Cursor.read("events.cursor").position["train/rows"] == 800
    assert len(namespace["events"].decode(namespace["prompt"].tolist())) > 1


def test_folded_arrays_have_the_digest_of_the_command(tmp_path, monkeypatch):
    from test_reduce import done

    rows = np.random.default_rng(4).standard_normal((20_000, 12)).astype(np.float32)
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", rows)
    seen = {}
    example = block_with("docs/statistics.md", "GramJob")
    example = example.replace("reduction.missing()", "missing = reduction.missing()")
    exec(example, seen)
    assert seen["missing"] == [(16_384, 20_000)]
    assert np.allclose(seen["gram"], rows.astype(float).T @ rows)
    said = done("gram", "--input", "X.npy", "--out", "gram.npy")
    assert seen["reduction"].digest == said["digest"]


if __name__ == "__main__":
    run_page(sys.argv[1])
