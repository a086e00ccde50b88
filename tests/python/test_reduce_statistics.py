"""The statistics of `headwater-reduce` besides the Gram, and the files that it reads."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from test_reduce import done, reduce

STATISTICS = [
    ["moments"],
    ["exact"],
    ["histogram", "--edges", -1, 0, 0.5],
    ["exponents"],
    ["distinct"],
    ["top", "--column", 2, "--count", 5],
    ["quantiles", "--at", 0.01, 0.5],
]


def result(out: Path) -> list[dict]:
    return json.loads(out.with_suffix(".json").read_text())["result"]


@pytest.fixture
def rows(tmp_path):
    rows = np.random.default_rng(5).standard_normal((4001, 3))
    rows[7, 0], rows[8, 1], rows[9, 2] = np.nan, np.inf, -np.inf
    np.save(tmp_path / "x.npy", rows)
    return rows


def test_moments_match_numpy(tmp_path, rows):
    out = tmp_path / "m.json"
    said = done("moments", "--input", tmp_path / "x.npy", "--shift", 0.5, "--out", out)
    assert (said["rows"], said["columns"]) == (4001, 3)
    assert "result" not in said
    for column, found in zip(rows.T, result(out), strict=True):
        finite = column[np.isfinite(column)]
        assert found["finite"] == len(finite) == 4000
        deviation = finite - finite.mean()
        expected = {
            "mean": finite.mean(),
            "variance": finite.var(),
            "std": finite.std(),
            "skewness": (deviation**3).mean() / finite.std() ** 3,
            "kurtosis": (deviation**4).mean() / finite.var() ** 2 - 3,
        }
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-9), name
    nan, plus, minus = result(out)
    assert (nan["nans"], plus["positive_infinities"], minus["negative_infinities"]) == (1, 1, 1)
    assert (nan["min"], nan["max"]) == (np.nanmin(rows[:, 0]), np.nanmax(rows[:, 0]))
    assert (plus["max"], minus["min"]) == ("Infinity", "-Infinity")


def about_mean(column):
    """Variance, skewness and excess kurtosis, in two passes."""
    deviation = column - column.mean()
    variance = (deviation**2).mean()
    shape = ((deviation**3).mean() / variance**1.5, (deviation**4).mean() / variance**2 - 3)
    return {"variance": variance, "skewness": shape[0], "kurtosis": shape[1]}


def test_moments_are_accurate_without_a_given_shift(tmp_path):
    rows = np.random.default_rng(8).standard_normal((5000, 4))
    rows[:, 1] += 1e9
    rows[:, 2] = 7.1
    rows[:, 3] = 1e300
    np.save(tmp_path / "x.npy", rows)
    fold = ["moments", "--input", tmp_path / "x.npy", "--out", tmp_path / "m.json"]
    told = reduce(*fold)
    assert (told.returncode, told.stderr) == (0, "")
    for column, found in zip(rows.T[:2], result(tmp_path / "m.json"), strict=False):
        # The mean of numbers near 1e9 is rounded; that of their differences to one of them is not.
        for name, value in about_mean(column - column[0]).items():
            assert found[name] == pytest.approx(value, rel=1e-6), name
    # 7.1 is not exact in binary, but all numbers are equal.
    for shift in ([], ["--shift", 0]):
        assert reduce(*fold, *shift).returncode == 0
        for value, found in zip((7.1, 1e300), result(tmp_path / "m.json")[2:], strict=True):
            assert (found["mean"], found["variance"], found["std"]) == (value, 0, 0)
            assert (found["skewness"], found["kurtosis"]) == (None, None)


def test_the_default_shift_is_the_median_of_the_first_rows(tmp_path):
    rows = np.random.default_rng(9).standard_normal((3000, 3))
    rows[:1024, 0] = np.nan
    rows[3, 1] = np.inf
    np.save(tmp_path / "x.npy", rows)
    fold = ["moments", "--input", tmp_path / "x.npy", "--out", tmp_path / "m.json"]
    digest = done(*fold)["digest"]
    shifts = [column["shift"] for column in result(tmp_path / "m.json")]
    lower = [np.sort(column[np.isfinite(column)]) for column in rows[:1024].T]
    expected = [0.0, *(column[(len(column) - 1) // 2] for column in lower[1:])]
    assert shifts == expected
    assert done(*fold, "--shift", *shifts)["digest"] == digest
    # The shift is a setting of the job: a checkpoint with another shift is refused.
    kept = ["--checkpoint-dir", tmp_path / "ck"]
    done(*fold, *kept)
    assert done(*fold, *kept, "--resume", "--shift", *shifts)["digest"] == digest
    told = reduce(*fold, *kept, "--resume", "--shift", 0)
    assert told.returncode == 1
    assert '"shifts" was' in told.stderr


def test_a_shift_far_from_the_mean_warns_and_gives_no_wrong_digits(tmp_path):
    rows = np.random.default_rng(10).standard_normal((5000, 3))
    rows[:, 1] += 1e4
    rows[:, 2] += 1e9
    np.save(tmp_path / "x.npy", rows)
    told = reduce(
        *["moments", "--input", tmp_path / "x.npy"], "--shift", 0, "--out", tmp_path / "m.json"
    )
    assert told.returncode == 0
    assert "columns 1, 2: " in told.stderr
    assert "set --shift to a number near the mean" in told.stderr
    near, far, farther = result(tmp_path / "m.json")
    assert near["kurtosis"] == pytest.approx(about_mean(rows[:, 0])["kurtosis"])
    assert far["variance"] == pytest.approx(rows[:, 1].var(), rel=1e-3)
    assert (far["skewness"], far["kurtosis"]) == (None, None)
    assert farther["mean"] == pytest.approx(1e9)
    assert [farther[name] for name in ("variance", "std", "skewness", "kurtosis")] == [None] * 4


def test_without_the_first_rows_a_shift_is_required(tmp_path, rows):
    for name, part in (("a", rows[:2000]), ("b", rows[2000:])):
        np.save(tmp_path / f"{name}.npy", part)
    listed = tmp_path / "all.json"
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    assert reduce("manifest", "--input", *files, "--out", listed).returncode == 0
    files[0].unlink()
    told = reduce("moments", "--input", listed, "--out", tmp_path / "m.json")
    assert told.returncode == 1
    assert "without --shift, the shift is taken from the first rows" in told.stderr
    assert "a.npy, which is not on this machine" in told.stderr
    assert "or copy it here, or set --shift" in told.stderr


def test_histograms_match_numpy(tmp_path, rows):
    out = tmp_path / "h.json"
    edges = [-1, -0.5, 0, 2]
    done("histogram", "--input", tmp_path / "x.npy", "--edges", *edges, "--out", out)
    for column, found in zip(rows.T, result(out), strict=True):
        assert found["between"] == np.histogram(column, edges)[0].tolist()
        assert found["below"] == (column < -1).sum()
        assert found["above"] == (column >= 2).sum()
        assert found["nans"] == np.isnan(column).sum()
    done("exponents", "--input", tmp_path / "x.npy", "--out", out)
    for column, found in zip(rows.T, result(out), strict=True):
        finite = column[np.isfinite(column) & (column < 0)]
        exponents, counts = np.unique(np.frexp(finite)[1] - 1, return_counts=True)
        expected = {str(e): c for e, c in zip(exponents, counts.tolist(), strict=True)}
        assert found["negative"]["exponents"] == expected


def test_distinct_counts_are_approximate_and_top_rows_exact(tmp_path):
    rows = np.random.default_rng(2).integers(0, 5000, (30_000, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    out = tmp_path / "d.json"
    done("distinct", "--input", tmp_path / "x.npy", "--out", out)
    for column, found in zip(rows.T, result(out), strict=True):
        assert found["distinct"] == pytest.approx(len(np.unique(column)), rel=0.04)
    for smallest in (False, True):
        options = ["--column", 1, "--count", 7, *(["--smallest"] if smallest else [])]
        done("top", "--input", tmp_path / "x.npy", *options, "--out", out)
        order = np.argsort(rows[:, 1] if smallest else -rows[:, 1], kind="stable")[:7]
        expected = [{"row": int(row), "value": float(rows[row, 1])} for row in order]
        assert result(out) == expected


def test_cross_products_match_numpy(tmp_path):
    random = np.random.default_rng(4)
    x, y = random.standard_normal((3000, 9)), random.standard_normal((3000, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    fold = ["cross", "--input", tmp_path / "x.npy", "--with", tmp_path / "y.npy"]
    said = done(*fold, "--out", tmp_path / "c.npy")
    assert (said["columns"], said["with_columns"]) == (9, 4)
    cross = np.load(tmp_path / "c.npy")
    assert np.allclose(cross, x.T @ y, rtol=1e-12, atol=1e-10)
    np.save(tmp_path / "y.npy", y[:-1])
    told = reduce(*fold, "--out", tmp_path / "c.npy")
    assert told.returncode == 1
    assert "expected 3000 rows in Y, as many as in X, found 2999" in told.stderr


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda statistic: statistic[0])
def test_p1_p2_threads_files_and_resuming_change_no_bit(tmp_path, rows, statistic):
    np.save(tmp_path / "a.npy", rows[:1000])
    np.save(tmp_path / "b.npy", rows[1000:])
    fold = [*statistic, "--out", tmp_path / "o.json", "--chunk-rows", 64]
    whole = ["--input", tmp_path / "x.npy"]
    digests = {done(*fold, *whole, "--threads", threads)["digest"] for threads in (1, 2, 7)}
    parts = ["--input", tmp_path / "b.npy", tmp_path / "a.npy", "--sorted"]
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", "0s"]
    digests.add(done(*fold, *parts, *kept)["digest"])
    # The newest checkpoint is complete; the one before is not.
    newest, *_ = sorted(tmp_path.glob("ck/**/*.portion"), reverse=True)
    newest.unlink()
    digests.add(done(*fold, *parts, *kept, "--resume")["digest"])
    assert len(digests) == 1
    exact = statistic[0] != "moments"
    other = done(*fold[:-1], 65, *whole)["digest"]
    assert (other in digests) == exact


def test_the_first_nonfinite_number_is_refused_with_its_place(tmp_path, rows):
    np.save(tmp_path / "a.npy", rows[:8])
    np.save(tmp_path / "b.npy", rows[8:])
    both = ["--input", tmp_path / "a.npy", tmp_path / "b.npy", "--chunk-rows", 4]
    out = ["--out", tmp_path / "g.npy", "--reject-nonfinite"]
    told = reduce("gram", *both, *out)
    assert told.returncode == 1
    assert "a.npy: row 7, column 0: expected a finite number, found NaN" in told.stderr
    np.save(tmp_path / "a.npy", np.zeros((8, 3)))
    told = reduce("gram", *both, *out)
    assert "b.npy: row 0, column 1: expected a finite number, found inf" in told.stderr
    np.save(tmp_path / "ones.npy", np.ones((4001, 1)))
    whole = ["--with", tmp_path / "x.npy", "--input", tmp_path / "ones.npy"]
    told = reduce("cross", *whole, *out)
    assert "x.npy: row 7, column 0: expected a finite number, found NaN" in told.stderr
    assert not (tmp_path / "g.npy").exists()
    assert done("gram", *both, "--out", tmp_path / "g.npy")["nonfinite_columns"] == 2


@pytest.mark.parametrize("statistic", ["gram", "cross"])
def test_p6_reject_nonfinite_refuses_sums_folded_without_it(tmp_path, rows, statistic):
    fold = [statistic, "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    fold += ["--with", tmp_path / "x.npy"] if statistic == "cross" else []
    kept = ["--checkpoint-dir", tmp_path / "ck"]
    done(*fold, *kept)
    refused = reduce(*fold, *kept, "--resume", "--reject-nonfinite")
    assert refused.returncode == 1
    assert '"reject_nonfinite" was not there and is now true' in refused.stderr
    # Blocks of a spool that was written without the option are refused as well.
    for spool, more in [("loose", []), ("strict", ["--reject-nonfinite"])]:
        without_out = [*fold[:3], *fold[5:]]
        assert reduce(*without_out, *more, "--spool", tmp_path / spool).returncode == 0
    work = ["work", "--rank", 0, "--of", 1, "--spool"]
    done(*work, tmp_path / "loose")
    told = reduce(*work, tmp_path / "strict")
    assert told.returncode == 1
    assert "x.npy: row 7, column 0: expected a finite number, found NaN" in told.stderr
    (block,) = tmp_path.glob("loose/*.portion")
    (tmp_path / "strict" / block.name).write_bytes(block.read_bytes())
    of_spool = ["fold", "--spool", tmp_path / "strict", "--out", tmp_path / "g.npy"]
    for command in ([*work, tmp_path / "strict"], of_spool):
        told = reduce(*command)
        assert told.returncode == 1
        assert '"reject_nonfinite" was not there and is now true' in told.stderr


def test_npy_safetensors_and_parquet_give_the_same_digest(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = np.random.default_rng(6).standard_normal((2000, 3))
    np.save(tmp_path / "x.npy", rows)
    header = json.dumps(
        {"x": {"dtype": "F64", "shape": [2000, 3], "data_offsets": [0, 48000]}}
    ).encode()
    tensor = struct.pack("<Q", len(header)) + header + rows.tobytes()
    (tmp_path / "x.safetensors").write_bytes(tensor)
    table = pyarrow.table({name: rows[:, at] for at, name in enumerate("abc")})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    digests = set()
    for name in ("x.npy", "x.safetensors", "x.parquet"):
        said = done("gram", "--input", tmp_path / name, "--out", tmp_path / "g.npy")
        digests.add(said["digest"])
    assert len(digests) == 1
    out = tmp_path / "c.npy"
    one = ["cross", "--input", tmp_path / "x.parquet", "--select", "c", "a"]
    done(*one, "--with", tmp_path / "x.parquet", "--with-select", "b", "--out", out)
    assert np.allclose(np.load(out), rows[:, [2, 0]].T @ rows[:, [1]])
    table = pyarrow.table({"a": [1.0, None], "t": ["x", "y"]})
    parquet.write_table(table, tmp_path / "n.parquet")
    nulls = ["--input", tmp_path / "n.parquet", "--select", "a"]
    done("moments", *nulls, "--out", tmp_path / "m.json")
    assert result(tmp_path / "m.json")[0]["nulls"] == 1
    for arguments, words in [
        (["gram", *nulls], "n.parquet: row 1, column 0: expected a number, found NULL"),
        (["gram", *nulls[:2]], 'column "t": expected floats'),
        (["gram", *nulls[:2], "--select", "b"], 'no column is named "b"; the columns are "a", "t"'),
        (
            ["gram", "--input", tmp_path / "x.safetensors", "--tensor", "y"],
            'no tensor is named "y"',
        ),
    ]:
        told = reduce(*arguments, "--out", out)
        assert told.returncode == 1, told.stderr
        assert words in told.stderr, told.stderr


def test_a_spool_folds_every_statistic_of_one_pass(tmp_path, rows):
    for statistic in [*STATISTICS, ["cross", "--with", tmp_path / "x.npy"]]:
        if statistic[0] == "quantiles":
            continue  # It is refused: its passes cannot share a spool.
        spool = tmp_path / f"spool-{statistic[0]}"
        out = tmp_path / ("o.npy" if statistic[0] == "cross" else "m.json")
        fold = [*statistic, "--input", tmp_path / "x.npy", "--chunk-rows", 100]
        straight = done(*fold, "--out", out)["digest"]
        assert reduce(*fold, "--spool", spool, "--block-chunks", 4).returncode == 0
        for rank in (1, 0):
            done("work", "--spool", spool, "--rank", rank, "--of", 2)
        assert done("fold", "--spool", spool, "--out", out)["digest"] == straight


def test_invalid_options_are_named(tmp_path, rows):
    x = ["--input", tmp_path / "x.npy", "--out", tmp_path / "o.json"]
    for arguments, status, words in [
        (["moments", "--shift", 1, 2], 1, "one for each of 3 columns, found 2"),
        (["moments", "--shift", "nan"], 1, "expected a finite shift for column 0, found NaN"),
        (["histogram"], 2, "--edges"),
        (["histogram", "--edges", 1, 0], 1, "expected increasing edges, found 0"),
        (["distinct", "--precision", 19], 2, "19"),
        (["top", "--column", 3], 1, "expected a column number below 3, found 3"),
        (["top", "--column", 0, "--count", 0], 1, "at least one row to keep"),
        (["cross"], 2, "--with"),
    ]:
        told = reduce(*arguments, *x)
        assert told.returncode == status, (arguments, told.stderr)
        assert words in told.stderr, told.stderr
        assert "panicked" not in told.stderr


@pytest.mark.parametrize(
    "command",
    ["gram", "cross", "moments", "exact", "histogram", "exponents", "distinct", "top", "quantiles"],
)
def test_help_lists_inputs_outputs_and_result(command):
    told = reduce(command, "--help")
    assert told.returncode == 0
    for words in ("--input", "--out", "--chunk-rows", "--select", "The result is"):
        assert words in " ".join(told.stdout.split())
