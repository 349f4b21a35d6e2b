"""`profile = "auto"` while a run answers: each endpoint's first answers choose what its server is taken to strip."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eagletui.core.outputs import fitted
from eagletui.core.reply import Reply
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.orders import QueuedSample
from eagletui.ledger.reader import LedgerReader
from eagletui.run_ids import RunIds
from eagletui.tokens.formats import AUTO
from eagletui.tokens.parts import measure_with
from eagletui.tokens.profiles import ENOUGH, Observed, ProfileChoice, choose_profile

ANSWERED = SampleFilter(states=("answered", "tokenized", "quarantined"))


class LiveProfiles:
    """Keeps the first answers of every endpoint whose profile is not chosen yet."""

    def __init__(self, ids: RunIds) -> None:
        """Start with nothing seen; endpoints that `ids` has a profile for are settled."""
        self._fmt = fitted(ids.fmt, ids.tokenizer.vocabulary.specials)
        self._auto = ids.config.model.profile == AUTO
        self._seen: dict[str, list[Observed]] = {}

    @property
    def matters(self) -> bool:
        """Whether profiles are chosen, for a family that writes whitespace which a server may strip."""
        rule, tools = self._fmt.reasoning, self._fmt.tools
        glue = rule.after_open + rule.before_close + rule.after_close + tools.before_with_content
        return self._auto and any(character.isspace() for character in glue)

    def take(self, ids: RunIds, reply: Reply, sample: QueuedSample, endpoint: str) -> ProfileChoice | None:
        """Look at an answer of an endpoint.

        Args:
            ids: what the run's answers are rebuilt with now.
            reply: as parsed.
            sample: the one it answers.
            endpoint: the one that answered.

        Returns:
            What its answers choose, once, when enough of them are in.
        """
        if not self._auto or endpoint in ids.profiles:
            return None
        seen = self._seen.setdefault(endpoint, [])
        if self._fmt.end_token(reply.finish_reason) is not None:
            prompt, dataset = sample.prompt, sample.dataset
            max_tokens = ids.sampling(dataset, prompt).max_tokens
            seen.append(Observed(reply, prompt, max_tokens, ids.thinking(dataset, prompt)))
        return self._choose(ids, endpoint)

    def _choose(self, ids: RunIds, endpoint: str) -> ProfileChoice | None:
        if len(self._seen[endpoint]) < ENOUGH:
            return None
        return choose_profile(self._seen.pop(endpoint), self._fmt, measure_with(ids.tokenizer))

    def restore(self, ids: RunIds, reader: LedgerReader, kept: Mapping[str, Sequence[int]]) -> dict[str, ProfileChoice]:
        """Take the answers that an earlier engine left.

        Args:
            ids: as for `take`.
            reader: of the run's ledger.
            kept: answered samples of each endpoint without a profile, as `unprofiled` lists them.

        Returns:
            What is chosen already: that engine died before it had made its answers again.
        """
        chosen: dict[str, ProfileChoice] = {}
        for endpoint, samples in kept.items():
            seen = self._seen.setdefault(endpoint, [])
            for observed in ids.observed(reader, samples):
                if self._fmt.end_token(observed.reply.finish_reason) is not None:
                    seen.append(observed)
                if len(seen) >= ENOUGH:
                    break
            choice = self._choose(ids, endpoint)
            if choice is not None:
                chosen[endpoint] = choice
        return chosen


def unprofiled(ids: RunIds, reader: LedgerReader) -> dict[str, Sequence[int]]:
    """List the answered samples of every endpoint whose profile `auto` has not chosen yet."""
    if ids.config.model.profile != AUTO:
        return {}
    tags = [row.tag for row in reader.endpoints() if row.tag not in ids.profiles]
    return {tag: reader.sample_ids(replace(ANSWERED, endpoints=(tag,))) for tag in tags}
