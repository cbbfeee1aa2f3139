"""Tests of the picture of gradient cosines."""

import dataclasses
import re
from typing import Any

import pytest

from reports.drawing import Picture
from reports.interference import StageCosines, cosine_picture, stage_label


def _stages(first: float) -> list[StageCosines]:
    return [
        StageCosines(label="cells", values=[first] * 10, low=first - 0.1, high=first + 0.1, same_task=(0.3, 0.4)),
        StageCosines(label="ICL block 1", values=[0.2] * 10, low=0.1, high=0.3, same_task=(0.5, 0.6)),
    ]


def _picture(first: float) -> Picture:
    return cosine_picture(_stages(first), name="n")


def test_the_picture_is_drawn_from_its_numbers() -> None:
    assert _picture(-0.5).svg == _picture(-0.5).svg
    assert _picture(-0.5).svg != _picture(0.5).svg


def test_every_part_of_a_stage_is_drawn() -> None:
    """Values that alternate have running means of 0 over two steps, so that only their mean over all is left."""

    def drawn(**change: Any) -> str:
        stage = StageCosines(label="cells", values=[1, -1] * 5 + [1], low=-0.5, high=0.5, same_task=(0.3, 0.4))
        return cosine_picture([dataclasses.replace(stage, **change)], name="n").svg.split("<metadata")[-1]

    changes = [{}, {"values": [2, -2] * 5 + [2]}, {"low": -0.4}, {"same_task": (0.2, 0.4)}, {"same_task": (0.3, 0.2)}]
    assert len({drawn(**change) for change in changes}) == len(changes)


def test_every_stage_is_named_and_its_mean_can_be_read_aloud() -> None:
    """6.11: gradient interference recorded."""
    picture = _picture(-0.125)
    texts = re.findall(r">([^<>]+)</text>", picture.svg)
    assert {"cells", "ICL block 1"} <= set(texts)
    assert "cells -0.125" in picture.alt and "ICL block 1 0.200" in picture.alt


def test_one_stage_and_one_step_can_be_drawn() -> None:
    stage = StageCosines(label="cells", values=[0.1], low=0.1, high=0.1, same_task=(0.3, 0.4))
    assert "0.100" in cosine_picture([stage], name="n").alt


@pytest.mark.parametrize(
    ("stage", "label"),
    [
        ("icl.blocks.9", "ICL block 10"),
        ("column_blocks.0", "columns 1"),
        ("icl.norm", "ICL norm"),
        ("new_part", "new part"),
    ],
)
def test_stages_have_names_in_words(stage: str, label: str) -> None:
    assert stage_label(stage) == label
