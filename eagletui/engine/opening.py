"""Open a run's tokenizer, format and profiles for judging answers."""

import gc
from collections.abc import Sequence
from typing import NamedTuple

from eagletui.config.run_config import RunConfig
from eagletui.core.findings import Finding
from eagletui.engine.answers import AnswerDesk
from eagletui.ledger.reader import LedgerReader
from eagletui.run_ids import RunIds, chosen_profiles
from eagletui.runs.folder import RunFolder
from eagletui.tokens.formats import load_format
from eagletui.tokens.judge import fit_findings
from eagletui.tokens.load import load_tokenizer


class Opened(NamedTuple):
    """What a process that judges answers works with."""

    desk: AnswerDesk
    tokenizer_hash: str
    doubts: Sequence[Finding]
    """What does not fit between format and tokenizer."""


def open_desk(folder: RunFolder, config: RunConfig) -> Opened:
    """Load what answers are rebuilt with.

    Raises:
        EagleError: tokenizer or format cannot be used.
    """
    tokenizer = load_tokenizer(folder.tokenizer_dir)
    fmt = load_format(config.model.format)
    doubts = fit_findings(tokenizer, fmt, 0, None)
    with LedgerReader(folder.ledger_path) as reader:
        profiles = chosen_profiles(config, reader.endpoints())
    gc.collect()
    gc.freeze()  # the tables of a vocabulary are for good; walking them again and again costs a tenth of a core
    return Opened(AnswerDesk(RunIds(config, tokenizer, fmt, profiles), doubted=bool(doubts)), tokenizer.hash, doubts)
