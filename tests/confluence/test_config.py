"""Settings: what is not one is refused by its name."""

import pytest

from confluence import config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.cell=96"], "there is no data.cell; there are data.stores, data.tasks"),
        (["dat.cells=96"], "there is no dat; there are model, data, optimizer, run"),
        (["cells=96"], "expected section.key=value, such as data.cells=96, found 'cells=96'"),
        (["data.cells"], "expected section.key=value"),
        (["data.cells=many"], "expected int as data.cells, found 'many'"),
        (["data.cells=1.5"], "expected int as data.cells, found 1.5"),
        (["data.cells=true"], "expected int as data.cells, found True"),
        (["data.cells=0"], "expected at least 2 as data.cells, found 0"),
        (["model.attention=sparse"], "expected 'dense' or 'structured' as model.attention"),
        (["data.split_ratios=[0.5, 0.5]"], "expected 3 values as data.split_ratios"),
        (["model.width=10", "model.heads=4"], "that model.heads divides, found 10 and 4"),
        (["data.task_weights=[1.0]"], "found 0 tasks and 1 weights"),
        (["run.sinks=['tensorbord']"], "expected 'tensorboard' or 'wandb' as run.sinks"),
        (["optimizer.muon_rate=-1"], "expected at least 0 as optimizer.muon_rate, found -1.0"),
        (["optimizer.adam_rate=nan"], "expected a finite number as optimizer.adam_rate, found nan"),
        (["data.child_widths=3"], 'expected a table such as { "a.b" = 1 } as data.child_widths'),
        (['data.child_widths={"a.b" = true}'], "expected int as data.child_widths['a.b']"),
        (["data.child_widths={a.b = 1}"], 'must be in quotes: { "a.b" = 1 }'),
        (["optimizer.mean_share=1"], "expected less than 1 as optimizer.mean_share"),
    ],
)
def test_what_is_no_setting_is_refused_by_name(settings, words):
    with pytest.raises(config.ConfigError, match=words.replace("[", r"\[").replace("(", r"\(")):
        config.load(None, settings)


def test_a_file_that_is_not_there_names_the_presets():
    with pytest.raises(config.ConfigError, match="one of the presets base, cpu-small"):
        config.load("cpu-smal")


@pytest.mark.parametrize("name", config.presets())
def test_what_is_written_down_is_read_back(name, tmp_path):
    widths = 'data.child_widths={ "a.b" = 3, "c/d.e+f" = 0 }'
    made = config.load(name, ["data.stores='a\"b\\\\c'", "data.tasks=['x', 'y']", widths])
    path = tmp_path / "config.toml"
    path.write_text(made.to_toml())
    assert config.load(path) == made
    assert config.from_dict(made.to_dict()) == made


def test_what_makes_another_run_is_named_and_what_does_not_is_not():
    ours = config.load("cpu-small")
    theirs = config.load("cpu-small", ["data.seed=7", "run.keep=9"]).to_dict()
    assert config.differences(ours, theirs) == ["data.seed is 42, and was 7"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[data]\ncells = 9\xff", "is not TOML"),
        (b"data = 3", "expected a section .data., found the value 3"),
        (b"[data]\ncells = [", "is not TOML"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(text, words, tmp_path):
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(config.ConfigError, match=words):
        config.load(tmp_path / "c.toml", ["data.cells=96"])


def test_a_run_may_move_its_data_and_its_threads_but_not_how_its_best_is_chosen():
    ours = config.load(None, ["data.stores=here", "run.threads=2", "run.evaluate_batches=3"])
    theirs = config.load(None, ["data.stores=there", "run.evaluate_batches=4"]).to_dict()
    del theirs["optimizer"]["mean_share"]
    assert config.differences(ours, theirs) == ["run.evaluate_batches is 3, and was 4"]
