"""The arbiter: which of the ways to cut an answer into tokens did the target model most likely sample.

One forward pass over the prompt and the given ids tells the probability of every other piece at every boundary. Pieces
that the sampling allows are followed until they meet the given cut again, and each such change is weighed with the
tokens behind it. The best combinations of changes are scored whole, the best of those becomes the cut to change, and
that repeats until nothing is better.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from math import exp, inf
from typing import Final, NamedTuple

from eagletui.core.alternatives import Change, Lattice, differences, disjoint, replaced
from eagletui.core.combinations import Combination, Lengths, Weighed, best_combinations, log_total
from eagletui.core.hidden_tail import Tails, UnfinishedPieces, count_tokens, without_mark
from eagletui.core.likelihood import Likelihood
from eagletui.core.opinions import Opinion, Question
from eagletui.core.vocabulary import Vocabulary
from eagletui.models.load import TargetModel
from eagletui.models.paths import Path, PathScores, Step
from eagletui.models.scoring import TokenTree
from eagletui.models.tails import HiddenTails

STEPS: Final = 3
"""Times that the search changes what it found."""

CANDIDATES: Final = 6
"""Combinations scored whole in a step."""

PATTERNS: Final = 8
"""Changes that are tried wherever they can be made, in a step."""

COMPLETIONS: Final = 2
"""Combinations of other changes that are tried with each of those."""

FAR_BELOW: Final = 3.0
"""Combinations that lie so far below the best one, in log, by their estimate or soon behind their changes, are not
scored to the end."""

SOON: Final = 12
"""Tokens behind a change after which that is seen."""

LOSS: Final = 5.0
"""Changes that make the answer less likely by so much, in log, are not looked at."""

WINDOW: Final = 6
"""Tokens behind a change on which it is weighed."""

GLANCE: Final = 2
"""Tokens behind it on which it is weighed first."""

HARDLY: Final = 4.0
"""Changes that make the answer less likely by so much, in log, at that glance are not weighed further."""

PIECES: Final = 5
"""Most pieces of a change."""

OPEN: Final = 64
"""Unfinished changes followed at once."""

WORK: Final = 10
"""Tokens computed for each of the answer's from which on no further step is begun; short answers count as 100."""

BILL_ERRS: Final = -7.0
"""Log weight of a length that the bill does not name: counts are seldom wrong for reasons of their own."""


class Arbiter:
    """Answers questions with one target model."""

    def __init__(self, target: TargetModel, vocabulary: Vocabulary) -> None:
        """Take the model and the vocabulary that its ids are of."""
        self._target = target
        self._vocabulary = vocabulary
        self._unfinished = UnfinishedPieces(vocabulary)
        self._checked = 0
        """Longest text, in tokens, over which branches were found to see what they should."""

    def ask(self, question: Question) -> Opinion:
        """Search the most likely cut.

        Raises:
            ModelError: the model's attention does not keep the branches of one text apart.
        """
        has_tail = question.cut and bool(self._unfinished.following(b""))
        tails = Tails(self._unfinished, question.tail_shown) if has_tail else None
        lattice = Lattice(question.ids, self._vocabulary, tails)
        ids = question.ids if tails is None else (*question.ids, tails.marks[0])
        hidden = HiddenTails(self._unfinished, self._vocabulary)
        scores = PathScores(self._target, question.sampling, lattice, question.prompt_ids, ids, hidden)
        if len(question.prompt_ids) + len(question.ids) > 2 * self._checked:
            scores.check()
            self._checked = len(question.prompt_ids) + len(question.ids)
        search = _Search(scores, _lengths(question, ids))
        search.run()
        best = without_mark(search.base.ids)
        return Opinion(
            ids=best,
            posterior=search.posterior(),
            margin=_seen(search.base) - _seen(scores.first),
            scores=search.base.scores[: len(best)],
            likelihood=scores.likelihood,
            tokens=scores.tokens,
            behind=len(lattice.data) - len(self._vocabulary.decode(best)),
        )

    def likelihood(self, question: Question) -> Likelihood:
        """Tell how likely the given ids are, against how likely they should be; no other cut is looked for."""
        nothing = [()] * (len(question.ids) + 1)
        _, likelihood = TokenTree(self._target, question.sampling).fill(question.prompt_ids, question.ids, nothing)
        return likelihood

    @property
    def model(self) -> str:
        """Hash of the target model's files, hex."""
        return self._target.hash.xxh3


class _Open(NamedTuple):
    """A change that has not met the cut again."""

    start: int
    steps: tuple[Step, ...]
    node: int
    """Before the last step."""
    score: float
    """Of the steps."""


class _Search:
    """The search over the cuts of one answer."""

    def __init__(self, scores: PathScores, lengths: Lengths) -> None:
        self._scores = scores
        self._lattice = scores.lattice
        self._first = scores.first
        self._lengths = lengths
        """Relative to the given ids."""
        self._scored = {self._first.ids: self._first}
        self.base = self._first
        """The most likely cut so far."""
        self._around: list[Weighed] = []
        """Single changes of `base`."""

    def run(self) -> None:
        """Change the cut until nothing is better."""
        enough = WORK * max(100, len(self._first.ids))
        for _ in range(STEPS):
            if self._scores.tokens > enough:
                break
            self._around = self._neighbours(self.base)
            self._score(self._proposals())
            best = max(self._scored.values(), key=self._standing)
            if best.ids == self.base.ids:
                return
            self.base = best
        self._around = self._neighbours(self.base)

    def posterior(self) -> float:
        """Probability of the ids of `base` among all cuts, whatever is hidden behind them: estimated weights, whole
        scores in place of those that have one."""
        own = self._standing(self.base)
        if own == -inf:
            return 0.0
        weights = {one.change: one.weight for one in self._around}
        lengths, own_length = self._relative(), own - self.base.score
        total = exp(log_total(self._around, lengths) - own_length)
        for path in self._scored.values():
            if path.ids == self.base.ids:
                continue
            changes = differences(self.base.ids, path.ids, self._lattice)
            length = self._lengths.weight(self._growth(path)) - self._lengths.weight(self._growth(self.base))
            if length == -inf:
                continue
            total += exp(path.score - self.base.score + length)
            if all(change in weights for change in changes):
                total -= exp(sum(weights[change] for change in changes) + length)
        same = 1.0 + sum(exp(one.weight + lengths.weight(one.growth) - own_length) for one in self._other_marks())
        return same / max(same, total)

    def _other_marks(self) -> Iterable[Weighed]:
        """Changes after which the ids that are seen are the same."""
        start = self.base.bounds[-2]
        return (one for one in self._around if one.change.start == start and max(one.change.ids) < 0)

    def _standing(self, path: Path) -> float:
        return path.score + self._lengths.weight(self._growth(path))

    def _growth(self, path: Path) -> int:
        return count_tokens(path.ids) - count_tokens(self._first.ids)

    def _relative(self) -> Lengths:
        return self._lengths.beyond(self._growth(self.base))

    def _score(self, many: Sequence[tuple[int, ...]]) -> None:
        """Score cuts, those to the end that are not far behind the best one soon after their changes."""
        new = [ids for ids in dict.fromkeys(many) if ids not in self._scored]
        for path in self._scores.paths(new, self.base, SOON):
            self._scored[path.ids] = path
        least = max(map(self._standing, self._scored.values())) - FAR_BELOW
        for path in self._scores.paths([ids for ids in new if self._standing(self._scored[ids]) >= least], self.base):
            self._scored[path.ids] = path

    def _proposals(self) -> list[tuple[int, ...]]:
        """Cuts that are worth scoring whole, by what they are likely to weigh."""
        lengths = self._relative()
        ways = best_combinations(self._around, lengths, CANDIDATES)
        for weight, pattern in self._patterns():
            rest = [one for one in self._around if not any(_overlap(one.change, change) for change in pattern)]
            made = replaced(self.base.ids, pattern, self._lattice)
            grown = count_tokens(made) - count_tokens(self.base.ids)
            ways += (
                Combination(weight + way.weight, tuple(disjoint([*pattern, *way.changes])))
                for way in best_combinations(rest, lengths.beyond(grown), COMPLETIONS)
            )
        least = max(way.weight for way in ways) - FAR_BELOW
        likely = nlargest(CANDIDATES, (way for way in ways if way.weight >= least), key=lambda way: way.weight)
        return [replaced(self.base.ids, way.changes, self._lattice) for way in likely]

    def _patterns(self) -> list[Combination]:
        """Changes made there and at every later place of their text: what a model has once cut oddly it cuts so again.

        The first time costs most of what the pattern costs; its weight is taken for that of the best place alone. The
        later places alone may be too unlikely to be looked at.
        """
        found: dict[tuple[Change, ...], float] = {}
        for one in self._around:
            pattern = self._from_there_on(one.change)
            if len(pattern) > 1:
                found[pattern] = one.weight
        return [
            Combination(weight, pattern)
            for pattern, weight in nlargest(PATTERNS, found.items(), key=lambda pair: pair[1])
        ]

    def _from_there_on(self, change: Change) -> tuple[Change, ...]:
        """Make a change at its place and at every later one where its text stands between two boundaries."""
        bounds = set(self.base.bounds)
        text = self._lattice.data[change.start : change.end]
        places = (
            offset
            for offset in self.base.bounds
            if offset >= change.start and min(change.ids) >= 0 and self._lattice.data.startswith(text, offset)
        )
        changes = [
            Change(place, place + len(text), change.ids)
            for place in places
            if place + len(text) in bounds and change.ids[0] in self._lattice.pieces(place)
        ]
        return tuple(disjoint(changes))

    def _neighbours(self, base: Path) -> list[Weighed]:
        """Weigh the single changes of a cut: at a glance as soon as they meet it again, then closer if that is likely.

        Each pass of the model serves changes at all three stages.
        """
        stretch = _Stretches(base)
        front = [
            _Open(offset, (Step(piece, end),), node, self._scores.score(node, piece))
            for offset, node, token_id in zip(base.bounds, base.nodes, base.ids, strict=False)
            for piece, end in self._lattice.pieces(offset).items()
            if piece != token_id
        ]
        likely: list[_Open] = []
        found: list[Weighed] = []
        for size in range(1, PIECES + 3):
            met, unmet = self._sorted(front, stretch)
            chains: list[tuple[int, Sequence[Step]]] = []
            if size < PIECES:
                chains += ((way.node, way.steps[-1:]) for way in unmet)
            chains += (stretch.behind(way, GLANCE) for way in met)
            chains += (stretch.behind(way, WINDOW) for way in likely)
            grown = iter(self._scores.follow(chains))
            front = self._longer(unmet, grown) if size < PIECES else []
            glanced = [stretch.weighed(way, next(grown), self._scores) for way in met]
            found += (stretch.weighed(way, next(grown), self._scores) for way in likely)
            found += (one for one in glanced if one.weight < -HARDLY)
            likely = [way for way, one in zip(met, glanced, strict=True) if one.weight >= -HARDLY]
            if not front and not likely:
                break
        return found

    def _sorted(self, front: Sequence[_Open], stretch: "_Stretches") -> tuple[list[_Open], list[_Open]]:
        """Tell changes that have met the cut again from the likeliest of those that have not."""
        met: list[_Open] = []
        unmet: list[tuple[float, _Open]] = []
        for way in front:
            end = way.steps[-1].end
            gain = stretch.gain(way, hides=bool(self._lattice.first_hidden(end)))
            if gain < -LOSS:
                continue
            if end in stretch.index_at:
                met.append(way)
            else:
                unmet.append((gain, way))
        return met, [way for _, way in nlargest(OPEN, unmet, key=lambda pair: pair[0])]

    def _longer(self, ways: Sequence[_Open], grown: Iterator[Sequence[int]]) -> list[_Open]:
        """Go on with every piece behind each change; its last step's node is the next of those grown."""
        return [
            _Open(way.start, (*way.steps, Step(piece, end)), node, way.score + self._scores.score(node, piece))
            for way in ways
            for (node,) in [next(grown)]
            for piece, end in self._lattice.pieces(way.steps[-1].end).items()
        ]


class _Stretches:
    """The cut that is changed, by the stretches that changes replace."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.index_at = {offset: index for index, offset in enumerate(base.bounds)}
        """Where its tokens begin."""
        self._before = _running(base.scores)
        self._covering = _covering(base.bounds)

    def gain(self, way: _Open, *, hides: bool) -> float:
        """Log of how much likelier the steps of a change are than what they replace so far.

        Args:
            way: the change.
            hides: a hidden token may begin behind it, which may take the place of all that follows.
        """
        until = -1 if hides else self._covering[way.steps[-1].end]
        return way.score - (self._before[until] - self._before[self.index_at[way.start]])

    def behind(self, way: _Open, window: int) -> tuple[int, list[Step]]:
        """List what has to be scored so that a change is weighed on so many tokens behind it."""
        at = self.index_at[way.steps[-1].end]
        # Behind the last of them nothing is asked.
        following = map(Step, self._base.ids[at : at + window], self._base.bounds[at + 1 : at + window])
        return way.node, [way.steps[-1], *following]

    def weighed(self, way: _Open, nodes: Sequence[int], scores: PathScores) -> Weighed:
        """Weigh a change on its own pieces and on the tokens behind it.

        Args:
            way: the change.
            nodes: of its last step and of those tokens.
            scores: tells how likely they are there.
        """
        base, start, at = self._base, self.index_at[way.start], self.index_at[way.steps[-1].end]
        weight = way.score - (self._before[at] - self._before[start])
        for node, token_id, score in zip(nodes, base.ids[at:], base.scores[at:], strict=False):
            weight += scores.score(node, token_id) - score
        ids = tuple(step.token_id for step in way.steps)
        growth = count_tokens(ids) - count_tokens(base.ids[start:at])
        return Weighed(Change(way.start, way.steps[-1].end, ids), weight, growth)


def _lengths(question: Question, ids: Sequence[int]) -> Lengths:
    """Weigh how many tokens more than in these ids there may be."""
    return Lengths() if question.length is None else Lengths({question.length - count_tokens(ids): 0.0}, BILL_ERRS)


def _seen(path: Path) -> float:
    """Log-probability of the text of a path: without a hidden tail, unless that is part of it."""
    is_behind = path.ids[-1] < 0 and path.bounds[-2] == path.bounds[-1] - 1
    return sum(path.scores[:-1]) if is_behind else path.score


def _running(scores: Sequence[float]) -> list[float]:
    sums = [0.0]
    for score in scores:
        sums.append(sums[-1] + score)
    return sums


def _covering(bounds: Sequence[int]) -> list[int]:
    """For each byte offset, the index of the first boundary at or behind it."""
    found: list[int] = []
    for index, offset in enumerate(bounds):
        found += [index] * (offset + 1 - len(found))
    return found


def _overlap(one: Change, other: Change) -> bool:
    return one.start < other.end and other.start < one.end
