"""Meta-features of a table's columns: how values are spread, how many there are, what is missing, how columns depend.

None depends on the unit or the offset of a column, nor on whether it is declared a category: a prior that standardises
its columns, or declares none, is compared by the shape of its values. All are finite.
"""

import numpy as np

_FEW = 10
_TAIL = 3.0
_NEAR = 5


def marginal_features(x: np.ndarray) -> dict[str, float]:
    """What the columns of x [R, C] look like one by one: means, spreads and shares over columns."""
    found = [column_shape(column) for column in x.T]
    table = {name: np.array([shape[name] for shape in found]) for name in found[0]}
    wide = table["distinct"] > _FEW  # moments of a few codes say little
    out = {
        "binary_share": float((table["distinct"] <= 2).mean()),
        "few_share": float(((table["distinct"] > 2) & ~wide).mean()),
        "unique_share": float((table["distinct_ratio"] > 0.9).mean()),
        "near_constant_share": float((table["top"] > 0.95).mean()),
    }
    for name in ("distinct_ratio", "top"):
        out |= {f"{name}_mean": float(table[name].mean()), f"{name}_spread": float(table[name].std())}
    for name in ("skew", "skew_size", "tails", "humps", "far_share", "at_minimum"):
        values = table[name][wide] if wide.any() else np.zeros(1)
        out |= {f"{name}_mean": float(values.mean()), f"{name}_spread": float(values.std())}
    return out


def column_shape(column: np.ndarray) -> dict[str, float]:
    """Shape of one column [R]; missing and infinite cells are left out, and a column without any other is constant.

    distinct: number of values. distinct_ratio: log of that ÷ log of cells. top: share of the commonest value. skew and
    tails: signed logarithms of the third and fourth standardised moments. humps: Sarle's bimodality coefficient,
    (skew² + 1) ÷ kurtosis. far_share: cells three quartile distances outside the quartiles. at_minimum: share of cells
    at the smallest value.
    """
    values = column[np.isfinite(column)].astype(np.float64)
    if len(values) < 2:
        values = np.zeros(2)
    levels, sizes = np.unique(values, return_counts=True)
    out = {
        "distinct": float(len(levels)),
        "distinct_ratio": float(np.log(len(levels)) / np.log(len(values))),
        "top": float(sizes.max() / len(values)),
        "at_minimum": float(sizes[0] / len(values)),
    }
    # float32 inputs may span 1e38: the range is taken out before anything is squared
    spread = levels[-1] - levels[0]
    scaled = (values - levels[0]) / spread if spread > 0 else np.zeros(len(values))
    centred = scaled - scaled.mean()
    deviation = centred.std()
    z = centred / deviation if deviation > 1e-12 else np.zeros(len(values))
    third, fourth = float((z**3).mean()), float((z**4).mean())
    low, high = np.quantile(scaled, (0.25, 0.75))
    reach = _TAIL * (high - low)
    far = (scaled < low - reach) | (scaled > high + reach) if reach > 0 else np.zeros(len(values), bool)
    return out | {
        "skew": float(np.sign(third) * np.log1p(abs(third))),
        "skew_size": float(np.log1p(abs(third))),
        "tails": float(np.log1p(fourth)),
        "humps": float((third**2 + 1) / fourth) if fourth > 0 else 1.0,
        "far_share": float(far.mean()),
    }


def missing_features(x: np.ndarray) -> dict[str, float]:
    """How cells of x [R, C] are missing: how many, in how many columns and rows, and whether together."""
    gone = np.isnan(x)
    holed = gone.mean(0)
    some = (holed > 0) & (holed < 1)
    together = 0.0
    if some.sum() >= 2:
        together = float(np.abs(_off_diagonal(np.corrcoef(gone[:, some].T))).mean())
    return {
        "missing_share": float(gone.mean()),
        "missing_columns": float((holed > 0).mean()),
        "missing_rows": float(gone.any(1).mean()),
        "missing_most": float(holed.max()),
        "missing_together": together,
    }


def dependence_features(x: np.ndarray) -> dict[str, float]:
    """How the columns of x [R, C] depend on each other: rank correlations, their spectrum, and the rows' geometry."""
    ranks = ranked(x)
    ranks = ranks[:, ranks.std(0) > 0]
    columns = ranks.shape[1]
    if columns < 2:
        names = "correlation correlation_spread correlation_sign nearest nearest_spread strong_share copies_share"
        fixed = dict.fromkeys(names.split(), 0.0)
        return fixed | {"first_share": 1.0, "effective_share": 1.0} | geometry_features(ranks)
    rho = np.corrcoef(ranks.T)
    off = _off_diagonal(rho)
    nearest = (np.abs(rho) - np.eye(columns)).max(1)
    values = np.linalg.eigvalsh(rho).clip(0) / columns
    return {
        "correlation": float(np.abs(off).mean()),
        "correlation_spread": float(np.abs(off).std()),
        "correlation_sign": float(off.mean()),
        "nearest": float(nearest.mean()),
        "nearest_spread": float(nearest.std()),
        "strong_share": float((np.abs(off) > 0.5).mean()),
        "copies_share": float((nearest > 0.95).mean()),
        "first_share": float(values[-1]),
        "effective_share": float(np.exp(-np.sum(values * np.log(values.clip(1e-12)))) / columns),
    } | geometry_features(ranks)


def ranked(x: np.ndarray) -> np.ndarray:
    """[R, C] mid-ranks in −½ … ½ of every column; missing cells are in the middle."""
    out = np.zeros(x.shape)
    for column in range(x.shape[1]):
        known = ~np.isnan(x[:, column])
        if not known.any():
            continue
        _, codes, sizes = np.unique(x[known, column], return_inverse=True, return_counts=True)
        ends = sizes.cumsum()
        out[known, column] = ((ends - sizes / 2) / ends[-1])[codes] - 0.5
    return out


def geometry_features(ranks: np.ndarray) -> dict[str, float]:
    """Geometry of the rows: the share of copies, and the local dimension over the number of columns.

    Where rows lie on something of d dimensions, the fifth and the tenth neighbour are apart like 5 and 10 to the power
    1/d (the estimator of Levina and Bickel 2004 from two radii; nearer ones feel the grid of ranks).
    """
    squares = (ranks**2).sum(1)
    distance = (squares[:, None] + squares[None] - 2 * ranks @ ranks.T).clip(0) ** 0.5
    np.fill_diagonal(distance, np.inf)
    near = min(_NEAR, len(ranks) // 4)
    radii = np.sort(np.partition(distance, 2 * near, axis=1)[:, : 2 * near], axis=1)
    apart = radii[:, near - 1] > 1e-6
    ratio = np.log(radii[apart, 2 * near - 1] / radii[apart, near - 1]).mean() if apart.any() else 0.0
    columns = max(ranks.shape[1], 1)
    share = min(np.log(2) / max(ratio, 1e-9), 3.0 * columns) / columns if apart.any() else 0.0
    return {"local_dimension": float(np.log1p(share)), "copied_rows": float((radii[:, 0] <= 1e-6).mean())}


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]
