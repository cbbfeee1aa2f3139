"""Golden tests of the presets: a change of a default shows as a change of a file."""

import dataclasses
import json
import pathlib

import pytest

from tools import config as configs
from tools.failure import ExitCode, Failure
from train.presets import PRESETS, PretrainConfig, checked

_GOLDEN = pathlib.Path(__file__).parent / "testdata"


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_what_its_golden_file_says(name: str) -> None:
    found = configs.to_json(PRESETS[name]())
    assert found == json.loads((_GOLDEN / f"{name}.json").read_text())
    assert configs.from_json(PretrainConfig, found) == PRESETS[name]()


_ONE_QUANTILE = ["--regression.network.regression.quantiles.num-quantiles", "1"]


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_says_its_cost_and_fits_its_data(name: str) -> None:
    config = PRESETS[name]()
    assert "parameters" in PRESETS[name].__doc__
    for kind, model in config.models().items():
        for stage in config.stages(kind):
            assert stage.shards.group_size % stage.batch_size == 0
            assert model.network.max_features >= stage.shards.prior.max_features


def test_no_model_has_more_tasks_drawn_than_it_reads_or_sees_one_twice_by_default() -> None:
    config = PRESETS["tiny"]()
    drawn = [config.stages(kind)[0].num_tasks for kind in config.models()]
    assert drawn == [model.loop.num_steps * model.loop.batch_size for model in config.models().values()]
    assert drawn[0] < drawn[1] == config.data.num_tasks
    fewer = dataclasses.replace(config, data=dataclasses.replace(config.data, num_tasks=1024))
    assert {fewer.stages(kind)[0].num_tasks for kind in config.models()} == {1024}


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", "-1"],
        ["--scoring.num-seeds", "0"],
        ["--regression.loop.batch-size", "48"],
        ["--classification.network.kind", "regression"],
        ["--data.num-tasks", "0"],
        ["--cluster.address", "ray://head:10001"],
    ],
)
def test_a_value_that_no_run_can_have_is_refused_by_name(flags: list[str]) -> None:
    _, config = configs.parse_preset(PRESETS, flags, program="p", default="tiny")
    with pytest.raises(Failure) as caught:
        checked(config)
    assert caught.value.code is ExitCode.BAD_FLAG
    assert flags[0] in caught.value.message and flags[1] in caught.value.message


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--data.later.0.num-tasks", "0"], "give 1 or more"),
        (["--data.later.1.accumulation", "0"], "give 1 or more"),
        (["--data.later.0.batch-size", "48"], "divides --data.later.0.shards.group-size 64"),
        (["--classification.loop.batch-size", "48"], "divides --data.shards.group-size "),
        (["--data.later.0.begins", "0"], "is step 0 of classification"),
        (["--data.later.1.begins", "0.5"], "is step 8192 of classification: let stages begin one after the other"),
        (["--data.later.1.begins", "1"], "is step 16384 of classification"),
        (["--data.later.1.shards.max-features", "201"], "give 200 or fewer, or raise --classification.network.max-f"),
        (["--data.shards.targets.max-classes", "33"], "give 32 or fewer, or raise --classification.network.icl.max-c"),
    ],
)
def test_a_stage_with_which_no_run_can_begin_is_refused_by_flag_and_value(flags: list[str], named: str) -> None:
    """Also more features or classes than the model takes."""
    _, config = configs.parse_preset(PRESETS, ["base", *flags], program="p")
    with pytest.raises(Failure) as caught:
        checked(config)
    assert caught.value.code is ExitCode.BAD_FLAG
    assert caught.value.message.startswith(flags[0]) and flags[1] in caught.value.message
    assert named in caught.value.message


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("classification.loop.num-steps", ["0"]),
        ("regression.loop.num-steps", ["0"]),
        ("classification.loop.batch-size", ["0"]),
        ("regression.loop.log-every", ["0"]),
        ("classification.loop.optimizer.betas", ["1", "1"]),
        ("classification.loop.optimizer.warmup-share", ["5"]),
        ("regression.loop.optimizer.decay-share", ["-1"]),
        ("regression.loop.optimizer.clip-norm", ["-1"]),
        ("regression.loop.optimizer.matrix-lr", ["nan"]),
        ("classification.loop.averaging.decay", ["1.5"]),
        ("classification.network.icl.num-blocks", ["-3"]),
        ("classification.network.icl.max-classes", ["0"]),
        ("regression.network.icl.feed-forward-factor", ["0"]),
        ("regression.network.cell.num-inducing", ["-1"]),
        ("regression.network.cell.num-tokens", ["0"]),
        ("regression.network.cell.num-rounds", ["0"]),
        ("regression.network.max-features", ["0"]),
        ("watch.budget-share", ["2"]),
    ],
)
def test_a_value_that_no_part_can_have_ends_the_parsing_in_one_line(flag: str, values: list[str]) -> None:
    """The flag, its value and what is allowed; no traceback."""
    with pytest.raises(Failure) as caught:
        configs.parse_preset(PRESETS, [f"--{flag}", *values], program="p", default="tiny")
    assert caught.value.code is ExitCode.BAD_FLAG
    assert caught.value.message.startswith(f"--{flag} {' '.join(values)}: give ")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--classification.network.cell.feature-offsets", "1", "2"], "cell.feature-offsets (1, 2) "),
        (["--classification.network.cell.width", "30", "--classification.network.cell.num-heads", "4"], "cell.width"),
        (["--regression.network.regression.buckets.num-buckets", "1"], "buckets.num-buckets is 1: "),
        (["--regression.network.regression.kind", "quantile", *_ONE_QUANTILE], "quantiles.num-quantiles is 1: "),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_before_anything_is_made(flags: list[str], named: str) -> None:
    """What a part refuses is one line with the part's field, before shards are generated."""
    _, config = configs.parse_preset(PRESETS, flags, program="p", default="tiny")
    with pytest.raises(Failure) as caught:
        checked(config)
    assert caught.value.code is ExitCode.BAD_FLAG
    assert named in caught.value.message and flags[0].split(".")[0] in caught.value.message


def test_presets_are_configs_that_can_run() -> None:
    for make in PRESETS.values():
        assert checked(make()) == make()


def test_the_digest_ignores_where_a_run_happens_and_nothing_else() -> None:
    name, config = configs.parse_preset(PRESETS, ["--cluster.num-workers", "1"], program="p", default="tiny")
    assert name == "tiny"
    assert config.identity() == PRESETS["tiny"]().identity()
    _, other = configs.parse_preset(PRESETS, ["--seed", "3"], program="p", default="tiny")
    assert other.identity() != config.identity()
