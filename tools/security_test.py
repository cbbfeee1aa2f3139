"""No first-party file reads or writes what can run code, and the check that says so finds every way to do it."""

import ast
import pathlib

import pytest

from tools import layering
from tools.layering import Repository
from tools.pickling import pickling

_ROOT = pathlib.Path.cwd()
_ATTACKERS = {"model/checkpoint_test.py", "train/canary_test.py"}
"""Tests that make pickles to see them refused."""


def _found(source: str) -> list[str]:
    return [text.removesuffix(": S1 allows no pickle") for _, text in pickling(ast.parse(source))]


def test_no_first_party_file_reads_or_writes_a_pickle() -> None:
    """S1: programs, libraries, tests and build tools; files of the repository too."""
    sources = Repository.read(_ROOT).sources
    found = {path: list(pickling(ast.parse(source))) for path, source in sources.items()}
    assert {path for path, places in found.items() if places} <= _ATTACKERS
    assert len(sources) > 300 and "model/checkpoint.py" in sources
    for package in layering.PACKAGES:
        for path in (_ROOT / package).rglob("*"):
            assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".npy", ".npz"), path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", "imports pickle"),
        ("import cloudpickle as quiet", "imports cloudpickle"),
        ("def f():\n    from joblib import load", "imports joblib"),
        ("import torch\ntorch.load(path, weights_only=True)", "calls torch.load"),
        ("import torch as t\nt.save(x, path)", "calls torch.save"),
        ("from torch import load as read\nread(path)", "calls torch.load"),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", "calls numpy.load with allow_pickle"),
        ("import numpy\nnumpy.load(path, allow_pickle=flag)", "calls numpy.load with allow_pickle"),
        ("pd.read_pickle(path)", "calls pandas.read_pickle"),
        ("frame.to_pickle(path)", "calls frame.to_pickle"),
        ("import ray\nray.cloudpickle.loads(data)", "calls ray.cloudpickle.loads"),
        ("from multiprocessing import reduction\nreduction.pickle.Unpickler(file)", ".pickle.Unpickler"),
        ("import yaml\nyaml.load(text)", "calls yaml.load"),
        ("eval(text)", "calls eval"),
    ],
)
def test_every_way_to_a_pickle_is_found(source: str, found: str) -> None:
    """S1: the check can fail."""
    (text,) = _found(source)
    assert found in text


@pytest.mark.parametrize(
    "source",
    [
        "import safetensors.torch\nsafetensors.torch.load(data)",
        "from safetensors.torch import load\nload(data)",
        "import json\njson.load(file)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "network.eval()",
        "state.load(path)",
    ],
)
def test_what_runs_no_code_is_let_alone(source: str) -> None:
    assert _found(source) == []
