"""Embedders, progress and interrupts of a preparation."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

import numpy as np
import pandas
import pytest

import headwater
from shop import orders, shop, write_csv

DIMENSION = 16


def lengths(texts):
    """Embeds each text as a vector of its length."""
    return [[len(text)] * DIMENSION for text in texts]


def test_a_function_is_an_embedder(tmp_path, shop_folder, schema_file):
    out = tmp_path / "db"
    headwater.prepare(shop_folder, schema_file, out, embedder=lengths, dimension=DIMENSION)
    store = headwater.Store(out)
    assert store.metadata()["embedding"]["embedder"] == "python:lengths"
    vectors = store.categorical_embeddings()
    assert vectors[:, 0].tolist() == [len(store.category(i)) for i in range(len(vectors))]
    assert store.text_embedding(0).tolist() == [len(store.text(0))] * DIMENSION
    store.verify()


def test_text_vectors_are_of_a_known_encoding(tmp_path, shop_folder, schema_file):
    roots = {}
    for chosen in (True, "f16", "int8", False):
        out = tmp_path / str(chosen)
        report = headwater.prepare(
            shop_folder, schema_file, out, dimension=DIMENSION, text_vectors=chosen
        )
        roots[chosen] = report["root"]
        found = headwater.Store(out)
        assert found.metadata()["embedding"]["text_vectors"] == bool(chosen)
        assert (found.text_scales() is None) == (chosen != "int8")
    assert roots[True] == roots["f16"]
    assert len(set(roots.values())) == 3
    for wrong, name in (("int4", '"int4"'), (None, "None"), (8, "int")):
        expected = f'text_vectors: expected True, False, "f16" or "int8", found {name}'
        with pytest.raises(headwater.InvalidArgument, match=expected):
            headwater.prepare(shop_folder, schema_file, tmp_path / "x", text_vectors=wrong)


def test_a_preparation_by_the_command_has_int8_vectors(tmp_path, shop_folder, schema_file):
    def run(*options):
        line = ["headwater", "prepare", shop_folder, "--schema", schema_file, *options]
        return subprocess.run(line, capture_output=True, text=True)

    assert run("--out", tmp_path / "db", "--text-vectors", "int8").returncode == 0
    assert headwater.Store(tmp_path / "db").text_embeddings().dtype == np.int8
    described = subprocess.run(
        ["headwater", "inspect", tmp_path / "db"], capture_output=True, text=True, check=True
    )
    assert " texts (vectors as int8)" in described.stdout
    unknown = run("--out", tmp_path / "x", "--text-vectors", "int4")
    assert (unknown.returncode, (tmp_path / "x").exists()) == (2, False)
    assert 'expected f16 or int8, found "int4"' in unknown.stderr
    both = run("--out", tmp_path / "x", "--text-vectors", "int8", "--no-text-vectors")
    assert "cannot be used with" in both.stderr


class EmbeddingServer(http.server.BaseHTTPRequestHandler):
    """A server with OpenAI's protocol; the vectors are those of `lengths`."""

    requested: ClassVar[list] = []

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/embeddings"
        assert request["model"] == "tiny"
        assert self.headers["Authorization"] == "Bearer secret"
        self.requested.extend(request["input"])
        vectors = enumerate(lengths(request["input"]))
        data = [{"index": index, "embedding": vector} for index, vector in vectors]
        answer = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        """Logs nothing."""


def test_an_endpoint_is_an_embedder_and_its_vectors_are_cached(tmp_path, shop_folder, schema_file):
    with http.server.HTTPServer(("127.0.0.1", 0), EmbeddingServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            roots = set()
            for out in ("first", "second"):
                endpoint = headwater.Endpoint(
                    f"http://127.0.0.1:{server.server_port}/v1",
                    "tiny",
                    tmp_path / "cache",
                    key="secret",
                )
                options = {"embedder": endpoint, "dimension": DIMENSION}
                report = headwater.prepare(shop_folder, schema_file, tmp_path / out, **options)
                roots.add(report["root"])
        finally:
            server.shutdown()
            thread.join()
    assert len(roots) == 1
    assert len(EmbeddingServer.requested) == len(set(EmbeddingServer.requested)) > 0
    store = headwater.Store(tmp_path / "first")
    assert store.metadata()["embedding"]["embedder"] == "model tiny"
    assert store.text_embedding(0).tolist() == [len(store.text(0))] * DIMENSION


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (
            lambda texts: np.zeros((len(texts), 7)),
            r"expected an array of shape \[9, 16\] .*, found \[9, 7\] for 9 texts",
        ),
        (lambda texts: np.full((len(texts), 16), np.nan), 'NaN for "customer id of customers"'),
    ],
    ids=["shape", "nan"],
)
def test_a_wrong_embedder_is_rejected(vectors, message, tmp_path, shop_folder, schema_file):
    with pytest.raises(headwater.HeadwaterError, match=message):
        headwater.prepare(shop_folder, schema_file, tmp_path / "db", embedder=vectors, dimension=16)
    assert not any(tmp_path.iterdir())


def test_exceptions_of_functions_are_raised(tmp_path, shop_folder, schema_file):
    def fails(texts):
        raise ZeroDivisionError("by the embedder")

    with pytest.raises(ZeroDivisionError, match="by the embedder"):
        headwater.prepare(shop_folder, schema_file, tmp_path / "db", embedder=fails)

    def stops(stage, done, total):
        if done > 0:
            raise LookupError(stage)

    with pytest.raises(LookupError, match="reading customers"):
        headwater.prepare(shop_folder, schema_file, tmp_path / "db", progress=stops)
    assert not any(tmp_path.iterdir())


def test_progress_is_reported(tmp_path, shop_folder, schema_file):
    calls = []
    headwater.prepare(
        shop_folder, schema_file, tmp_path / "db", progress=lambda *call: calls.append(call)
    )
    assert ("reading orders", 20_000, None) in calls
    assert ("embedding texts", 12, 12) in calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dimension": 0}, "dimension: expected 8 to 8192, found 0"),
        ({"dimension": -1}, "dimension: expected 8 to 8192, found -1"),
        ({"dimension": 10**50}, "expected a number within 128 bits, found 10+"),
        ({"threads": 0}, "threads: expected 1 to 1024"),
        ({"threads": -1}, "threads: expected 1 to 1024, found -1; None uses all cores"),
        (
            {"embedder": "bert"},
            r'expected "hashing", an Endpoint \(.*\), or a function .*, found "bert"',
        ),
        ({"embedder": None}, "embedder: expected .*, found NoneType"),
    ],
)
def test_arguments_are_checked(arguments, message, tmp_path, shop_folder, schema_file):
    with pytest.raises(headwater.InvalidArgument, match=message):
        headwater.prepare(shop_folder, schema_file, tmp_path / "db", **arguments)


def test_a_source_and_a_schema_of_a_wrong_type_are_rejected(tmp_path, shop_folder, schema_file):
    frame = pandas.DataFrame({"x": [1]})
    hint = r"""found pandas.*DataFrame; name the table, as in \{"name": frame\}"""
    with pytest.raises(headwater.InvalidArgument, match=hint):
        headwater.prepare(frame, schema_file, tmp_path / "db")
    with pytest.raises(headwater.InvalidArgument, match=hint):
        headwater.draft_schema(frame)
    with pytest.raises(headwater.InvalidArgument, match="source: expected a path .*, found int"):
        headwater.prepare(3, schema_file, tmp_path / "db")
    with pytest.raises(headwater.InvalidArgument, match="schema: expected a path, .*found list"):
        headwater.prepare(shop_folder, [], tmp_path / "db")


SILENT = """
import headwater, socket, sys
server = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
endpoint = headwater.Endpoint(url, "tiny", sys.argv[3] + ".cache")
print("ready", flush=True)
try:
    headwater.prepare(*sys.argv[1:], embedder=endpoint)
except KeyboardInterrupt:
    raise SystemExit(42)
"""


def test_ctrl_c_ends_the_wait_for_a_silent_server(tmp_path, shop_folder, schema_file):
    arguments = [sys.executable, "-c", SILENT, shop_folder, schema_file, tmp_path / "db"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(2)
    assert process.poll() is None
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert (process.returncode, time.monotonic() - sent < 2) == (42, True)
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory):
    """A source whose preparation takes several seconds."""
    folder = write_csv(tmp_path_factory.mktemp("long"), shop())
    with (folder / "orders.csv").open() as file:
        header, *lines = file.read().splitlines()
    with (folder / "orders.csv").open("w") as file:
        file.write(header + "\n")
        number = len(orders()["order_id"])
        for repeat in range(200):
            for line in lines:
                order, rest = line.split(",", 1)
                file.write(f"{int(order) + repeat * number},{rest}\n")
    return folder


@pytest.mark.parametrize("as_command", [True, False], ids=["command", "function"])
def test_ctrl_c_ends_a_preparation_within_a_second(as_command, tmp_path, long_folder, schema_file):
    out = tmp_path / "db"
    if as_command:
        arguments = ["-m", "headwater", "prepare", long_folder]
        arguments += ["--schema", schema_file, "--out", out]
    else:
        code = f"""
import headwater
try:
    headwater.prepare({str(long_folder)!r}, {str(schema_file)!r}, {str(out)!r})
except KeyboardInterrupt:
    raise SystemExit(42)
"""
        arguments = ["-c", code]
    process = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE)
    partial = tmp_path / "db.partial"
    deadline = time.monotonic() + 20
    while not (partial / "staging" / "orders.arrow").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=20)[1].decode()
    took = time.monotonic() - sent
    assert process.returncode == (130 if as_command else 42), errors
    # One second, and another one because a test machine may be busy.
    assert took < 2
    assert "Traceback" not in errors
    assert os.listdir(tmp_path) == []
