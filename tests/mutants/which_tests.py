"""Which tests are to notice a change of a file: the quick ones that notice most come first."""

_TWIN = ["tests/confluence/test_twin.py::test_the_model_equals_its_twin"]
_RECORDED = ["tests/confluence/test_optimizer.py", "-k", "recorded"]
_MODEL = "tests/confluence/test_model.py"
_RANKING = "tests/confluence/test_ranking.py"
_RESULTS = "tests/confluence/test_results.py"
_CHECKPOINT = "tests/confluence/test_checkpoint.py"
_ROLLCALL = "tests/confluence/test_rollcall.py"
_START = "tests/confluence/test_start.py"
_COMMAND = "tests/confluence/test_train_command.py"
_MASKED = "tests/confluence/test_masked.py"
_MICROBATCHES = "tests/confluence/test_microbatches.py"
_TREE_SUM = "tests/python/test_tree_sum.py"
_DRAFT = "tests/confluence/test_draft.py"
_SQL = "tests/python/test_sql.py"
_DUCKDB = "tests/python/test_duckdb_file.py"
_POSTGRES = "tests/python/test_postgres.py"
_TORCH_SUM = "tests/python/test_torch_sum.py"
_FOLDS = "tests/python/test_folds.py"
_PARTS = "tests/python/test_parts_and_sums.py"
_GRAM_JOB = "tests/python/test_gram_job.py"

# Without those that start other processes or wait.
_QUICK = "not ctrl_c and not fork and not memory and not thread and not killed and not command"

# Without those that start a pool of processes or draw many cases, and one that reads a file.
_FEW_DRAWS = (
    "not processes and not any_split and not pieces_and_order and not in_any_order and not golden"
)
# Hypothesis takes long to shrink what it finds, so its tests come last.
_BY_EXAMPLES = (
    "(ordered_pairs or over_thresholds or over_categories or its_place or plain_count "
    "or draws_entities or had)"
)

# The tests of each file, in turns: the quick ones that notice most come first.
TESTS: dict[str, list[list[str]]] = {
    "confluence/model.py": [
        ["tests/confluence/test_twin.py", "-k", "equals_its_twin and not store or norms"],
        _RECORDED,
        [_MODEL, _MASKED, "-k", "nan_in_cells or null_target or each_boolean or last_cell"],
    ],
    "confluence/attention.py": [_TWIN, [_MODEL, "-k", "softmax or summed or structured"]],
    "confluence/structured.py": [
        [_MODEL, "-k", "narrowest or fewest or longest"],
        [f"{_TWIN[0]}[{{'attention': 'structured'}}]"],
        [_MODEL, "-k", "structured or order_of_cells"],
    ],
    "confluence/loss.py": [
        [
            _MODEL,
            _MASKED,
            "-k",
            "losses or null_target or weight_zero or label_is or label_of or one_number "
            "or other_columns",
        ]
    ],
    "confluence/optimizer.py": [
        [_MODEL, "-k", "rate_rises or rate_falls or muon_updates"],
        ["tests/confluence/test_optimizer.py", "-k", "numpy or near_nothing"],
        _RECORDED,
    ],
    "confluence/step.py": [
        ["tests/confluence/test_step.py"],
        [_MODEL, _MASKED, "-k", "outputs or loss_is_that or of_a_pool or only_a"],
        _RECORDED,
    ],
    "confluence/batch.py": [
        ["tests/confluence/test_batch.py"],
        _TWIN,
        [_MODEL, "-k", "compact or calendar or text_vectors"],
    ],
    "confluence/feed.py": [["tests/confluence/test_feed.py", "tests/confluence/test_config.py"]],
    "confluence/microbatches.py": [
        ["tests/confluence/test_step.py", _MICROBATCHES, "-k", "microbatches"]
    ],
    "confluence/config.py": [
        ["tests/confluence/test_config.py", "-k", "not ignored and not other_walk"],
        ["tests/confluence/test_config.py", "-k", "other_walk"],
    ],
    "confluence/assembly.py": [
        ["tests/confluence/test_assembly.py", "-k", "not suit and not refused"],
        ["tests/confluence/test_assembly.py", "-k", "suit or refused"],
    ],
    "confluence/bench.py": [["tests/confluence/test_bench.py"]],
    "confluence/draft.py": [
        [_DRAFT, "-k", "not steps and not drawn"],
        [_DRAFT, "-k", "steps or drawn"],
        ["tests/confluence/test_init.py", "-k", "run_in_place"],
    ],
    "confluence/drawing.py": [[_DRAFT, "-k", "drawn"]],
    "confluence/widths.py": [["tests/confluence/test_widths.py"]],
    "confluence/synthetic.py": [["tests/confluence/test_synthetic.py"]],
    "confluence/run_folder.py": [["tests/confluence/test_run_folder.py"]],
    "confluence/peers.py": [["tests/confluence/test_watch.py"]],
    "confluence/meeting_place.py": [
        ["tests/confluence/test_meeting_place.py"],
        ["tests/confluence/test_peers.py", "-k", "without_an_address"],
    ],
    "confluence/members.py": [
        [
            "tests/confluence/test_members.py",
            "-k",
            "mean_of_cat or own_in_its or or_of_a_run",
        ]
    ],
    "confluence/parallel.py": [["tests/confluence/test_parallel.py"]],
    "confluence/run.py": [["tests/confluence/test_run.py"]],
    "confluence/starting.py": [["tests/confluence/test_initial.py"]],
    "confluence/report.py": [
        ["tests/confluence/test_report.py", "-k", "not page"],
        ["tests/confluence/test_report.py", "-k", "page"],
    ],
    "confluence/epochs.py": [["tests/confluence/test_epochs.py", "-k", "not a_run_decides"]],
    "confluence/pace.py": [["tests/confluence/test_pace.py"]],
    "confluence/progress.py": [["tests/confluence/test_progress.py"]],
    "confluence/status.py": [
        ["tests/confluence/test_status.py"],
        ["tests/confluence/test_notebook.py", "-k", "one_bar_for or has_no_bar"],
    ],
    "confluence/sinks.py": [
        ["tests/confluence/test_sinks.py", "-k", "are_named or hides or continues or with_its"]
    ],
    "confluence/speed.py": [["tests/confluence/test_speed.py"]],
    "confluence/memory.py": [[_START, "-k", "same_arguments or no_use or prints_advice"]],
    "confluence/smoke.py": [
        ["tests/confluence/test_smoke.py", "-k", "may_have or in_turn"],
        [_COMMAND, "-k", "smoke"],
    ],
    "confluence/compile_cache.py": [
        [_START, "-k", "(kept or cores or of_one_kind) and not tunables"]
    ],
    "confluence/compile_keys.py": [[_START, "-k", "of_a_key or device_has_a_key or rank_finds"]],
    "confluence/orbax_noise.py": [[_START, "-k", "leaves_behind"]],
    "confluence/xla_flags.py": [[_START, "-k", "deterministic"]],
    "confluence/cli.py": [
        # First: a command that starts itself anew would end the other tests without a fault.
        [_COMMAND, "-k", "restarts"],
        [_COMMAND],
        ["tests/confluence/test_starting.py", "-k", "inherited"],
    ],
    "confluence/cli_draft.py": [
        [_COMMAND, "-k", "draft or contradicts or without_jax or init"],
        ["tests/confluence/test_init.py", "-k", "presets"],
    ],
    "confluence/cli_predict.py": [
        ["tests/confluence/test_predict_command.py"],
        [_COMMAND, "-k", "without_jax"],
    ],
    "confluence/cli_inspect.py": [
        ["tests/confluence/test_predict_command.py", "-k", "inspect"],
        [_COMMAND, "-k", "missing"],
    ],
    "confluence/api.py": [["tests/confluence/test_functions.py"]],
    "confluence/choices.py": [["tests/confluence/test_choices.py"]],
    "confluence/training.py": [
        ["tests/confluence/test_train.py"],
        ["tests/confluence/test_trainer.py"],
        ["tests/confluence/test_training.py", "-k", "gradients or the_best"],
    ],
    "confluence/checkpoint.py": [
        [_CHECKPOINT, "-k", "json or stay_what or only_folders or without_checkp or told_from"],
        [
            _CHECKPOINT,
            "-k",
            "copied or older or half or p6 or shapes or space or are_kept or the_best or left_out",
        ],
        # Without those that train.
        [_CHECKPOINT, "-k", "not p2_a_run and not two_processes and not in_an_evaluation"],
    ],
    "confluence/patience.py": [["tests/confluence/test_patience.py", "-k", "over_after"]],
    "confluence/metrics.py": [
        ["tests/confluence/test_metrics.py", "-k", f"not {_BY_EXAMPLES}"],
        ["tests/confluence/test_metrics.py", "-k", _BY_EXAMPLES],
    ],
    "confluence/rollcall.py": [
        [_ROLLCALL, "-k", "equal_ranks or laid_out or coordinator_is or all_ranks or listens"],
        [_ROLLCALL, "-k", "next_one or in_parts or numbers or missing or in_use or elsewhere"],
        [_ROLLCALL, "-k", "not before_writing and not bounded and not stops_on"],
    ],
    "confluence/calibration.py": [["tests/confluence/test_calibration.py", "-k", "not of_a_run"]],
    "confluence/intervals.py": [
        [
            "tests/confluence/test_intervals.py",
            "-k",
            "leave_out or holds_its or too_few or grows or at_an_end or probabilities or width "
            "or of_its_results or own_bin",
        ]
    ],
    "confluence/baselines.py": [
        [
            "tests/confluence/test_baselines.py",
            "-k",
            "last_year or of_a_task or strict or splits or without_labels or beside or scikit "
            "or pairs or seconds",
        ],
        ["tests/confluence/test_baselines.py", "-k", "p7"],
    ],
    "confluence/masked.py": [
        [_MASKED, "-k", "named_with or only_masked or to_mask or advice or score"]
    ],
    "confluence/prediction.py": [["tests/confluence/test_prediction.py"]],
    "confluence/evaluation.py": [
        ["tests/confluence/test_evaluation.py"],
        ["tests/confluence/test_metrics.py", "-k", "known_category"],
    ],
    "confluence/scoring.py": [["tests/confluence/test_scoring.py"]],
    "confluence/seeds.py": [["tests/confluence/test_seeds.py"]],
    "confluence/contexts.py": [["tests/confluence/test_contexts.py"]],
    "confluence/boosting.py": [["tests/confluence/test_boosting.py"]],
    "confluence/frames.py": [["tests/confluence/test_frames.py"]],
    "confluence/answers.py": [
        [
            "tests/confluence/test_answers.py",
            "-k",
            "answers_are or each_seed or the_columns or period or pyarrow or refused or no_year",
        ]
    ],
    "confluence/results.py": [
        [_RESULTS, "-k", "not stands_beside and not without_scikit and not run_ends"]
    ],
    "confluence/tables.py": [[_RESULTS, "-k", "goes_on or has_a_width or of_a_page or table_has"]],
    "confluence/times.py": [["tests/confluence/test_times.py"]],
    "confluence/time_range.py": [["tests/confluence/test_times.py"]],
    "confluence/anchors.py": [[_RANKING]],
    "confluence/ranking.py": [[_RANKING]],
    "confluence/hiding.py": [
        [
            "tests/confluence/test_hiding.py",
            "-k",
            "hidden_if or plain_search or own_cells or what_no_context or greatest_loss or table "
            "or summary or padding",
        ],
    ],
    "confluence/links.py": [
        [
            "tests/confluence/test_links.py",
            "-k",
            "hand or is_chance or interval or linked or group",
        ],
        ["tests/confluence/test_links.py", "-k", "over_all_orders"],
    ],
    "headwater/sampler.py": [
        [
            "tests/python/test_sampler.py",
            "tests/python/test_databases.py",
            "tests/python/test_pools.py",
            "-k",
            _QUICK,
        ],
        ["tests/confluence/test_config.py", "-k", "defaults"],
    ],
    "headwater/events.py": [["tests/python/test_events.py", "-k", _QUICK]],
    "headwater/grain.py": [
        [
            "tests/confluence/test_event_adaptors.py",
            "tests/confluence/test_adaptors.py",
            "-k",
            "not own_pipeline and not elastic and not orbax and not jax_ and not forked",
        ],
        ["tests/confluence/test_event_adaptors.py", "-k", "forked"],
    ],
    "headwater/jax.py": [
        ["tests/confluence/test_attention_masks.py"],
        ["tests/confluence/test_adaptors.py", "-k", "test_jax"],
        [_TREE_SUM, _MICROBATCHES, "-k", "three_devices or microbatches"],
        ["tests/python/test_jax.py"],
    ],
    "headwater/_tree.py": [[_TREE_SUM, "-k", "shares_follow or nodes_are or leaves_of_a"]],
    "headwater/torch.py": [
        [_TORCH_SUM, "-k", "forked or form or may_change or not_fit"],
        ["tests/python/test_torch.py"],
    ],
    "headwater/_sql.py": [
        [_SQL, "-k", "engine or without_duckdb or targets_are or wrong_query or parquet"],
        [_SQL, "tests/python/test_sql_values.py", "-k", "not command and not long_query"],
    ],
    "headwater/_sql_calls.py": [["tests/python/test_sql_calls.py"]],
    "headwater/_streams.py": [
        [
            "tests/python/test_sampler.py",
            "-k",
            "after_shutdown or unpickled or foreign or replaces_no_file",
        ],
        ["tests/python/test_sampler.py", "-k", _QUICK],
    ],
    "headwater/_database.py": [[_DUCKDB, "-k", "not command"]],
    "headwater/_duckdb_file.py": [[_DUCKDB, "-k", "not command"]],
    "headwater/_postgres.py": [
        [_POSTGRES, "-k", "address_is or address_with or a_message or driver"],
        [_POSTGRES, "-k", "not command and not never_shown"],
    ],
    "headwater/maxtext.py": [["tests/confluence/test_maxtext_adaptor.py"]],
    "headwater/page.py": [["tests/python/test_tables.py", "-k", "drawn"]],
    "headwater/_html.py": [["tests/python/test_tables.py", "-k", "escaped"]],
    "headwater/_cli.py": [["tests/python/test_cli.py", "-k", "interrupt"]],
    "headwater/_alias.py": [["tests/confluence/test_adaptors.py", "-k", "test_jax"]],
    "headwater/masks.py": [["tests/python/test_masks.py", "-k", "attention"]],
    "headwater/orbax.py": [["tests/confluence/test_adaptors.py", "-k", "orbax"]],
    "headwater/tables.py": [["tests/python/test_tables.py", "-k", _QUICK]],
    "headwater/_frames.py": [
        ["tests/python/test_sources.py", "tests/python/test_events.py", "-k", "column or in_memory"]
    ],
    "headwater/reduce.py": [
        [_FOLDS, _PARTS, "-k", f"{_QUICK} and {_FEW_DRAWS}"],
        [_FOLDS, "-k", "of_the_command and float64"],
    ],
    "headwater/_reduce_jobs.py": [
        [_FOLDS, _PARTS, "-k", f"{_QUICK} and {_FEW_DRAWS}"],
        [_GRAM_JOB, "-k", _QUICK],
        [_FOLDS, _GRAM_JOB, "-k", "of_the_command and (float64 or fields or chunks)"],
    ],
    "headwater/_reduce_workers.py": [
        [_FOLDS, _PARTS, _GRAM_JOB, "-k", f"{_QUICK} and {_FEW_DRAWS}"]
    ],
}
