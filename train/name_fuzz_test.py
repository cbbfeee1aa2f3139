"""Names that users give to runs, whatever they are: legal ones stay in the root, all others are refused untouched."""

import dataclasses
import pathlib
import re

from hypothesis import HealthCheck, given, settings, strategies

from tools.failure import ExitCode, Failure
from tools.tracking import Tracker
from train import presets
from train.run import name_run

_PIECES = strategies.sampled_from(
    ["..", ".", "/", "\\", "~", " ", "\x00", "\n", "-", "_", "a", "Z", "9", "%2e", "${x}", "é", "‮", "C:", "\t"]
)
_NAMES = strategies.one_of(
    strategies.lists(_PIECES, max_size=6).map("".join),
    strategies.text(max_size=140),
    strategies.from_regex(r"[A-Za-z0-9._-]{0,130}", fullmatch=True),
)
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,128}")
_FUZZ = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _is_legal(name: str) -> bool:
    return bool(_LEGAL.fullmatch(name)) and not set(name) <= {"."}


@_FUZZ
@given(_NAMES)
def test_the_name_of_a_run_is_legal_and_stays_in_the_root_or_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    """S4: fuzz; nothing is written before the name is known to be legal."""
    config = dataclasses.replace(presets.tiny(), root=tmp_path, name=name)
    try:
        run = name_run("tiny", config)
    except Failure as failure:
        assert failure.code is ExitCode.BAD_NAME and not _is_legal(name)
        assert "\n" not in failure.message
    else:
        assert _is_legal(name)
        assert run.path.parent == tmp_path and run.path.resolve().parent == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == []


@_FUZZ
@given(_NAMES.filter(lambda name: not _is_legal(name)))
def test_a_store_is_not_opened_for_a_name_that_is_not_legal(tmp_path: pathlib.Path, name: str) -> None:
    """S4: fuzz; the folder of a run is not made either."""
    try:
        Tracker.open(uri=None, root=tmp_path, experiment="veritab", run_name=name)
    except Failure as failure:
        assert failure.code is ExitCode.BAD_NAME
    else:
        raise AssertionError(f"{name!r} was taken")
    assert list(tmp_path.iterdir()) == []
