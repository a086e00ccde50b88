"""Configurations: invalid settings are refused by name."""

import dataclasses
import inspect
import os
import re
import tomllib

import pytest

import headwater
from confluence import config, feed, prediction
from confluence.parallel import Processes
from headwater import _headwater


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["data.sequence_len=96"],
            "unknown key data.sequence_len; did you mean data.sequence_length?",
        ),
        (["data.cells=96"], "unknown key data.cells; expected one of data.stores, data.tasks, dat"),
        (["dat.seed=96"], "unknown key dat; did you mean data?"),
        (["task.seed=96"], "unknown key task; expected one of model, data, optimizer, run"),
        (["seed=96"], "section.key=value, such as data.sequence_length=96, found 'seed=96'"),
        (["data.seed"], "expected section.key=value"),
        (["data.sequence_length=many"], "expected an integer for data.sequence_length, found 'ma"),
        (["data.sequence_length=1.5"], "expected an integer for data.sequence_length, found 1.5"),
        (["data.sequence_length=true"], "expected an integer for data.sequence_length, found True"),
        (["data.sequence_length=0"], "expected at least 2 for data.sequence_length, found 0"),
        (["model.ages=1"], "expected true or false for model.ages, found 1"),
        (["model.epochs=1"], "expected 'auto' or true or false for model.epochs, found 1"),
        (["model.attention=sparse"], "expected 'dense' or 'structured' for model.attention"),
        (["data.split_ratios=[0.5, 0.5]"], "expected 3 values for data.split_ratios"),
        (["model.width=10", "model.heads=4"], "that model.heads divides, found 10 and 4"),
        (["data.visible_until=soon"], "data.visible_until: expected an observation time, found"),
        (
            ["data.visible_until=2022"],
            'expected a string for data.visible_until, found 2022; write visible_until = "2022", '
            "on the command line --set 'data.visible_until=\"2022\"'",
        ),
        (["data.staleness_days=100000"], "expected at most 36525 (100 years) for data.stalen"),
        (["data.task_weights=[1.0]"], "0 in all, found 1;"),
        (
            ["data.sequence_buckets=32,64"],
            "expected a list of integers such as [32,64] for data.sequence_buckets, found '32,64'",
        ),
        (
            ["data.task_weights=2,1"],
            "expected a list of numbers such as [1,0.5] for data.task_weights, found '2,1'",
        ),
        (
            ["data.split_ratios=0.8,0.1,0.1"],
            "expected a list of 3 numbers such as [0.8,0.1,0.1] for data.split_ratios, found '0.8,",
        ),
        (
            ["data.sequence_buckets=[32,'a']"],
            "expected an integer for data.sequence_buckets, found",
        ),
        (
            ["data.mask_share=0.1", "data.pools={ a = '' }", "data.task_weights=[1.0, 2.0]"],
            "1 in all, found 2;",
        ),
        (
            ["data.mask_share=-0.1"],
            "expected at least 0 and less than 1 for data.mask_share, found -0.1; 0.15 masks about",
        ),
        (["data.mask_share=15"], "and less than 1 for data.mask_share, found 15.0; 0.15 masks"),
        (
            ["data.mask_share=0.1", "data.sequence_length=64", "data.mask_most=65"],
            "expected at least 0 and at most 64 for data.mask_most, found 65, because "
            "data.sequence_length gives a context 64 cells; 0 is what contexts rarely exceed",
        ),
        (["data.mask_most=3"], "expected no data.mask_most, because data.mask_share is 0, found 3"),
        (["data.mask_texts=false"], "expected no data.mask_texts, because data.mask_share is 0"),
        (["optimizer.mask_weight=0.5"], "expected no optimizer.mask_weight, because data.mask_sh"),
        (["data.pools={ orders = '' }"], "expected a data.mask_share above 0 with data.pools"),
        (
            ["data.mask_share=0.1", "data.pools={ a = 'x' }"],
            "data.pools['a']: expected an observation time, found 'x': not a date such as "
            '"2024-01-31"; "" is the own time of each row',
        ),
        (
            ["data.pools=['a', 'b/c']"],
            'such as { a = "", "b/c" = "" } for data.pools, found [\'a\', \'b/c\']; '
            '"" is the own time of each row, "2024-06-01" one for all rows',
        ),
        (["data.pools=a"], "expected a table such as { a = \"\" } for data.pools, found 'a'"),
        (["data.pools=3"], 'expected a table such as { orders = "" } for data.pools, found 3'),
        (["data.pools="], "for data.pools, found ''; write data.pools={} for none"),
        (
            ["data.pools.orders=''"],
            "unknown key data.pools.orders; set the whole table: --set "
            "'data.pools={ orders = ... }'",
        ),
        (
            ["data.mask_weight=1"],
            "unknown key data.mask_weight; did you mean optimizer.mask_weight?",
        ),
        (["data.mask_shares=1"], "unknown key data.mask_shares; did you mean data.mask_share?"),
        (
            ["data.pools={ a = 3 }"],
            "expected a time in quotes for data.pools['a'], found 3; write { a = \"2024-06-01\" }, "
            'on the command line --set \'data.pools={ a = "2024-06-01" }\'; "" is the own time',
        ),
        (
            ["data.pools={ 'a/b' = true }"],
            'data.pools[\'a/b\'], found true; write { "a/b" = "2024-06-01" }, on the',
        ),
        (["data.pools={ a.b = '' }"], 'with a dot in data.pools: { "a.b" = "" }'),
        (
            ["data.pools={ shop/orders = '' }"],
            "for data.pools, found \"{ shop/orders = '' }\": Expected '=' after a key in a "
            "key/value pair; put double quotes around texts and around names with a slash, and "
            "single quotes around the whole: --set 'data.pools=...'",
        ),
        (["data.tasks="], "expected a list for data.tasks, found ''; write data.tasks=[] for none"),
        (["data.tasks=[churn]"], "for data.tasks, found '[churn]': Invalid value; put double quo"),
        (["data.mask_share=true"], "expected a number for data.mask_share, found True"),
        (["data.mask_most=true"], "expected an integer for data.mask_most, found True"),
        (["data.max_rows=false"], "expected an integer for data.max_rows, found False"),
        (["data.batch_size=true"], "expected an integer for data.batch_size, found True"),
        (["data.task_weights=[true]"], "expected a number for data.task_weights, found True"),
        (["data.split_ratios=[1, true, 0]"], "a number for data.split_ratios, found True"),
        (["data.child_widths={ 'a.b' = true }"], "data.child_widths['a.b'], found True"),
        (["data.mask_share='0.1'"], "expected a number for data.mask_share, found '0.1'"),
        (["data.mask_share="], "expected a number for data.mask_share, found ''"),
        (["data.mask_share=[0.1]"], "expected a number for data.mask_share, found [0.1]"),
        (["data.mask_most='3'"], "expected an integer for data.mask_most, found '3'"),
        (["data.mask_most=2.5"], "expected an integer for data.mask_most, found 2.5"),
        (["data.mask_texts=1"], "expected true or false for data.mask_texts, found 1"),
        (["data.mask_texts=yes"], "expected true or false for data.mask_texts, found 'yes'"),
        (
            ["data.require_label=true"],
            "unknown key data.require_label; expected one of data.stores",
        ),
        (["run.sinks=['tensorbord']"], "expected 'tensorboard' or 'wandb' for run.sinks"),
        (["optimizer.muon_rate=-1"], "expected at least 0 for optimizer.muon_rate, found -1.0"),
        (["optimizer.muon_rate=x"], "expected a number for optimizer.muon_rate, found 'x'"),
        (["optimizer.adam_rate=nan"], "expected a finite number for optimizer.adam_rate, found na"),
        (["data.child_widths=3"], 'expected a table such as { "a.b" = 1 } for data.child_widths'),
        (['data.child_widths={"a.b" = true}'], "expected an integer for data.child_widths['a.b']"),
        (
            ["data.child_widths={a.b = 1}"],
            "expected quotes around names with a dot in data.child_w",
        ),
        (["data.child_widths={a.b = 1}"], '{ "a.b" = 1 }'),
        (["optimizer.mean_share=1"], "expected less than 1 for optimizer.mean_share"),
        (["optimizer.muon_beta=1"], "expected less than 1 for optimizer.muon_beta, found 1.0"),
        (["optimizer.adam_b2=-0.1"], "expected at least 0 for optimizer.adam_b2, found -0.1"),
        (["optimizer.schedule='cosin'"], "expected 'cosine' or 'linear' or 'constant' for optim"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(settings, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load(None, settings)


@pytest.mark.parametrize("value", ["true", "[1]", "{ a = 1 }"])
def test_only_a_number_in_place_of_a_text_gets_quotes(value):
    with pytest.raises(config.ConfigError, match="found [^;]*$"):
        config.load(None, [f"data.visible_until={value}"])


def test_a_name_that_is_a_number_is_refused():
    with pytest.raises(config.ConfigError, match="a string for each name in data.pools, found 3"):
        config.from_dict({"data": {"pools": {3: ""}, "mask_share": 0.1}})


def test_a_pipe_in_place_of_a_configuration_or_of_seeds_is_told(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(config.ConfigError, match="expected a file, found a pipe"):
        config.load(str(pipe))
    with pytest.raises(config.ConfigError, match="expected a file, found a pipe"):
        prediction.read_seeds(pipe)


def test_a_missing_file_names_the_presets():
    with pytest.raises(config.ConfigError, match="one of the presets base, cpu-small"):
        config.load("cpu-smal")


@pytest.mark.parametrize("name", config.presets())
def test_a_written_configuration_is_read_back(name, tmp_path):
    widths = 'data.child_widths={ "a.b" = 3, "c/d.e+f" = 0 }'
    made = config.load(name, ["data.stores='a\"b\\\\c'", "data.tasks=['x', 'y']", widths])
    path = tmp_path / "config.toml"
    path.write_text(made.to_toml())
    assert config.load(path) == made
    assert config.from_dict(made.to_dict()) == made


def test_only_differences_that_change_the_run_are_named():
    ours = config.load("cpu-small")
    theirs = config.load("cpu-small", ["data.seed=7", "run.keep=9"]).to_dict()
    assert config.differences(ours, theirs) == ["data.seed is 42, the checkpoint has 7"]


OF_OTHER_WALK = {
    "child_width": ("breadth", "child_width=4", "4"),
    "child_widths": ("breadth", 'child_widths={"a.b" = 1}', "{'a.b': 1}"),
    "children": ("breadth", "children=latest", "'latest'"),
    "max_hops": ("priority", "max_hops=2", "2"),
    "budget": ("priority", "budget=2", "2"),
}


@pytest.mark.parametrize("key", OF_OTHER_WALK)
def test_a_setting_of_the_other_walk_is_refused(key, tiny_config, tmp_path):
    walk, setting, found = OF_OTHER_WALK[key]
    message = (
        f'expected no data.{key}, because data.walk = "{walk}" does not use it, found {found}; '
        "leave it out"
    )
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load(None, [f"data.walk={walk}", f"data.{setting}"])
    path = tmp_path / "train.toml"
    path.write_text(f'[data]\nwalk = "{walk}"\n{setting.replace("latest", repr("latest"))}\n')
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load(path)
    other = config.load(None, [f"data.{setting}", f"data.walk={OTHER_WALK[walk]}"]).data
    data = dataclasses.replace(tiny_config.data, walk=walk, child_width=16)
    data = dataclasses.replace(data, **{key: getattr(other, key)})
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        feed.open_sampler(data, tiny_config.run, Processes())


OTHER_WALK = {"priority": "breadth", "breadth": "priority"}


def test_defaults_of_the_other_walk_are_not_refused(tmp_path):
    for walk in OTHER_WALK:
        made = config.load(None, [f"data.walk={walk}"])
        (tmp_path / "c.toml").write_text(made.to_toml())
        assert config.load(tmp_path / "c.toml") == made


@pytest.mark.parametrize("name", config.presets())
def test_another_walk_takes_nothing_of_a_preset(name):
    given = ["data.walk=breadth", "data.max_hops=2"]
    for made in (config.load(name, given), config.changed(config.load(name), given)):
        found = {key: getattr(made.data, key) for key in ("child_width", "children", "max_hops")}
        assert found == {"child_width": 16, "children": "uniform", "max_hops": 2}
    with pytest.raises(config.ConfigError, match=r"expected no data\.child_width"):
        config.load(name, [*given, "data.child_width=3"])


def test_a_run_from_before_another_walk_was_refused_still_resumes(tmp_path):
    """Its configuration and its checkpoints have what the preset set for the other walk."""
    settings = config.load("cpu-small")
    data = dataclasses.replace(settings.data, walk="breadth", budget=5)
    older = dataclasses.replace(settings, data=data)
    (tmp_path / "config.toml").write_text(older.to_toml())
    found = config.load_run(tmp_path)
    assert (found.data.walk, found.data.budget, found.data.child_width) == ("breadth", 5, 16)
    assert config.differences(found, older.to_dict()) == []
    other = config.load_run(tmp_path, ["data.budget=6"])
    assert config.differences(other, older.to_dict()) == ["data.budget is 6, the checkpoint has 5"]
    # A setting of a walk that either of the two uses does count.
    ours = config.load(None, ["data.max_hops=2", "data.walk=breadth"])
    theirs = config.load(None, ["data.child_width=3"]).to_dict()
    assert [line.partition(" ")[0] for line in config.differences(ours, theirs)] == [
        "data.child_width", "data.max_hops", "data.walk"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[data]\nsequence_length = 9\xff", "is not a TOML file"),
        (b"data = 3", "expected a section .data. with keys, found the value 3"),
        (b"[data]\nsequence_length = [", "is not a TOML file"),
    ],
)
def test_an_invalid_file_is_refused(text, message, tmp_path):
    (tmp_path / "c.toml").write_bytes(text)
    with pytest.raises(config.ConfigError, match=message):
        config.load(tmp_path / "c.toml", ["data.sequence_length=96"])


def test_stores_and_threads_may_change_but_not_how_the_best_is_chosen():
    ours = config.load(None, ["data.stores=here", "run.threads=2", "run.evaluate_batches=3"])
    theirs = config.load(None, ["data.stores=there", "run.evaluate_batches=4"]).to_dict()
    del theirs["optimizer"]["mean_share"]
    assert config.differences(ours, theirs) == ["run.evaluate_batches is 3, the checkpoint has 4"]


def test_the_settings_of_a_run_have_the_defaults_of_the_sampler():
    data, run = config.Data(), config.Run()
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(headwater.Sampler).parameters.items()
    }
    for name in ("max_rows", "walk", "seed", "split_seed", "split_ratios"):
        assert getattr(data, name) == defaults[name], name
    assert data.batch_size == defaults["default_batch_size"]
    assert data.sequence_length == defaults["default_sequence_length"]
    # What one walk alone uses is None in the sampler, whose own defaults are these.
    core = _headwater.sampler_defaults()
    assert data.child_width == core["bfs_child_width"]
    for name in ("children", "bfs_child_width", "max_hops", "neighbor_budget"):
        assert defaults[name] is None, name
    assert run.prefetch == defaults["num_prefetch"]


def test_a_checkpoint_from_before_the_step_to_start_from_was_recorded_is_resumed():
    ours = config.load(None, ["optimizer.start_digest=a1", "optimizer.start_step=6"])
    theirs = config.load(None, ["optimizer.start_digest=a1"]).to_dict()
    del theirs["optimizer"]["start_step"]
    assert config.differences(ours, theirs) == []
    theirs["optimizer"]["start_digest"] = "b2"
    assert config.differences(ours, theirs) == [
        "optimizer.start_digest is 'a1', the checkpoint has 'b2'"
    ]


def test_a_date_needs_no_quotes(tmp_path):
    path = tmp_path / "train.toml"
    path.write_text("[data]\nvisible_until = 2010-01-01\n")
    assert config.load(path).data.visible_until == "2010-01-01"
    assert config.load(None, ["data.visible_until=2010-01-01"]).data.visible_until == "2010-01-01"


# Another value of each setting, with the settings that it needs.
OTHER_DATA = {
    "tasks": {"tasks": ("churn",)},
    "task_weights": {"task_weights": (1.0, 2.0)},
    "batch_size": {"batch_size": 4},
    "sequence_length": {"sequence_length": 41},
    "sequence_buckets": {"walk": "breadth", "max_hops": 1, "budget": 1, "sequence_buckets": (30,)},
    "max_rows": {"max_rows": 13},
    "child_width": {"child_width": 4},
    "child_widths": {"child_widths": {"orders.customer_id": 1}},
    "aggregates": {"aggregates": "all"},
    "visible_until": {"visible_until": "2022-01-01"},
    "staleness_days": {"staleness_days": 3},
    "children": {"children": "latest"},
    "walk": {"walk": "breadth"},
    "max_hops": {"walk": "breadth", "max_hops": 2},
    "budget": {"walk": "breadth", "budget": 2},
    "seed": {"seed": 43},
    "split_seed": {"split_seed": 124},
    "split_ratios": {"split_ratios": (0.7, 0.1, 0.2)},
    "texts": {"texts": "batch"},
    "pools": {"mask_share": 0.5, "pools": {"orders": ""}},
    "mask_share": {"mask_share": 0.5},
    "mask_most": {"mask_share": 0.5, "mask_most": 3},
    "mask_texts": {"mask_share": 0.5, "mask_texts": False},
}


def test_no_setting_of_the_data_is_ignored(demo_store, tmp_path):
    """Each changes the plan of the sampler or, if it changes the form alone, the batches."""
    base = config.Data(
        stores=(str(demo_store),), tasks=("churn", "spend"), batch_size=2, sequence_length=40,
        max_rows=12, child_width=3,
    )  # fmt: skip
    breadth = dataclasses.replace(base, walk="breadth", child_width=16)
    masks = dataclasses.replace(base, mask_share=0.5)
    source = demo_store.parent / "data"
    headwater.prepare(source, source / "schema.toml", tmp_path / "other", dimension=16)
    others = OTHER_DATA | {"stores": {"stores": (str(tmp_path / "other"),)}}
    assert set(others) == {field.name for field in dataclasses.fields(config.Data)}

    def sampled(data):
        with feed.open_sampler(data, config.Run(prefetch=0, threads=1), Processes()) as sampler:
            form = {name: of.shape for name, of in sampler.next_train_batch().items()}
            return headwater.Cursor.decode(sampler.cursor()).fingerprint, form

    # What a setting is compared with, if it needs another one.
    needs = {"max_hops": breadth, "budget": breadth, "sequence_buckets": breadth, "pools": masks,
             "mask_most": masks, "mask_texts": masks}  # fmt: skip
    plans = {data: sampled(of) for data, of in enumerate((base, breadth, masks))}
    for name, changes in others.items():
        is_breadth = changes.get("walk") == "breadth"
        fingerprint, form = sampled(dataclasses.replace(breadth if is_breadth else base, **changes))
        plain, usual = plans[(base, breadth, masks).index(needs.get(name, base))]
        if name in ("batch_size", "sequence_buckets", "texts"):
            assert form != usual, name
        else:
            assert fingerprint != plain, name


# What a run from before there was a setting means by it, but for those in `config._OLDER`.
DEFAULTS = """
[model]
width = 256
heads = 4
layers = 6
hidden = 768
attention = "dense"
compute = "auto"
rematerialise = true
ages = true
epochs = "auto"

[data]
stores = []
tasks = []
task_weights = []
pools = {  }
mask_share = 0.0
mask_most = 0
mask_texts = true
batch_size = 32
sequence_length = 1024
sequence_buckets = []
max_rows = 208
child_width = 16
child_widths = {  }
aggregates = "near"
visible_until = ""
staleness_days = 0
children = "uniform"
walk = "priority"
max_hops = 3
budget = 16
seed = 42
split_seed = 123
split_ratios = [0.8, 0.1, 0.1]
texts = "global"

[optimizer]
steps = 10000
warmup_steps = 500
muon_rate = 0.02
adam_rate = 0.0003
schedule = "cosine"
final_share = 0.1
muon_beta = 0.95
adam_b1 = 0.9
adam_b2 = 0.95
weight_decay = 0.1
clip_norm = 1.0
mean_share = 0.0
mask_weight = 1.0
patience = 0
microbatches = "auto"
seed = 0
start_from = ""
start_digest = ""
start_step = 0

[run]
evaluate_every = 1000
evaluate_batches = 0
checkpoint_every = 500
keep = 2
members = 1
boosting = true
log_every = 20
sinks = []
ahead_on_device = 2
prefetch = 3
threads = 0
timeout_seconds = 600
"""


def test_the_defaults_are_those_of_older_runs(tmp_path):
    """Another default would be another run for a configuration that does not name the setting."""
    assert config.Config().to_toml() == DEFAULTS.lstrip()
    (tmp_path / "config.toml").write_text("")
    assert config.load_run(tmp_path) == config.load(None, ["optimizer.microbatches=0"])
    (tmp_path / "config.toml").write_text("[optimizer]\nmicrobatches = 4\n")
    assert config.load_run(tmp_path).optimizer.microbatches == 4


def test_the_least_values_are_accepted():
    ones = [
        *("model.width", "model.heads", "model.layers", "model.hidden", "data.batch_size"),
        *("data.max_rows", "data.child_width", "optimizer.steps", "optimizer.microbatches"),
        *("run.checkpoint_every", "run.keep", "run.members", "run.log_every"),
        *("run.ahead_on_device", "run.timeout_seconds"),
    ]
    zeros = [
        *("data.staleness_days", "data.mask_share", "data.mask_most", "optimizer.warmup_steps"),
        *("optimizer.muon_rate", "optimizer.adam_rate", "optimizer.final_share"),
        *("optimizer.weight_decay", "optimizer.mean_share", "optimizer.patience"),
        *("optimizer.muon_beta", "optimizer.adam_b1", "optimizer.adam_b2", "optimizer.start_step"),
        *("run.evaluate_every", "run.evaluate_batches", "run.prefetch", "run.threads"),
    ]
    settings = [f"{name}=1" for name in ones] + [f"{name}=0" for name in zeros]
    found = config.load(None, [*settings, "data.sequence_length=2"]).to_dict()
    for name in ones + zeros:
        section, key = name.split(".")
        assert found[section][key] == (name in ones), name
        with pytest.raises(config.ConfigError, match=f"at least .* for {name}, found"):
            config.load(
                None, [f"{name}={-1 if name in zeros else 0 if 'micro' not in name else -1}"]
            )
    assert config.load(None, ["optimizer.clip_norm=1e-12"]).optimizer.clip_norm == 1e-12
    with pytest.raises(config.ConfigError, match="at least 1e-12 for optimizer.clip_norm, found 0"):
        config.load(None, ["optimizer.clip_norm=0"])
    masked = ["data.mask_share=0.1", "optimizer.mask_weight=0"]
    assert config.load(None, masked).optimizer.mask_weight == 0


def test_the_greatest_values_are_accepted():
    assert config.load(None, ["data.staleness_days=36525"]).data.staleness_days == 36525
    with pytest.raises(config.ConfigError, match=r"at most 36525 \(100 years\)"):
        config.load(None, ["data.staleness_days=36526"])
    for name in ("mean_share", "muon_beta", "adam_b1", "adam_b2"):
        near = config.load(None, [f"optimizer.{name}=0.9999"])
        assert getattr(near.optimizer, name) == 0.9999
        with pytest.raises(
            config.ConfigError, match=f"less than 1 for optimizer.{name}, found 1.0"
        ):
            config.load(None, [f"optimizer.{name}=1"])
    assert config.load(None, ["data.mask_share=0.9999"]).data.mask_share == 0.9999


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["optimizer.schedule=constant", "optimizer.final_share=0.2"],
            "expected no optimizer.final_share with optimizer.schedule='constant'",
        ),
        (["optimizer.start_step=3"], "expected no optimizer.start_step, which a run records"),
        (
            ["optimizer.patience=2", "run.evaluate_every=0"],
            "expected at least 1 for run.evaluate_every with optimizer.patience",
        ),
        (
            ["optimizer.microbatches=6"],
            "found 32 and 6; set optimizer.microbatches=4, or another batch size",
        ),
        (
            ["data.batch_size=7", "optimizer.microbatches=4"],
            "found 7 and 4; set optimizer.microbatches=1, or another batch size",
        ),
        (
            ["data.mask_share=0.1", "data.pools={ a = '' }", "optimizer.mask_weight=0"],
            "expected an optimizer.mask_weight above 0 with data.pools",
        ),
        (["data.tasks=['a']", "data.task_weights=[1, 2]"], "1 in all, found 2;"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load(None, settings)


@pytest.mark.parametrize(
    "settings",
    [
        ["optimizer.schedule=constant"],
        ["optimizer.schedule=linear", "optimizer.final_share=0.2"],
        ["optimizer.start_step=3", "optimizer.start_digest=a1"],
        ["optimizer.patience=2", "run.evaluate_every=1"],
        ["optimizer.microbatches=16"],
        ["data.mask_share=0.1", "data.mask_most=3", "data.mask_texts=false"],
        ["data.mask_share=0.1", "data.pools={ a = '', b = '2024-06-01' }"],
        [
            "data.mask_share=0.1", "data.pools={ a = '' }", "data.tasks=b",
            "data.task_weights=[1, 2]",
        ],
    ],
)  # fmt: skip
def test_settings_that_suit_each_other_are_accepted(settings):
    made = config.load(None, settings)
    assert config.load(None, settings) == made
    for setting in settings:
        section, key = setting.partition("=")[0].split(".")
        assert made.to_dict()[section][key] != config.Config().to_dict()[section][key] or (
            key == "schedule"
        )


def test_what_a_change_of_a_run_leaves_without_use_has_its_default(tmp_path):
    """A run that starts from one with masks learns a task by three `--set`."""
    pretrained = config.load(
        None,
        [
            "data.mask_share=0.1", "data.mask_most=3", "data.mask_texts=false",
            "optimizer.mask_weight=2", "data.pools={ a = '', b = '' }", "data.task_weights=[1, 2]",
        ],
    )  # fmt: skip
    (tmp_path / "config.toml").write_text(pretrained.to_toml())

    def changed(*settings):
        made = config.load_run(tmp_path, settings)
        assert config.changed(pretrained, settings) == made
        return made

    without = ["data.pools={}", "data.mask_share=0"]
    assert changed(*without) == config.load()
    assert changed(*without, "data.tasks=c") == config.load(None, ["data.tasks=c"])
    assert changed("data.mask_share=0.2").data.mask_most == 3
    assert changed("data.seed=7").data.task_weights == (1, 2)
    # What is given stays, and is refused.
    with pytest.raises(config.ConfigError, match=r"expected no data\.mask_most, because"):
        changed(*without, "data.mask_most=4")
    with pytest.raises(config.ConfigError, match=r"one number in data\.task_weights per task"):
        changed("data.pools={ a = '' }")


def test_processes_of_a_run_may_differ_in_what_changes_no_batch_alone():
    ours = config.load(None, ["data.stores=here", "run.threads=2"]).to_dict()
    theirs = config.load(None, ["data.stores=there", "run.log_every=7", "data.seed=7"]).to_dict()
    theirs["run"]["newer"] = 3
    del theirs["model"]["ages"]
    assert sorted(config.process_differences(ours, theirs)) == [
        "data.seed is 7, expected 42",
        "model.ages is None, expected True",
        "run.newer is 3, expected None",
    ]
    assert config.process_differences(ours, ours) == []


@pytest.mark.parametrize(
    ("batch_size", "setting", "number"),
    [
        (32, "auto", 8), (18, "auto", 6), (11, "auto", 1), (7, "auto", 7), (1, "auto", 1),
        (32, 16, 16), (32, 0, 0),
    ],
)  # fmt: skip
def test_microbatches_are_at_most_8_equal_parts_unless_named(batch_size, setting, number):
    settings = [f"data.batch_size={batch_size}", f"optimizer.microbatches={setting}"]
    assert config.microbatches(config.load(None, settings)) == number


def test_a_run_of_pools_has_no_tasks_unless_they_are_named():
    pools = ["data.mask_share=0.1", "data.mask_most=3", "data.pools={ a = '' }"]
    assert config.has_tasks(config.Data())
    assert not config.has_tasks(config.load(None, pools).data)
    named = config.load(None, [*pools, "data.tasks=b"]).data
    assert config.has_tasks(named)
    assert config.without_masks(named) == config.Data(tasks=("b",))


def test_the_text_of_a_value_is_its_toml():
    value = {"a.b": [1, 2.5, True, False, 'x"\\'], "c": {}}
    text = config.toml_value(value)
    assert text == '{ "a.b" = [1, 2.5, true, false, "x\\"\\\\"], "c" = {  } }'
    assert tomllib.loads(f"v = {text}")["v"] == value
