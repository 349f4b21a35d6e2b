"""The arbiter against every cut written out and scored by plain forward passes of a tiny model."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from math import exp, log

import pytest
import torch

from eagletui.arbitration.arbiter import BILL_ERRS, Arbiter
from eagletui.core.opinions import Question
from eagletui.core.posterior import SURE
from eagletui.core.sampling import Sampling
from eagletui.core.vocabulary import Vocabulary
from eagletui.models.load import TargetModel, load_target
from tests.tiny_models import save_tiny_model

END = 500
STRINGS = ["".join(letters) for size in (1, 2, 3, 4) for letters in product("abcd", repeat=size)]
VOCABULARY = Vocabulary.from_pieces({index: text.encode() for index, text in enumerate(STRINGS)}, {"<end>": END})
TAILS = (b"\xf0", b"\xf0\x9f", b"\x9f", b"c\xf0", b"bc\xf0\x9f")
TAILED = Vocabulary.from_pieces(dict(enumerate([*map(str.encode, STRINGS), *TAILS])), {"<end>": END})
PROMPT = (7, 301, 44, 90, 12)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TargetModel:
    folder = save_tiny_model(tmp_path_factory.mktemp("model"), "llama")
    return load_target(folder, dtype="float32", device="cpu")


def _cuts(text: bytes) -> list[tuple[int, ...]]:
    if not text:
        return [()]
    found = []
    for end in range(1, min(4, len(text)) + 1):
        token_id = VOCABULARY.id_of(text[:end])
        assert token_id is not None
        found += [(token_id, *rest) for rest in _cuts(text[end:])]
    return found


def _logs(target: TargetModel, ids: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities at each place of an answer, one plain forward."""
    with torch.inference_mode():
        hidden = target.decoder(input_ids=torch.tensor([[*PROMPT, *ids]])).last_hidden_state[0]
        logs: torch.Tensor = torch.log_softmax(target.head(hidden).float() / temperature, dim=-1)
        return logs[len(PROMPT) - 1 :]


def _score(target: TargetModel, ids: tuple[int, ...], temperature: float = 1.0) -> float:
    logs = _logs(target, ids, temperature)
    return sum(float(logs[place, token_id]) for place, token_id in enumerate(ids))


def _sampled(target: TargetModel, size: int, temperature: float, seed: int) -> tuple[int, ...]:
    """Sample an answer of text pieces."""
    generator = torch.Generator().manual_seed(seed)
    ids: tuple[int, ...] = ()
    for _ in range(size):
        chances = _logs(target, ids, temperature)[-1, : len(STRINGS)].exp()
        ids += (int(torch.multinomial(chances, 1, generator=generator)),)
    return ids


@pytest.mark.parametrize(
    "text", ["abcdab", pytest.param("aaaaaa", marks=pytest.mark.slow), pytest.param("dcbadcb", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("length", [None, 3, 4])
def test_the_best_cut_and_its_posterior_are_those_of_all_cuts(
    target: TargetModel, text: str, length: int | None
) -> None:
    cuts = [(*cut, END) for cut in _cuts(text.encode())]
    weights = {cut: _score(target, cut) + (0.0 if length in (None, len(cut)) else BILL_ERRS) for cut in cuts}
    best = max(weights, key=lambda cut: weights[cut])
    share = exp(weights[best]) / sum(map(exp, weights.values()))
    given = min(cuts, key=len)
    opinion = Arbiter(target, VOCABULARY).ask(Question(PROMPT, given, Sampling(), length))
    assert opinion.ids == best
    assert opinion.posterior == pytest.approx(share, abs=0.05)
    assert opinion.margin == pytest.approx(_score(target, best) - _score(target, given), abs=1e-2)
    assert sum(opinion.scores) == pytest.approx(_score(target, best), abs=1e-2)


def _cut_inside(text: bytes, *, is_shown: bool) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """All that may have been sampled where a cut shows this text: ids that are seen, hidden ones, log weight.

    Half of the servers show every whole character, and maybe that more was there; the others hold a token back until
    its last character is whole.
    """
    behind = [way for size in range(4) for way in product(TAILS, repeat=size) if _stays_open(way)]
    for until, way in product(range(len(text) + 1), behind):
        whole = b"".join(way).split(b"\xf0")[0]
        shows_all, holds_back = text[:until] + whole == text, until == len(text)
        if shows_all and (way or not is_shown):
            weight = 0.0 if is_shown or holds_back else log(0.5)
        elif holds_back and not is_shown:
            weight = log(0.5)
        else:
            continue
        hidden = tuple(len(STRINGS) + TAILS.index(piece) for piece in way)
        yield from ((seen, hidden, weight) for seen in _cuts(text[:until]))


def _stays_open(way: tuple[bytes, ...]) -> bool:
    behind = (b"".join(way[: size + 1]) for size in range(len(way)))
    return all(re.fullmatch(rb"[a-d]*\xf0(\x9f\x9f?)?", data) for data in behind)


@pytest.mark.parametrize(("is_shown", "length"), [(True, 2), (False, 2), (False, None)])
def test_a_cut_inside_a_character_leaves_every_token_possible_that_begins_with_what_is_shown(
    target: TargetModel, is_shown: bool, length: int | None
) -> None:
    weights: dict[tuple[int, ...], float] = defaultdict(float)
    for seen, hidden, weight in _cut_inside(b"abc", is_shown=is_shown):
        billed = 0.0 if length in (None, len(seen) + len(hidden)) else BILL_ERRS
        weights[seen] += exp(_score(target, (*seen, *hidden)) + weight + billed)
    given = min(_cuts(b"abc"), key=len)
    question = Question(PROMPT, given, Sampling(), length, cut=True, tail_shown=is_shown)
    opinion = Arbiter(target, TAILED).ask(question)
    assert opinion.ids == max(weights, key=lambda seen: weights[seen])
    assert opinion.posterior == pytest.approx(weights[opinion.ids] / sum(weights.values()), abs=0.05)
    assert opinion.behind == 3 - len(VOCABULARY.decode(opinion.ids))


def test_what_the_model_sampled_is_found_again_from_another_cut(target: TargetModel) -> None:
    arbiter = Arbiter(target, VOCABULARY)
    found = 0
    for seed in range(8):
        truth = (*_sampled(target, 12, 0.4, seed), END)
        given = (*_longest_first(VOCABULARY.decode(truth[:-1])), END)
        opinion = arbiter.ask(Question(PROMPT, given, Sampling(temperature=0.4), len(truth)))
        assert VOCABULARY.decode(opinion.ids) == VOCABULARY.decode(truth)
        found += opinion.ids == truth
        assert (opinion.posterior > SURE) == (opinion.ids == truth)
    # Nearly every token of these differs from what was sampled, far more than in any real answer.
    assert found >= 6


def _longest_first(text: bytes) -> tuple[int, ...]:
    if not text:
        return ()
    token_id = next(found for end in (4, 3, 2, 1) if (found := VOCABULARY.id_of(text[:end])) is not None)
    return (token_id, *_longest_first(text[len(VOCABULARY.bytes_of(token_id)) :]))
