"""Tests of environment variables that hold for a while."""

import os

import pytest

from tools.environment import environment


def test_variables_hold_inside_and_are_as_before_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody inside takes them away, and where it ends by an error."""
    monkeypatch.setenv("VERITAB_OLD", "before")
    monkeypatch.delenv("VERITAB_NEW", raising=False)
    with environment(VERITAB_OLD="inside", VERITAB_NEW="inside"):
        assert os.environ["VERITAB_OLD"] == os.environ["VERITAB_NEW"] == "inside"
        del os.environ["VERITAB_NEW"]
    assert os.environ["VERITAB_OLD"] == "before" and "VERITAB_NEW" not in os.environ
    with pytest.raises(ValueError), environment(VERITAB_OLD="inside", VERITAB_NEW="inside"):
        raise ValueError
    assert os.environ["VERITAB_OLD"] == "before" and "VERITAB_NEW" not in os.environ
