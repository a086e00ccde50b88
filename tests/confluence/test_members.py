"""Members: runs that differ in the seed of their parameters, and predict together."""

import csv
import shutil

import numpy as np
import pytest

from confluence import config, members
from confluence.batch import BOOLEAN, CATEGORICAL
from confluence.step import Outputs
from runs import confluence_here, records, results, run, start_run, wait_for_step


@pytest.fixture(scope="module")
def pair(tiny, tmp_path_factory):
    """A finished run of two members; the first has the settings of `whole`."""
    out = tmp_path_factory.mktemp("pair") / "run"
    finished = run(tiny, out, "--members", 2)
    assert finished.returncode == 0, finished.stderr
    (out / "stdout").write_text(finished.stdout)
    return out


def test_members_are_runs_that_differ_in_their_seed(pair, whole):
    assert records(pair / "member-0") == records(whole)
    assert results(pair / "member-0") == results(whole)
    ours, theirs = ((pair / f"member-{n}/config.toml").read_text().splitlines() for n in (0, 1))
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == [
        ("seed = 0", "seed = 1")
    ]
    assert records(pair / "member-1")[0]["loss"] != records(whole)[0]["loss"]


def test_results_are_of_the_mean_and_list_the_members(pair):
    found = results(pair)
    each = [results(pair / f"member-{n}") for n in (0, 1)]
    assert (found["step"], found["members"]) == (None, [of["step"] for of in each])
    for task, of_task in found["tasks"].items():
        for split in ("val", "test"):
            theirs = [of["tasks"][task][split] for of in each]
            leading = of_task["leading"]
            assert of_task[split]["members"] == [of[leading] for of in theirs]
            assert of_task[split]["seeds"] == theirs[0]["seeds"]
            assert of_task[split]["baselines"] == theirs[0]["baselines"]
            if "bias" in of_task[split]:
                mean = np.mean([of["bias"] for of in theirs])
                assert of_task[split]["bias"] == pytest.approx(mean, abs=1e-4)
    spend = found["tasks"]["demo-shop/spend"]["test"]
    assert spend["rmse"] < np.mean([of["tasks"]["demo-shop/spend"]["test"]["rmse"] for of in each])
    assert (pair / "curves.png").exists()
    assert "<td>member 1</td>" in (pair / "report.html").read_text()
    line = next(li for li in (pair / "stdout").read_text().splitlines() if "spend" in li)
    assert line.endswith(" ".join(f"{of:.4f}" for of in spend["members"])) or "val" in line


def test_evaluate_and_predict_take_the_mean_of_the_members(pair, tmp_path):
    shown = confluence_here("evaluate", pair)
    assert shown.returncode == 0, shown.stderr
    steps = ", ".join(map(str, results(pair)["members"]))
    assert shown.stdout.startswith(f"mean of 2 members, steps {steps}\n")
    for of_task in results(pair)["tasks"].values():
        assert f"{of_task['test'][of_task['leading']]:.4f}" in shown.stdout
    (tmp_path / "seeds.csv").write_text("key,at\n1,2022-01-01\n7,2022-01-01\n")

    def predicted(folder):
        out = tmp_path / f"{folder.name}.csv"
        options = ["--task", "churn", "--seeds", tmp_path / "seeds.csv", "--out", out]
        finished = confluence_here("predict", folder, *options)
        assert finished.returncode == 0, finished.stderr
        rows = list(csv.DictReader(out.read_text().splitlines()))
        return [[float(row["prediction"]), float(row["null_probability"])] for row in rows]

    each = [predicted(pair / f"member-{n}") for n in (0, 1)]
    assert each[0] != each[1]
    np.testing.assert_allclose(predicted(pair), np.mean(each, axis=0), atol=2e-6)


def test_the_intervals_of_a_mean_are_from_its_own_errors(pair, tmp_path):
    def bins(folder):
        val = results(folder)["tasks"]["demo-shop/spend"]["val"]
        return val["prediction_intervals"]["bins"]

    own = bins(pair)
    assert own != bins(pair / "member-0")
    (tmp_path / "seeds.csv").write_text("key,at\n1,2022-01-01\n")
    shown = confluence_here("predict", pair, "--task", "spend", "--seeds", tmp_path / "seeds.csv")
    assert shown.stderr == ""
    (row,) = csv.DictReader(shown.stdout.splitlines())
    names = ("prediction_low", "prediction", "prediction_high")
    low, value, high = (float(row[name]) for name in names)
    (of_value,) = [of for of in own if value <= of["to"]][:1] or own[-1:]
    assert (low - value, high - value) == pytest.approx(
        (of_value["low"], of_value["high"]), rel=1e-3
    )


def test_p2_a_run_killed_in_a_member_resumes_in_it(pair, tiny, tmp_path):
    out = tmp_path / "run"
    # The first member has ended.
    out.mkdir()
    shutil.copytree(pair / "member-0", out / "member-0")
    shutil.copy(pair / "config.toml", out)
    ended = (out / "member-0/results.json").stat().st_mtime_ns
    process = start_run([], out, "--resume")
    wait_for_step(process, out / "member-1", 5)
    process.kill()
    process.communicate()
    finished = run([], out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert "member-0" not in finished.stderr
    assert "confluence: resuming after step" in finished.stderr
    assert (out / "member-0/results.json").stat().st_mtime_ns == ended
    assert records(out / "member-1") == records(pair / "member-1")
    assert results(out) == results(pair)


def test_members_of_other_settings_or_kinds_are_refused(pair, whole, tiny, tmp_path):
    before = (pair / "config.toml").read_text()
    for number in range(3):
        (tmp_path / "three" / f"member-{number}").mkdir(parents=True)
    for arguments, message in (
        (([*tiny, "data.seed=7"], pair, "--resume", "--members", 2), "data.seed is 7, the check"),
        ((["run.members=1"], pair, "--resume"), "which holds a run of members, found none"),
        ((tiny, tmp_path / "three", "--members", 2), f"2 members in {tmp_path / 'three'}, found 3"),
        (([], whole, "--resume", "--members", 2), "found a run without members in"),
        ((tiny, tmp_path / "a", "--members", 2, "--from", whole), "--from or --members, found bo"),
        ((tiny, tmp_path / "b", "--from", pair), f"start from one of them: --from {pair}/member"),
        ((tiny, tmp_path / "c", "--members", 0), "at least 1 for run.members, found 0"),
    ):
        refused = run(*arguments)
        assert refused.returncode == 1
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr
    assert (pair / "config.toml").read_text() == before


def test_the_mean_of_categories_is_that_of_their_probabilities():
    def outputs(*probabilities):
        values = np.array(probabilities, np.float32)
        count = len(values)
        filled = {name: np.zeros(count, np.float32) for name in Outputs._fields}
        value = np.argmax(values, axis=1).astype(np.float32)
        return Outputs(**{**filled, "categories": values, "value": value})

    each = [
        outputs([0.4, 0.6, 0], [0, 0, 1]),
        outputs([0.45, 0.55, 0], [0, 0, 1]),
        outputs([0.9, 0.1, 0], [0, 0, 1]),
    ]
    # A vote would choose the second one.
    assert members.mean(each, CATEGORICAL).value.tolist() == [0, 2]
    assert members.mean(each, BOOLEAN).value.tolist() == pytest.approx([2 / 3, 2])
    # One model is its own mean.
    assert members.mean(each[:1], CATEGORICAL).value.tolist() == [1, 2]


def of_members(count, *more):
    settings = ["data.stores=here", "optimizer.seed=5", "run.boosting=true", *more]
    return config.load(None, [*settings, f"run.members={count}"])


def test_each_member_is_a_run_of_its_own_in_its_folder(tmp_path):
    assert members.folders(tmp_path, of_members(1)) == [tmp_path]
    assert members.settings_of(of_members(1)) == [of_members(1)]
    names = [of.name for of in members.folders(tmp_path, of_members(2))]
    assert names == ["member-0", "member-1"]
    found = members.settings_of(of_members(2))
    assert [of.optimizer.seed for of in found] == [5, 6]
    # Boosting is the same beside each of them.
    assert [(of.run.members, of.run.boosting) for of in found] == 2 * [(1, False)]
    assert all(of.data == of_members(2).data for of in found)


def test_a_folder_is_of_members_or_of_a_run(tmp_path):
    def refused(count, *more):
        with pytest.raises(config.ConfigError) as found:
            members.check(tmp_path, of_members(count, *more))
        return str(found.value)

    for count in (1, 2):
        members.check(tmp_path, of_members(count))
    (tmp_path / "member-0").mkdir()
    from_members = refused(1, f"optimizer.start_from={tmp_path}")
    assert from_members.endswith(f"start from one of them: --from {tmp_path / 'member-0'}")
    assert "expected --members N for" in refused(1)
    (tmp_path / "member-1").mkdir()
    members.check(tmp_path, of_members(2))
    (tmp_path / "member-2").mkdir()
    assert "expected no more than 2 members in" in refused(2)
    for number in range(3):
        (tmp_path / f"member-{number}").rmdir()
    elsewhere = f"optimizer.start_from={tmp_path}"
    members.check(tmp_path, of_members(1, elsewhere))
    assert refused(2, elsewhere).startswith("expected --from or --members, found both")
    (tmp_path / "checkpoints").mkdir()
    members.check(tmp_path, of_members(1))
    assert "found a run without members" in refused(2)
