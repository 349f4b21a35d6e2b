"""A ledger of a run that nothing was asked in yet."""

from pathlib import Path

from tests.ledger.fresh import fresh_ledger


def empty_ledger(path: Path, *, name: str = "x", cap_pico: int = 1) -> Path:
    """Make a ledger, for whoever does not care what its run is about."""
    fresh_ledger(
        path,
        name=name,
        config_json="{}",
        model_id="m",
        format="smollm2",
        stop_at_pico=cap_pico,
        cap_pico=cap_pico,
        max_in_flight=8,
    )
    return path
