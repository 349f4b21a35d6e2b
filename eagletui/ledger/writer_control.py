"""The run's state, its limits, and the orders people give."""

from eagletui.core.lifecycle import FINISHED_RUNS, PauseReason, RunState
from eagletui.ledger.rows import CommandRow, LimitedBy, RunRow, Verb, columns
from eagletui.ledger.writer_base import Writer


class ControlWriter(Writer):
    """Writes that steer the run. Verbs may be repeated and say whether they changed anything."""

    def run(self) -> RunRow:
        """Return the run's row."""
        with self._transactions.reading() as connection:
            return RunRow(*connection.execute(f"SELECT {columns(RunRow)} FROM run").fetchone())

    def set_run_state(self, state: RunState, reason: PauseReason | None = None, detail: str | None = None) -> bool:
        """Move the run, and say whether anything changed.

        Args:
            state: where to; a move that `core.lifecycle.RUN_MOVES` does not list raises LedgerError.
            reason: with `paused` only.
            detail: with `paused` only: what happened and what to do, one sentence.
        """
        now = self._clock()
        with self._transactions.begin(durable=True) as connection:
            cursor = connection.execute(
                """UPDATE run SET state = :state, pause_reason = :reason, pause_detail = :detail,
                    started_at = CASE WHEN :state = 'running' THEN coalesce(started_at, :now) ELSE started_at END,
                    finished_at = CASE WHEN :finished THEN coalesce(finished_at, :now) END,
                    limited_by = CASE WHEN :state = 'running' THEN limited_by END
                WHERE state <> :state OR pause_reason IS NOT :reason OR pause_detail IS NOT :detail""",
                {
                    "state": state,
                    "reason": reason,
                    "detail": detail,
                    "now": now,
                    "finished": state in FINISHED_RUNS,
                },
            )
            return cursor.rowcount == 1

    def set_limited_by(self, limited_by: LimitedBy | None) -> bool:
        """Record what holds the pace back, and say whether it changed."""
        return self._set("limited_by", limited_by)

    def set_cap(self, cap_pico: int) -> bool:
        """Change the cap; below what is committed already it only stops admission."""
        return self._set("cap_pico", cap_pico)

    def set_stop_at(self, stop_at_pico: int) -> bool:
        """Change the amount at which admission ends."""
        return self._set("stop_at_pico", stop_at_pico)

    def set_max_in_flight(self, max_in_flight: int) -> bool:
        """Change the limit of simultaneous requests."""
        return self._set("max_in_flight", max_in_flight)

    def set_hashes(self, tokenizer_hash: str, template_hash: str | None) -> bool:
        """Record what prompts and answers are tokenized with."""
        changed = self._set("tokenizer_hash", tokenizer_hash)
        return self._set("template_hash", template_hash) or changed

    def set_key_usage_at_start(self, usage_pico: int, *, anew: bool = False) -> None:
        """Record what the provider's key had spent before the first request; the first value stays.

        Args:
            usage_pico: of the key, less what the run has spent.
            anew: another key is used from here on.
        """
        with self._transactions.begin(durable=True) as connection:
            connection.execute(
                "UPDATE run SET key_usage_at_start_pico = ? WHERE key_usage_at_start_pico IS NULL OR ?",
                (usage_pico, anew),
            )

    def set_config(self, config_json: str) -> bool:
        """Replace the frozen config after an allowed change."""
        return self._set("config_json", config_json)

    def set_format(self, output_format: str, config_json: str) -> bool:
        """Record with which output format the ids are rebuilt from now on, and say whether it changed."""
        with self._transactions.begin(durable=True):
            changed = self._set("format", output_format)
            return self._set("config_json", config_json) or changed

    def next_commands(self) -> list[CommandRow]:
        """List orders not yet applied, oldest first."""
        with self._transactions.reading() as connection:
            rows = connection.execute(
                f"SELECT {columns(CommandRow)} FROM commands WHERE applied_at IS NULL ORDER BY id"
            )
            return [CommandRow(*row) for row in rows]

    def has_later_applied(self, verb: Verb, command_id: int) -> bool:
        """Tell whether an order of the same verb that was given later is applied already."""
        with self._transactions.reading() as connection:
            query = "SELECT 1 FROM commands WHERE verb = ? AND id > ? AND applied_at IS NOT NULL LIMIT 1"
            return connection.execute(query, (verb, command_id)).fetchone() is not None

    def is_about_later(self, endpoint: str, command_id: int) -> bool:
        """Tell whether a later quarantine or release of an endpoint is applied already."""
        with self._transactions.reading() as connection:
            query = (
                "SELECT 1 FROM commands WHERE verb IN ('quarantine', 'release') AND id > ? AND applied_at IS NOT NULL"
                " AND json_valid(args_json) AND json_extract(args_json, '$.endpoint') = ? LIMIT 1"
            )
            return connection.execute(query, (command_id, endpoint)).fetchone() is not None

    def apply_command(self, command_id: int, changed: bool, result: str) -> None:
        """Record that an order was carried out; the first result stays.

        Args:
            command_id: from `next_commands`.
            changed: whether it changed anything.
            result: one sentence for the person.
        """
        with self._transactions.begin() as connection:
            connection.execute(
                "UPDATE commands SET applied_at = ?, changed = ?, result = ? WHERE id = ? AND applied_at IS NULL",
                (self._clock(), changed, result, command_id),
            )

    def _set(self, column: str, value: str | int | None) -> bool:
        with self._transactions.begin(durable=True) as connection:
            cursor = connection.execute(f"UPDATE run SET {column} = ? WHERE {column} IS NOT ?", (value, value))
            return cursor.rowcount == 1
