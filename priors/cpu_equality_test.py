"""D2 across processors: the same groups drawn by kernels for other instruction sets, in processes of their own.

`ATEN_CPU_CAPABILITY` and its like make torch, oneDNN, MKL and numpy choose the kernels of an older processor. Whole
numbers must be equal. Floats agree to a tolerance; where a rounding error decides on a rank, a step or a border, a
cell, or the labels of a whole task, may differ: the shares below bound how often.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch

_NUM_GROUPS, _COUNT = 3, 64
_MACHINES = {
    "native": {},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
    },
}
_DRAW = """
import dataclasses, sys
import numpy as np
from priors.recipe import ShardConfig, draw_part
from priors.mixture import PriorConfig
from priors.task import TaskKind

out = {}
for kind in TaskKind:
    config = ShardConfig(prior=PriorConfig(kind=kind), group_size=int(sys.argv[2]), groups_per_part=int(sys.argv[3]))
    for number, draw in enumerate(draw_part(config, seed=2, index=0)):
        fields = {field.name: getattr(draw.group, field.name) for field in dataclasses.fields(draw.group)}
        fields = {name: np.asarray(value) for name, value in fields.items() if name != "kind"}
        fields["counts"] = np.array(sorted([*draw.drawn.items(), *draw.rejected.items()]))
        out |= {f"{kind} {number} {name}": value for name, value in fields.items()}
np.savez(sys.argv[1], **out)
"""
_WHOLE = ("column_kinds", "level_counts", "num_classes", "families", "seeds", "counts")
_Groups = dict[str, np.ndarray]


@functools.cache
def _drawn(machine: str) -> _Groups:
    """Arrays by "kind number field"; `native` is what this machine does by itself."""
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "groups.npz"
        command = [sys.executable, "-c", _DRAW, str(target), str(_COUNT), str(_NUM_GROUPS)]
        subprocess.run(command, env={**os.environ, **settings, **_MACHINES[machine]}, check=True, timeout=300)
        with np.load(target, allow_pickle=False) as found:
            return dict(found)


def _other(machine: str) -> _Groups:
    """What an older processor draws; skipped where this one is not newer."""
    native = torch.backends.cpu.get_cpu_capability()
    if machine == "avx2" and native != "AVX512":
        pytest.skip(f"this processor's kernels are {native}")
    return _drawn(machine)


def _fields(groups: _Groups, name: str) -> list[str]:
    return [key for key in groups if key.endswith(f" {name}")]


def _scaled_errors(one: _Groups, other: _Groups, name: str) -> np.ndarray:
    """|difference| of x or of regression targets, in units of the column's largest magnitude; NaN where both are."""
    parts = []
    for key in _fields(one, name):
        if name == "x" or key.startswith("regression"):
            scale = np.nanmax(np.abs(np.nan_to_num(one[key])), axis=1, keepdims=True) + 1e-9
            parts.append((np.abs(one[key] - other[key]) / scale).ravel())
    return np.concatenate(parts)


def _share_of_tasks_with_other_labels(one: _Groups, other: _Groups) -> float:
    keys = [key for key in _fields(one, "y") if key.startswith("classification")]
    return float(np.mean(np.concatenate([(one[key] != other[key]).any(1) for key in keys])))


def test_repeated_draws_and_any_number_of_threads_give_the_same_bits() -> None:
    """D2: on the same kind of processor all is equal, bit by bit."""
    one, other = _drawn("native"), _drawn("two threads")
    assert len(one) == 2 * _NUM_GROUPS * 9
    for key, value in one.items():
        assert value.tobytes() == other[key].tobytes(), key


@pytest.mark.parametrize("machine", ["avx2", "default"])
def test_whole_numbers_are_equal_on_other_processors(machine: str) -> None:
    """D2: structure, sizes and classes; what the filter drew and rejected; which cells are missing."""
    one, other = _drawn("native"), _other(machine)
    assert one.keys() == other.keys()
    for name in _WHOLE:
        assert all(np.array_equal(one[key], other[key]) for key in _fields(one, name)), name
    for key in _fields(one, "x"):
        assert one[key].shape == other[key].shape
        assert np.array_equal(np.isnan(one[key]), np.isnan(other[key])), key
        coded = one[key.replace(" x", " column_kinds")] > 0
        cells = np.broadcast_to(coded[:, None], one[key].shape) & ~np.isnan(one[key])
        assert np.array_equal(one[key][cells], other[key][cells]), key
    for key in _fields(one, "parameters"):
        for mine, theirs in zip(one[key], other[key], strict=True):
            a, b = json.loads(mine), json.loads(theirs)
            assert a.keys() == b.keys()
            assert {n: v for n, v in a.items() if n in _FACTS} == {n: v for n, v in b.items() if n in _FACTS}, key


# Facts that count something; "relevant" and shares are measured on floats.
_FACTS = {"position", "depth", "nodes", "edges", "roots", "law", "graph", "mode", "function", "causes", "effects"}


def test_floats_agree_between_avx2_and_avx512() -> None:
    """D2: every number within 1e-5 of the largest in its column, every label equal."""
    one, other = _drawn("native"), _other("avx2")
    assert np.nanmax(_scaled_errors(one, other, "x")) < 1e-5
    assert np.nanmax(_scaled_errors(one, other, "y")) < 1e-5
    assert _share_of_tasks_with_other_labels(one, other) == 0.0


def test_floats_agree_with_kernels_that_use_no_vectors() -> None:
    """D2: 99.99 % of the cells within 1e-4 of the largest in the column; labels or targets of 98 % of the tasks."""
    one, other = _drawn("native"), _other("default")
    assert np.nanmean(_scaled_errors(one, other, "x") > 1e-4) < 1e-4
    assert np.nanmean(_scaled_errors(one, other, "y") > 1e-4) < 0.02
    assert _share_of_tasks_with_other_labels(one, other) <= 0.02
