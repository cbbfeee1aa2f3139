"""Tests of tools/config.py."""

import dataclasses
import enum
import json
import pathlib
import re

import pytest

from tools import config
from tools.failure import BadInput, ExitCode, Failure


class Head(enum.StrEnum):
    """An enumeration in a config."""

    RETRIEVAL = "retrieval"
    MLP = "mlp"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A nested config."""

    width: int = 32
    """Width of the residual stream."""
    head: Head = Head.RETRIEVAL
    """Which head reads the context."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A config."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    """The network."""
    rates: tuple[float, ...] = (0.1, 0.01)
    """Learning rates."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Two numbers."""
    out: pathlib.Path = pathlib.Path("x")
    """Where to write."""


def _tiny() -> RunConfig:
    """Minutes on a CPU."""
    return RunConfig()


def _small() -> RunConfig:
    """An hour on a CPU."""
    return RunConfig(model=ModelConfig(width=64))


_PRESETS = {"tiny": _tiny, "small": _small}


def _parse(*words: str) -> tuple[str, RunConfig]:
    return config.parse_preset(_PRESETS, list(words), program="//train:pretrain", default="tiny")


def test_a_preset_is_a_complete_config() -> None:
    assert _parse("small") == ("small", _small())


def test_without_arguments_the_default_preset_is_meant() -> None:
    assert _parse() == ("tiny", _tiny())


def test_a_flag_changes_one_field_of_the_preset() -> None:
    name, run = _parse("--model.width", "48", "--model.head=mlp")
    assert name == "tiny"
    assert run == RunConfig(model=ModelConfig(width=48, head=Head.MLP))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smal"], "preset 'smal' is not known: did you mean small? choose one of tiny, small"),
        (["enormous"], "preset 'enormous' is not known: choose one of tiny, small"),
    ],
)
def test_an_unknown_preset_names_the_nearest(words: list[str], message: str) -> None:
    with pytest.raises(Failure) as caught:
        _parse(*words)
    assert (caught.value.code, caught.value.message) == (ExitCode.UNKNOWN_PRESET, message)


def test_a_missing_preset_without_default_is_refused() -> None:
    for words in ([], ["--model.width=1"]):
        with pytest.raises(Failure) as caught:
            config.parse_preset(_PRESETS, words, program="//a:b", noun="size")
        assert caught.value.code == ExitCode.UNKNOWN_PRESET
        told = "the size is missing: give one before all flags, of tiny, small (`//a:b --help` says what they are)"
        assert caught.value.message == told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.widht=3"], "flag --model.widht is not known: did you mean --model.width?"),
        (["small", "--model.widht", "3"], "flag --model.widht is not known: did you mean --model.width?"),
        (["--colour", "red"], "flag --colour is not known;"),
        (["tiny", "small"], "argument small is not known;"),
        (["--model.width=wide"], "--model.width wide cannot be read: give a whole number;"),
        (["small", "--model.width", "1.5"], "--model.width 1.5 cannot be read: give a whole number;"),
        (["tiny", "--model.head=tree"], "--model.head tree is not known: choose one of retrieval, mlp;"),
        (["--model.width"], "--model.width lacks a value: it takes 1;"),
    ],
)
def test_a_bad_flag_is_one_short_line_that_names_flag_value_and_mend(words: list[str], message: str) -> None:
    with pytest.raises(Failure) as caught:
        _parse(*words)
    assert caught.value.code == ExitCode.BAD_FLAG
    assert caught.value.message == f"{message} `//train:pretrain --help` lists the flags"


@pytest.mark.parametrize("flag", ["--rates", "--betas"])
def test_a_bad_value_among_several_is_named(flag: str) -> None:
    with pytest.raises(Failure, match=f"^{flag} 0.1 cannot be read: .*'x'") as caught:
        _parse(flag, "0.1", "x")
    assert "\n" not in caught.value.message and not re.search("[\u2500-\u257f\x1b]", caught.value.message)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PickyConfig:
    """A part that refuses some values of its own fields."""

    num_rows: int = 1
    """At least one."""
    part_sizes: tuple[float, float] = (1.0, 1.0)
    """Neither of them 0."""

    def __post_init__(self) -> None:
        if self.num_rows < 1:
            raise Failure(ExitCode.BAD_FLAG, f"picky.num_rows is {self.num_rows}: give 1 or more")
        if self.num_rows > 9:
            raise BadInput(ExitCode.BAD_FLAG, f"num_rows is {self.num_rows}: give 9 or fewer")
        if 0.0 in self.part_sizes:
            raise Failure(ExitCode.OVER_LIMIT, f"part_sizes is {self.part_sizes}: give others: none of 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HolderConfig:
    """Holds one of them."""

    picky: PickyConfig = PickyConfig()
    """The one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairConfig:
    """Holds two."""

    first: HolderConfig = HolderConfig()
    """One."""
    second: HolderConfig = HolderConfig()
    """The other."""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--first.picky.num-rows", "0"], "--first.picky.num-rows 0: give 1 or more"),
        (["--first.picky.num-rows", "3", "--second.picky.num_rows=-1"], "--second.picky.num-rows -1: give 1 or more"),
        (
            ["--first.picky.num-rows=0", "--second.picky.num-rows", "0"],
            "--first.picky.num-rows 0 and --second.picky.num-rows 0: give 1 or more",
        ),
        (
            ["--first.picky.num-rows", "10"],
            "--first.picky.num-rows 10: give 9 or fewer; `//a:b --help` lists the flags",
        ),
        (["--second.picky.part-sizes", "2", "0"], "--second.picky.part-sizes 2 0: give others: none of 0"),
    ],
)
def test_what_a_part_refuses_is_told_of_the_flag_that_gave_it(words: list[str], message: str) -> None:
    for parse in (
        lambda: config.parse_flags(PairConfig, words, program="//a:b"),
        lambda: config.parse_preset({"pair": PairConfig}, ["pair", *words], program="//a:b"),
    ):
        with pytest.raises(Failure) as caught:
            parse()
        assert caught.value.message == message
        assert caught.value.code is (ExitCode.OVER_LIMIT if "sizes" in message else ExitCode.BAD_FLAG)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateConfig:
    """Makes what refuses its own value."""

    picky: PickyConfig = dataclasses.field(default_factory=lambda: PickyConfig(num_rows=0))
    """The one."""
    num_rows: int = 1
    """Of something else."""


def test_a_value_that_no_flag_gave_is_told_by_its_field() -> None:
    with pytest.raises(Failure, match=r"^picky\.num_rows is 0: give 1 or more"):
        config.parse_flags(LateConfig, ["--num-rows", "0"], program="//a:b")


def test_flags_of_a_program_without_presets() -> None:
    assert config.parse_flags(ModelConfig, ["--width=5"], program="//a:b") == ModelConfig(width=5)
    with pytest.raises(Failure, match="--depth"):
        config.parse_flags(ModelConfig, ["--depth=5"], program="//a:b")


@pytest.mark.parametrize("words", [["--help"], ["tiny", "--help"], ["small", "-h"]])
def test_help_shows_what_there_is_and_succeeds(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _parse(*words)
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert ("Minutes on a CPU" in shown) if words == ["--help"] else ("Width of the residual stream" in shown)


def test_the_short_help_names_presets_the_default_the_usual_flags_and_where_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        config.parse_preset(_PRESETS, ["-h"], program="//a:b", default="tiny", epilogue="flags:\n  --out DIR  where to")
    assert capsys.readouterr().out == (
        "usage: //a:b [PRESET] [--FLAG VALUE ...]\n\n"
        "presets (tiny where none is named):\n  tiny   Minutes on a CPU.\n  small  An hour on a CPU.\n\n"
        "flags:\n  --out DIR  where to\n\n"
        "All flags of a preset, with their values: //a:b tiny --help\n"
    )


def test_json_holds_every_field() -> None:
    assert config.to_json(_tiny()) == {
        "model": {"width": 32, "head": "retrieval"},
        "rates": [0.1, 0.01],
        "betas": [0.9, 0.99],
        "out": "x",
    }
    assert json.loads(json.dumps(config.to_json({"a": (Head.MLP,)}))) == {"a": ["mlp"]}


def test_the_digest_knows_values_and_not_order() -> None:
    assert config.digest({"a": 1, "b": 2}) == config.digest({"b": 2, "a": 1})
    assert config.digest(_tiny()) == config.digest(_tiny())
    assert config.digest(_tiny()) != config.digest(_small())
    assert re.fullmatch("[0-9a-f]{64}", config.digest(_tiny()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagedConfig:
    """A config of several stages."""

    stages: tuple[ModelConfig, ...] = ()
    """In order."""
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    """One."""


def test_fields_have_dotted_names_and_items_of_a_list_of_configs_their_numbers() -> None:
    stages = (ModelConfig(width=8), ModelConfig(head=Head.MLP))
    assert config.flat(StagedConfig(stages=stages)) == {
        "stages.0.width": 8,
        "stages.0.head": "retrieval",
        "stages.1.width": 32,
        "stages.1.head": "mlp",
        "run.model.width": 32,
        "run.model.head": "retrieval",
        "run.rates": [0.1, 0.01],
        "run.betas": [0.9, 0.99],
        "run.out": "x",
    }
    assert config.flat({"empty": StagedConfig().stages, "number": 3}) == {"empty": [], "number": 3}


def test_a_stage_of_several_is_changed_by_its_number_and_read_back() -> None:
    presets = {"staged": lambda: StagedConfig(stages=(ModelConfig(), ModelConfig(width=64)))}
    _, found = config.parse_preset(presets, ["staged", "--stages.1.width", "16"], program="p")
    assert [stage.width for stage in found.stages] == [32, 16]
    assert config.from_json(StagedConfig, config.to_json(found)) == found
