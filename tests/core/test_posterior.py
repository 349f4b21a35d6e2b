"""Calibration tables, worked out by hand."""

from eagletui.core.posterior import LIKELY, SURE, Calibration, calibrate, least_posterior


def test_answers_are_put_together_by_what_was_stated() -> None:
    table = calibrate([(0.6, True), (0.6, False), (0.95, True), (1.0, True), (0.9995, True)])
    assert table == [Calibration(0.6, 0.5, 2), Calibration(0.95, 1.0, 1), Calibration((1.0 + 0.9995) / 2, 1.0, 2)]


def test_no_answers_give_no_table() -> None:
    assert calibrate([]) == []


def test_only_ids_that_are_wrong_as_they_are_change_on_a_likely_cut() -> None:
    assert least_posterior("conflict") == LIKELY
    assert least_posterior("counted") == least_posterior("canonical") == SURE
