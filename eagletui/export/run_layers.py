"""Which layers a run's own config names, where its target is not known."""

from eagletui.config.run_config import config_from_json
from eagletui.core.features import feature_layers
from eagletui.ledger.reader import LedgerReader


def configured_layers(reader: LedgerReader) -> tuple[int, ...] | None:
    """Return the layers whose input is kept as the config names them; None leaves them to the default."""
    asked = config_from_json(reader.run().config_json).extract.layers
    return None if asked is None else tuple(asked)


def configured_outputs(reader: LedgerReader) -> tuple[int, int, int] | None:
    """Return the same streams as layer outputs; None where the config names none, so that a trainer's default is ours.

    Raises:
        ModelError: they are not three growing numbers.
    """
    chosen = configured_layers(reader)
    return None if chosen is None else feature_layers(1 + max(chosen), chosen).outputs
