"""Endpoints, prices, findings and verdicts."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from eagletui.core.drift import Verdict
from eagletui.core.findings import Finding
from eagletui.ledger.relabelling import relabel_answers
from eagletui.ledger.writer_base import Writer


class WatchWriter(Writer):
    """Writes of the checks that run beside generation."""

    def upsert_endpoint(
        self, tag: str, provider_name: str, quantization: str | None = None, profile: str | None = None
    ) -> None:
        """Record an endpoint or refresh its description; its state and offset stay."""
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT INTO endpoints (tag, provider_name, quantization, profile) VALUES (?, ?, ?, ?)
                ON CONFLICT (tag) DO UPDATE SET provider_name = excluded.provider_name,
                    quantization = coalesce(excluded.quantization, quantization),
                    profile = coalesce(excluded.profile, profile)""",
                (tag, provider_name, quantization, profile),
            )

    def add_price(
        self,
        endpoint: str,
        *,
        prompt_usd: str,
        completion_usd: str,
        request_usd: str = "0",
        source: Literal["endpoints", "config", "local"] = "endpoints",
        max_completion_tokens: int | None = None,
        raw_json: str = "{}",
    ) -> bool:
        """Record a price if it differs from the endpoint's last one, and say whether it does.

        Args:
            endpoint: its tag.
            prompt_usd: decimal string, USD per token, as stated; so are the next two.
            completion_usd: per completion token.
            request_usd: per request.
            source: where the price comes from.
            max_completion_tokens: the endpoint's own limit.
            raw_json: what the provider said, for the record.
        """
        price = (source, prompt_usd, completion_usd, request_usd, max_completion_tokens)
        with self._transactions.begin() as connection:
            last = connection.execute(
                "SELECT source, prompt_usd, completion_usd, request_usd, max_completion_tokens FROM prices"
                " WHERE endpoint = ? ORDER BY id DESC LIMIT 1",
                (endpoint,),
            ).fetchone()
            if last == price:
                return False
            connection.execute(
                "INSERT INTO prices (endpoint, fetched_at, source, prompt_usd, completion_usd, request_usd,"
                " max_completion_tokens, raw_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (endpoint, self._clock(), *price, raw_json),
            )
        return True

    def finding(
        self,
        kind: str,
        sentence: str,
        *,
        affected: int,
        examined: int,
        action: str,
        endpoint: str = "",
        example_key: str | None = None,
    ) -> bool:
        """Open a finding or refresh it, and say whether it is new or was closed.

        Args:
            kind: a short stable name; one finding per kind and endpoint.
            sentence: what is wrong.
            affected: samples that show it.
            examined: samples looked at.
            action: what to do, one sentence.
            endpoint: '' when it is not an endpoint's.
            example_key: a sample that shows it.
        """
        now = self._clock()
        with self._transactions.begin() as connection:
            was_open = connection.execute(
                "SELECT 1 FROM findings WHERE kind = ? AND endpoint = ? AND closed_at IS NULL", (kind, endpoint)
            ).fetchone()
            connection.execute(
                """INSERT INTO findings (kind, endpoint, sentence, affected, examined, example_key, action,
                    first_at, last_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (kind, endpoint) DO UPDATE SET sentence = excluded.sentence, affected = excluded.affected,
                    examined = excluded.examined, example_key = coalesce(excluded.example_key, example_key),
                    action = excluded.action, last_at = excluded.last_at, closed_at = NULL""",
                (kind, endpoint, sentence, affected, examined, example_key, action, now, now),
            )
        return was_open is None

    def put_finding(self, finding: Finding) -> bool:
        """Open or refresh a finding, and tell whether it is new or was closed."""
        return self.finding(
            finding.kind,
            finding.sentence,
            affected=finding.affected,
            examined=finding.examined,
            action=finding.action,
            endpoint=finding.endpoint,
            example_key=finding.example,
        )

    def replace_findings(
        self, findings: Sequence[Finding], *, keep: Collection[str] = (), kinds: Collection[str] | None = None
    ) -> None:
        """Let these be the open findings: open or refresh each, and close every other one.

        Args:
            findings: several of one kind and endpoint become one, their sentences joined.
            keep: kinds that are not among them and stay as they are.
            kinds: close none of other kinds than these; None for all kinds.
        """
        joined: dict[tuple[str, str], Finding] = {}
        for finding in findings:
            key = finding.kind, finding.endpoint
            known = joined.get(key)
            if known is not None:
                words = f"{known.sentence}; {finding.sentence}"
                finding = replace(known, sentence=words, affected=max(known.affected, finding.affected))
            joined[key] = finding
        with self._transactions.begin() as connection:
            for finding in joined.values():
                self.put_finding(finding)
            for kind, endpoint in connection.execute(
                "SELECT kind, endpoint FROM findings WHERE closed_at IS NULL"
            ).fetchall():
                if kind not in keep and (kinds is None or kind in kinds) and (kind, endpoint) not in joined:
                    self.close_finding(kind, endpoint)

    def close_finding(self, kind: str, endpoint: str = "") -> bool:
        """Close a finding that holds no longer, and say whether it was open."""
        with self._transactions.begin() as connection:
            return (
                connection.execute(
                    "UPDATE findings SET closed_at = ? WHERE kind = ? AND endpoint = ? AND closed_at IS NULL",
                    (self._clock(), kind, endpoint),
                ).rowcount
                == 1
            )

    def choose_profile(self, tag: str, profile: str) -> None:
        """Record the loss profile that an endpoint's answers chose; it is added if it has not been listed."""
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT INTO endpoints (tag, provider_name, profile) VALUES (?, ?, ?)
                ON CONFLICT (tag) DO UPDATE SET profile = excluded.profile""",
                (tag, tag, profile),
            )

    def set_endpoint_rules(self, tag: str, *, profile: str | None, offset: int | None, cause: str | None) -> None:
        """Record how an endpoint's answers are rebuilt and counted.

        Args:
            tag: the endpoint; added if it has answered without having been listed.
            profile: its loss profile.
            offset: its named constant between counted and billed tokens; None where it has none.
            cause: the constant's name.
        """
        with self._transactions.begin() as connection:
            connection.execute(
                """INSERT INTO endpoints (tag, provider_name, profile, offset_tokens, offset_cause)
                VALUES (:tag, :tag, :profile, :offset, :cause)
                ON CONFLICT (tag) DO UPDATE SET profile = :profile, offset_tokens = :offset, offset_cause = :cause""",
                {"tag": tag, "profile": profile, "offset": offset, "cause": cause},
            )

    def relabel_endpoint(self, endpoint: str, verdict: Verdict) -> int:
        """Accept or withdraw an endpoint's offset, relabel its answers by `core.drift`, and return how many changed.

        Args:
            endpoint: the one that answered.
            verdict: of its counts; its cause is the offset, and where it is not trusted no count proves anything.
        """
        cause = verdict.cause
        with self._transactions.begin() as connection:
            connection.execute(
                "UPDATE endpoints SET offset_tokens = ?, offset_cause = ? WHERE tag = ?",
                (cause and cause.offset, cause and cause.name, endpoint),
            )
            return relabel_answers(connection, endpoint, verdict)

    def knows_endpoint(self, tag: str) -> bool:
        """Tell whether an endpoint was ever on offer or asked."""
        with self._transactions.reading() as connection:
            return connection.execute("SELECT 1 FROM endpoints WHERE tag = ?", (tag,)).fetchone() is not None

    def accept(
        self, dataset: str, rule: str, accepted_by: str, *, mismatched: int, samples: int, detail_json: str = "{}"
    ) -> int:
        """Store a person's signature under a data set and return its id. May be done beside a working engine.

        Args:
            dataset: its name.
            rule: what is accepted, in the person's words.
            accepted_by: who signs.
            mismatched: samples that differ.
            samples: samples looked at.
            detail_json: by kind, and what accepting them costs.
        """
        with self._transactions.begin() as connection:
            cursor = connection.execute(
                "INSERT INTO verdicts (at, dataset, rule, accepted_by, mismatched, samples, detail_json)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self._clock(), dataset, rule, accepted_by, mismatched, samples, detail_json),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid
