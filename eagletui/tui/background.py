"""Start work that reads or waits while the screen stays alive."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from textual.dom import DOMNode


def start(
    node: DOMNode, what: str, work: Callable[[], Coroutine[Any, Any, None]], *, group: str, exclusive: bool = True
) -> None:
    """Run a coroutine function beside the screen; a failure is shown by the app and ends nothing.

    Args:
        node: the work ends when this screen goes.
        what: verb and object, for the message in case it fails.
        work: called when its turn comes, so that work which is replaced before never begins.
        group: what it replaces, or runs beside.
        exclusive: end what is running in the group.
    """
    # The library's type has no room for a coroutine function of unknown send type.
    node.run_worker(cast("Callable[[], None]", work), what, group=group, exclusive=exclusive, exit_on_error=False)
