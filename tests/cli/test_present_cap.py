"""Under which cap an existing run goes on, before its key is compared with it."""

from decimal import Decimal

from eagletui.cli.run import with_limits, with_present_cap
from eagletui.config.run_config import load_config
from eagletui.runs.folder import RunFolder
from tests.cli.conftest import Command


def test_an_existing_run_goes_on_under_the_cap_that_was_ordered_unless_its_config_was_edited(
    eagletui: Command, made_run: RunFolder
) -> None:
    config = load_config(made_run.config_path)
    assert eagletui("ctl", made_run.name, "cap", "0.6").code == 0
    assert with_present_cap(config, made_run).spend.cap_usd == Decimal("0.6")
    edited = with_limits(config, cap="0.8", stop_at=None)
    assert with_present_cap(edited, made_run).spend.cap_usd == Decimal("0.8")
