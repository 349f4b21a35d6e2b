"""Ids that a tokenizer file claims: a damaged one must not make tables of any size."""

from collections.abc import Iterable
from typing import Final

from eagletui.core.errors import TokenizerError

LARGEST: Final = 16_777_215
"""No known vocabulary comes near; a table up to it still fits in memory."""


def check_ids(where: str, claimed: Iterable[tuple[object, object]]) -> None:
    """Refuse ids that are no ids.

    Args:
        where: file and field, for the message.
        claimed: pieces with their ids.

    Raises:
        TokenizerError: names the first piece whose id is none.
    """
    for piece, token_id in claimed:
        if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id <= LARGEST:
            raise TokenizerError(f"{where}: found id {token_id!r} of {piece!r}, expected a number from 0 to {LARGEST}")
