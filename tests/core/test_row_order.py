import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.errors import InputError
from eagletui.core.row_order import PlacedRow, joins_validation, one_sided, place_rows, split_text, unusual_split

KEYS = st.lists(st.text("abcdef0123456789", min_size=1, max_size=6), unique=True, min_size=1, max_size=60)


def _keys(rows: tuple[PlacedRow, ...], part: str) -> list[str]:
    return [row.sample_key for row in rows if row.part == part]


@given(KEYS, st.integers(1, 59), st.sampled_from([0.0, 10.0, 50.0]))
def test_samples_added_later_move_no_sample_across_the_split_and_none_past_another(
    keys: list[str], cut: int, percent: float
) -> None:
    first = place_rows((), keys[:cut], percent)
    second = place_rows(first, keys, percent)
    for part in ("train", "validation"):
        before, after = _keys(first, part), _keys(second, part)
        assert after[: len(before)] == before
    assert sorted(row.sample_key for row in second) == sorted(keys)
    assert [row.part for row in second] == sorted(row.part for row in second)
    assert {row.since for row in second if row.sample_key in keys[:cut]} == {1}


@given(KEYS)
def test_the_order_in_which_the_ledger_answers_does_not_decide_about_the_split(keys: list[str]) -> None:
    one = {row.sample_key: row.part for row in place_rows((), keys, 25.0)}
    other = {row.sample_key: row.part for row in place_rows((), [*reversed(keys)], 25.0)}
    differing = [key for key in keys if one[key] != other[key]]
    assert len(differing) <= 2, "only the one row that fills an empty part may differ"


def test_nothing_new_changes_nothing() -> None:
    first = place_rows((), ["a", "b", "c"], 10.0)
    assert place_rows(first, ["c", "a", "b"], 10.0) == first


def test_answers_and_turns_of_one_prompt_lie_on_the_same_side() -> None:
    keys = [f"p{number}" for number in range(200)]
    for key in keys:
        sides = {joins_validation(f"{key}{suffix}", 30.0) for suffix in ("", ".a0", ".a1", ".t2", ".a3.t4")}
        assert len(sides) == 1
    share = sum(joins_validation(key, 30.0) for key in keys) / len(keys)
    assert 0.2 < share < 0.4


def test_a_small_set_has_a_row_on_both_sides_and_keeps_it() -> None:
    keys = [key for key in (f"p{number}" for number in range(100)) if not joins_validation(key, 10.0)][:4]
    first = place_rows((), keys[:3], 10.0)
    assert [row.part for row in first] == ["train", "train", "validation"]
    second = place_rows(first, keys, 10.0)
    assert [row.sample_key for row in second] == [keys[0], keys[1], keys[3], keys[2]]
    assert [row.part for row in place_rows((), keys[:1], 10.0)] == ["train"]


def test_a_folder_of_one_row_gets_its_other_side_when_it_grows_and_the_row_stays() -> None:
    train = [key for key in (f"p{number}" for number in range(100)) if not joins_validation(key, 10.0)]
    held_out = next(f"p{number}" for number in range(100) if joins_validation(f"p{number}", 10.0))
    first = place_rows((), train[:1], 10.0)
    second = place_rows(first, train[:3], 10.0)
    assert [(row.sample_key, row.part) for row in second] == [
        (train[0], "train"),
        (train[1], "train"),
        (train[2], "validation"),
    ]
    other = place_rows((), [held_out], 10.0)
    grown = place_rows(other, [held_out, f"{held_out}.a1", train[0]], 10.0)
    assert [(row.sample_key, row.part) for row in grown] == [
        (train[0], "train"),
        (held_out, "validation"),
        (f"{held_out}.a1", "validation"),
    ]


def test_the_row_that_fills_an_empty_part_takes_the_other_answers_to_its_prompt_along() -> None:
    a, b = [key for key in (f"p{number}" for number in range(100)) if not joins_validation(key, 10.0)][:2]
    placed = place_rows((), [f"{a}.a0", f"{b}.a0", f"{a}.a1", f"{b}.a1"], 10.0)
    assert _keys(placed, "train") == [f"{a}.a0", f"{a}.a1"]
    assert _keys(placed, "validation") == [f"{b}.a0", f"{b}.a1"]
    alone = place_rows((), [f"{a}.a0", f"{a}.a1"], 10.0)
    assert [row.part for row in alone] == ["train", "validation"]


def test_a_set_that_holds_out_far_more_or_less_than_asked_says_so_and_moves_no_row() -> None:
    keys = [f"p{number}" for number in range(400)]
    held_out = [key for key in keys if joins_validation(key, 10.0)]
    small = [*held_out[:5], *(key for key in keys if key not in held_out)][:12]
    placed = place_rows((), small, 10.0)
    assert _keys(placed, "validation") == held_out[:5]
    assert split_text(12, 5) == "7 to train on, 5 to validate on (41.7 %)"
    told = unusual_split(12, 5, 10.0)
    assert told is not None
    assert told.startswith("5 of 12 rows, 41.7 %, are to validate on, and 10 % were asked")
    assert unusual_split(len(keys), len(held_out), 10.0) is None
    assert [unusual_split(100, part, 10.0) is None for part in (4, 5, 20, 21)] == [False, True, True, False]
    assert unusual_split(12, 0, 0.0) is None, "nothing was to be held out"


def test_a_set_with_rows_on_one_side_alone_is_said_to_be_refused_with_what_to_do() -> None:
    assert unusual_split(1, 0, 10.0) is None, "one row cannot be split"
    assert one_sided(2, 1, "b3", computed=True) is None
    told = one_sided(1, 0, "b3", computed=True)
    assert told == (
        "speculators refuses a set of one row: no command trains on this one. Add prompts with eagletui add b3 "
        "PROMPTS, then eagletui run with its config, eagletui extract b3, and the same export again: rows that are "
        "there stay on their side, and a new one fills the other."
    )
    assert "without rows to validate on" in str(one_sided(4, 0, "b3", computed=False))
    assert "of rows to validate on alone" in str(one_sided(4, 4, "b3", computed=False))


def test_a_sample_that_left_is_taken_out_where_asked_and_nobody_changes_sides() -> None:
    keys = [f"p{number}" for number in range(50)]
    first = place_rows((), keys, 30.0)
    left = [key for key in keys if key not in ("p3", first[-1].sample_key)]
    second = place_rows(first, [*left, "late"], 30.0, remove_gone=True)
    kept = [row for row in first if row.sample_key in left]
    assert [row for row in second if row.sample_key != "late"] == kept
    (late,) = [row for row in second if row.sample_key == "late"]
    assert late.since == 2


def test_a_sample_that_left_the_set_is_named_and_nothing_is_renumbered() -> None:
    first = place_rows((), ["a", "b", "c"], 0.0)
    with pytest.raises(InputError, match="1 of the 3 samples exported before, b among them"):
        place_rows(first, ["a", "c"], 0.0)
