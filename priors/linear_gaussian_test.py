"""Linear regression tasks: their targets have the covariance that the configuration states."""

import numpy as np

from priors.draws import Draws
from priors.linear_gaussian import LinearGaussianConfig, sample_linear_gaussian


def test_two_rows_covary_by_offset_and_inner_product() -> None:
    config = LinearGaussianConfig(weight=1.5, offset=0.7, noises=(0.2, 0.6))
    draft = sample_linear_gaussian(Draws(0), config, count=60_000, rows=2, features=3)
    inner = (draft.x[:, 0] * draft.x[:, 1]).sum(1) / 3
    slope, constant = np.polyfit(inner, draft.y[:, 0] * draft.y[:, 1], 1)
    assert abs(slope - 1.5**2) < 0.1 and abs(constant - 0.7**2) < 0.05


def test_noise_is_one_of_the_grid_and_what_the_line_does_not_explain() -> None:
    config = LinearGaussianConfig(noises=(0.1, 0.5))
    draft = sample_linear_gaussian(Draws(1), config, count=40, rows=400, features=2)
    assert set(draft.facts["noise"].tolist()) == {0.1, 0.5}
    for x, y, noise in zip(draft.x, draft.y, draft.facts["noise"], strict=True):
        design = np.column_stack([x, np.ones(400)]).astype(np.float64)
        residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        assert abs(residual.std() / noise - 1) < 0.15
