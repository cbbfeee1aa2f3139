"""Tests of tools/imports.py."""

import pytest

from tools import imports

_SOURCE = '''
"""Reads shards."""
import json, os.path
import numpy as np
from priors import shards, task
from priors.task import Task

def lazily():
    import torch.nn
    command = ["python", "-c", "from priors.generate import main; main()"]
    prose = "what we import from elsewhere is listed"
'''


def test_every_import_is_found_wherever_it_stands() -> None:
    assert imports.imported_names(_SOURCE) == {
        "json",
        "os.path",
        "numpy",
        "priors.shards",
        "priors.task",
        "priors.task.Task",
        "torch.nn",
        "priors.generate.main",
    }


def test_a_string_is_prose_where_no_interpreter_is_started() -> None:
    assert imports.imported_names("TEXT = 'import torch'") == set()


def test_a_name_in_a_module_is_not_taken_for_a_module() -> None:
    names = {"priors.task.Task", "priors.shards", "numpy", "priors.unknown"}
    assert imports.first_party(names, modules={"priors.task", "priors.shards"}) == {"priors.task", "priors.shards"}


def test_the_longest_module_name_is_meant() -> None:
    assert imports.first_party({"a.b.c"}, modules={"a", "a.b"}) == {"a.b"}


def test_third_party_is_what_is_neither_standard_nor_ours() -> None:
    names = {"json", "os.path", "numpy", "torch.nn", "priors.task"}
    assert imports.third_party(names, first={"priors"}) == {"numpy", "torch"}


def test_a_relative_import_is_refused() -> None:
    with pytest.raises(ValueError, match="line 1: a relative import"):
        imports.imported_names("from .task import Task")
