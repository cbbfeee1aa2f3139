"""Figures of a shard set in words."""

from priors.properties import FamilySummary, SetSummary, Spread
from priors.property_text import UNKNOWN, WITHOUT_SIGNAL, parameter_table, realised_table, size_table, spread_text


def _part(name: str, *, rejected: int | None, without_signal: int | None = None, **spreads: Spread) -> FamilySummary:
    columns = {"numbers": 0.75, "ordinals": 0.0, "categories": 0.25}
    return FamilySummary(
        name=name,
        tasks=1200,
        share=0.5,
        drawn=1600,
        rejected=rejected,
        without_signal=without_signal,
        columns=columns,
        spreads=spreads,
    )


def _set(*families: FamilySummary) -> SetSummary:
    counts = [part.without_signal for part in families if part.without_signal is not None]
    whole = _part("all", rejected=None, without_signal=sum(counts) if counts else None)
    return SetSummary(
        place="x", digest="d", source="s", config={}, seed=0, kind="regression", bytes=1, whole=whole, families=families
    )


def test_whole_numbers_have_no_decimals_and_others_three_digits() -> None:
    assert spread_text(Spread(low=2.0, median=160.0, high=1024.0, known=9)) == "160 (2 – 1024)"
    assert spread_text(Spread(low=0.0, median=0.01234, high=0.5, known=9)) == "0.0123 (0 – 0.5)"
    assert spread_text(None) == UNKNOWN


def test_rows_are_as_wide_as_heads_and_all_tasks_come_last() -> None:
    found = _set(_part("rules", rejected=400, rows=Spread(low=64, median=96, high=256, known=9)))
    for table in (size_table(found), realised_table(found)):
        assert [row[0] for row in table.rows] == ["rules", "all"]
        assert all(len(row) == len(table.columns) for row in table.rows)
    row = dict(zip(size_table(found).columns, size_table(found).rows[0], strict=True))
    assert (row["tasks"], row["share"], row["rejected"], row["rows"]) == ("1,200", "50.0%", "25.0%", "96 (64 – 256)")
    assert row["classes"] == UNKNOWN and row["categories"] == "25%"


def test_tasks_kept_without_signal_are_a_column_only_where_there_are_any() -> None:
    one = _part("rules", rejected=0, without_signal=0)
    for rare in (0, None):
        assert WITHOUT_SIGNAL not in size_table(_set(one, _part("forest", rejected=0, without_signal=rare))).columns
    table = size_table(_set(one, _part("forest", rejected=9, without_signal=1700)))
    assert [row[table.columns.index(WITHOUT_SIGNAL)] for row in table.rows] == ["0", "1,700", "1,700"]


def test_parameters_are_the_numbers_that_have_no_column_of_their_own() -> None:
    one = Spread(low=1, median=2, high=3, known=7)
    part = _part("rules", rejected=None, rows=one, noise_share=one, num_levels=one)
    assert parameter_table(part).rows == (("num levels", "2 (1 – 3)", "7"),)
