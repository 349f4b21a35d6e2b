"""Score tokenizations of the same bytes with a target model, each stretch that they share once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from eagletui.core.alternatives import Lattice
from eagletui.core.errors import ModelError
from eagletui.core.hidden_tail import hidden_by, without_mark
from eagletui.core.sampling import Sampling
from eagletui.models.load import TargetModel
from eagletui.models.scoring import Ask, TokenTree
from eagletui.models.tails import HiddenTails

AT_ONCE: Final = 256
"""Tokens in one forward pass."""

FAR: Final = 64
"""Tokens behind a difference from which on it is taken to change nothing more."""

CHECKED: Final = 12
"""Tokens that a check scores twice."""

SAME: Final = 0.25
"""How far, in log, the middle one of them may be apart: low precision rounds differently in another shape."""


class Step(NamedTuple):
    """One token of a path."""

    token_id: int
    end: int
    """Byte behind it."""


@dataclass(frozen=True, slots=True)
class Path:
    """A tokenization and how likely the model finds it."""

    ids: tuple[int, ...]
    bounds: tuple[int, ...]
    """Where each token begins, and the end."""
    nodes: tuple[int, ...]
    """The tree's node before each token."""
    scores: tuple[float, ...]
    """Log-probability of each token under the sampling."""

    @property
    def score(self) -> float:
        """Log-probability of them all."""
        return sum(self.scores)


class PathScores:
    """The tree of everything that was scored over one answer's bytes."""

    def __init__(
        self,
        target: TargetModel,
        sampling: Sampling,
        lattice: Lattice,
        prompt_ids: Sequence[int],
        ids: tuple[int, ...],
        tails: HiddenTails,
    ) -> None:
        """Score a first tokenization.

        Args:
            target: the model.
            sampling: how the answer was sampled.
            lattice: its bytes.
            prompt_ids: what it answers.
            ids: the tokenization, with a mark at the end if the lattice has marks.
            tails: weighs those.
        """
        self.lattice = lattice
        self._tails = tails
        self._tree = TokenTree(target, sampling)
        self._children: dict[tuple[int, int], int] = {}
        bounds = tuple(lattice.boundaries(ids))
        real = without_mark(ids)
        self._offsets = list(bounds[: len(real) + 1])
        """Byte that each node stands before."""
        self._scores, self.likelihood = self._tree.fill(prompt_ids, real, [*map(self._wanted, self._offsets)])
        """The second: how likely the first tokenization is, against how likely it should be."""
        for node, token_id in enumerate(real):
            self._children[node, token_id] = node + 1
        nodes = tuple(range(len(ids)))
        self.first = Path(ids, bounds, nodes, self._along(nodes, ids))

    @property
    def tokens(self) -> int:
        """Tokens computed so far, without the prompt's."""
        return self._tree.nodes

    def score(self, node: int, token_id: int) -> float:
        """Log-probability of a piece of the lattice, or a mark, behind a node."""
        scores = self._scores[node]
        if token_id < 0 and token_id not in scores:
            offset = self._offsets[node]
            first = {one: scores[one] + weight for one, weight in self.lattice.first_hidden(offset).items()}
            behind = self.lattice.data[offset:]
            scores[token_id] = self._tails.score(hidden_by(token_id), behind, node, first, self._hide)
        return scores[token_id]

    def paths(self, many: Iterable[tuple[int, ...]], known: Path, far: int = FAR) -> list[Path]:
        """Score whole tokenizations.

        Args:
            many: of the same bytes.
            known: one that is scored already; far behind every difference its scores are taken.
            far: how many tokens that is.
        """
        asked = [(ids, tuple(self.lattice.boundaries(ids))) for ids in many]
        stretches = [_stretches(ids, bounds, known, far) for ids, bounds in asked]
        chains = [
            (known.nodes[stretch.known_at], [*map(Step, ids[at], bounds[_behind(at)])])
            for (ids, bounds), found in zip(asked, stretches, strict=True)
            for stretch in found
            # Behind the last token of a stretch nothing is asked.
            for at in [slice(stretch.start, stretch.stop - 1)]
        ]
        grown = iter(self.follow(chains))
        return [
            self._joined(ids, bounds, known, [(stretch, next(grown)) for stretch in found])
            for (ids, bounds), found in zip(asked, stretches, strict=True)
        ]

    def follow(self, chains: Sequence[tuple[int, Sequence[Step]]]) -> list[list[int]]:
        """Put tokens behind nodes.

        Args:
            chains: a node, and the tokens that follow it.

        Returns:
            The node of each token, for each chain.
        """
        asked: list[Ask] = []
        found: list[list[int]] = []
        first = self._tree.nodes
        for parent, steps in chains:
            nodes: list[int] = []
            for step in steps:
                # Behind a mark nothing is scored.
                node = parent if step.token_id < 0 else self._children.get((parent, step.token_id))
                if node is None:
                    node = self._children[parent, step.token_id] = first + len(asked)
                    asked.append(Ask(parent, step.token_id, self._wanted(step.end)))
                    self._offsets.append(step.end)
                nodes.append(node)
                parent = node
            found.append(nodes)
        for start in range(0, len(asked), AT_ONCE):
            self._scores += self._tree.grow(asked[start : start + AT_ONCE])
        return found

    def check(self) -> None:
        """Score the last tokens of the first tokenization again, as a branch.

        Raises:
            ModelError: their scores are others than before, so this model does not look at a branch as at a text.
        """
        ids = without_mark(self.first.ids)
        start = max(0, len(ids) - CHECKED)
        base = self._tree.nodes
        asked = [
            Ask(self.first.nodes[start] if index == start else base + index - start - 1, token_id, (following,))
            for index, (token_id, following) in enumerate(pairwise(ids))
            if index >= start
        ]
        again = self._tree.grow(asked)
        self._scores += again
        self._offsets += self.first.bounds[start + 1 : start + 1 + len(asked)]
        apart = [
            abs(scores[ask.wanted[0]] - known)
            for ask, scores, known in zip(asked, again, self.first.scores[start + 1 : len(ids)], strict=True)
        ]
        if apart and sorted(apart)[len(apart) // 2] > SAME:
            raise ModelError(
                "The target's attention cannot be branched: tokens scored as a branch of their text differ by "
                f"{max(apart):.2f} from the text itself. The arbiter needs a model whose layers all attend to "
                "everything before."
            )

    def _hide(self, asked: Sequence[Ask]) -> tuple[range, list[dict[int, float]]]:
        """Put tokens into the tree that are no part of the bytes."""
        first = self._tree.nodes
        scores = self._tree.grow(asked)
        self._scores += scores
        self._offsets += [self.lattice.end] * len(asked)
        return range(first, self._tree.nodes), scores

    def _wanted(self, offset: int) -> tuple[int, ...]:
        pieces = (token_id for token_id in self.lattice.pieces(offset) if token_id >= 0)
        return (*pieces, *self.lattice.first_hidden(offset))

    def _along(self, nodes: Sequence[int], ids: Sequence[int]) -> tuple[float, ...]:
        return tuple(self.score(node, token_id) for node, token_id in zip(nodes, ids, strict=False))

    def _joined(
        self, ids: tuple[int, ...], bounds: tuple[int, ...], known: Path, grown: Sequence[tuple["_Stretch", list[int]]]
    ) -> Path:
        index_at = {offset: index for index, offset in enumerate(known.bounds)}
        nodes: list[int] = []
        scores: list[float] = []
        for stretch, new in [*grown, (_Stretch(len(ids), len(ids), 0), [])]:
            # Up to the stretch the path is the known one.
            since = [index_at[offset] for offset in bounds[len(nodes) : stretch.start]]
            nodes += (known.nodes[index] for index in since)
            scores += (known.scores[index] for index in since)
            if stretch.start < stretch.stop:
                before = [known.nodes[stretch.known_at], *new]
                nodes += before
                scores += self._along(before, ids[stretch.start : stretch.stop])
        return Path(ids, bounds, tuple(nodes), tuple(scores))


class _Stretch(NamedTuple):
    """Tokens of a path that are scored in their own context."""

    start: int
    stop: int
    known_at: int
    """Index of the known path's node that they follow."""


def _stretches(ids: Sequence[int], bounds: Sequence[int], known: Path, far: int) -> list[_Stretch]:
    """Cut a path where it leaves a known one and where it is long back on it.

    Between two differences the way back is never shorter than `FAR`: one that is made again depends on the first.
    """
    index_at = {offset: index for index, offset in enumerate(known.bounds)}
    is_alike = [
        (at := index_at.get(offset)) is not None and known.ids[at] == token_id
        for token_id, offset in zip(ids, bounds, strict=False)
    ]
    last = max((index for index, alike in enumerate(is_alike) if not alike), default=-1)
    found: list[_Stretch] = []
    start: int | None = None
    left_at = alike = 0
    for index, same in enumerate(is_alike):
        if start is None and not same:
            start, left_at = index, index_at[bounds[index]]
        elif start is not None and same and alike >= (far if index > last else max(far, FAR)):
            found.append(_Stretch(start, index, left_at))
            start = None
        alike = alike + 1 if same else 0
    if start is not None:
        found.append(_Stretch(start, len(ids), left_at))
    return found


def _behind(at: slice) -> slice:
    return slice(at.start + 1, at.stop + 1)
