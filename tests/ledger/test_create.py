"""Making, opening and upgrading a ledger file."""

import sqlite3
import stat
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from eagletui.core.errors import LedgerError
from eagletui.ledger import migrate as migrate_module
from eagletui.ledger.connection import connect_reader
from eagletui.ledger.create import create_ledger
from eagletui.ledger.migrate import MIGRATIONS, VERSION, migrate
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger import build
from tests.ledger.build import Clock, prompt, queue, send, sql
from tests.ledger.fresh import fresh_ledger

make_ledger = partial(build.make_ledger, make=create_ledger)


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    (tmp_path / "test-run").mkdir()
    return make_ledger(tmp_path / "test-run" / "ledger.sqlite", clock=clock)


def test_a_new_ledger_is_private_and_knows_its_run(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with LedgerReader(path) as reader:
        run = reader.run()
    assert (run.name, run.state, run.format, run.tokenizer_hash) == ("test-run", "new", "smollm2", "ab12")


def test_nothing_but_the_ledger_is_left_beside_it(tmp_path: Path) -> None:
    make_ledger(tmp_path / "ledger.sqlite")
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_an_existing_ledger_is_never_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        make_ledger(path)
    assert path.read_bytes() == before


def test_an_absent_ledger_is_named(tmp_path: Path) -> None:
    for opener in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match=r"nowhere\.sqlite does not exist"):
            opener(tmp_path / "nowhere.sqlite")


def test_another_sqlite_file_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    sql(other, "CREATE TABLE run (id INTEGER)")
    for opener in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match="not a ledger"):
            opener(other)


def make_sixth_version(connection: sqlite3.Connection) -> None:
    """Take away what later versions added."""
    for index in ("samples_due", "samples_parked"):
        connection.execute(f"DROP INDEX {index}")
    for column in ("parked_for", "attempts_before"):
        connection.execute(f"ALTER TABLE samples DROP COLUMN {column}")
    connection.execute("CREATE INDEX samples_queue ON samples(not_before, id) WHERE state = 'queued'")
    connection.execute("PRAGMA user_version = 6")


def make_first_version(path: Path) -> None:
    """Take away what later versions added."""
    connection = sqlite3.connect(path, isolation_level=None)
    for table in ("opinions", "turns"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DELETE FROM moves WHERE old_state = 'quarantined' AND new_state = 'queued'")
    connection.execute("ALTER TABLE samples DROP COLUMN attempts_excused")
    connection.execute("ALTER TABLE commands DROP COLUMN progress_json")
    make_sixth_version(connection)
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def test_a_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("these are not the pages you are looking for" * 100)
    for opener in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match=r"notes\.txt is not a ledger or is damaged"):
            opener(other)


def test_a_newer_ledger_is_refused_and_left_alone(path: Path) -> None:
    sql(path, f"PRAGMA user_version = {VERSION + 6}")
    for opener in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match=rf"newer EagleTUI \(ledger version {VERSION + 6}.*Update EagleTUI"):
            opener(path)
    assert sql(path, "PRAGMA user_version") == [(VERSION + 6,)]


def test_an_older_ledger_is_upgraded_step_by_step_and_only_once(path: Path) -> None:
    scripts = [*MIGRATIONS, "CREATE TABLE first_step (id INTEGER)", "ALTER TABLE first_step ADD COLUMN name TEXT"]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        assert migrate(connection, path, scripts) == 2
        assert migrate(connection, path, scripts) == 0
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION + 2,)
        assert [row[1] for row in connection.execute("PRAGMA table_info(first_step)")] == ["id", "name"]
    finally:
        connection.close()


def test_an_upgrade_that_another_process_made_meanwhile_is_not_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [*MIGRATIONS, "CREATE TABLE first_step (id INTEGER)", "ALTER TABLE first_step ADD COLUMN name TEXT"]
    read, looks = migrate_module._version, 0

    def overtaken(connection: sqlite3.Connection, path: Path) -> int:
        nonlocal looks
        found, looks = read(connection, path), looks + 1
        if looks == 1:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                assert migrate(other, path, scripts[:-1]) == 1
        return found

    monkeypatch.setattr(migrate_module, "_version", overtaken)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert migrate(connection, path, scripts) == 1
        assert [row[1] for row in connection.execute("PRAGMA table_info(first_step)")] == ["id", "name"]


def test_an_upgrade_that_fails_leaves_the_version_it_had_reached(path: Path) -> None:
    failing = "CREATE TABLE half (id INTEGER); INSERT INTO nowhere VALUES (1)"
    scripts = [*MIGRATIONS, "CREATE TABLE first_step (id INTEGER)", failing]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        with pytest.raises(
            LedgerError, match=f"cannot be upgraded to ledger version {VERSION + 2}: no such table: nowhere"
        ):
            migrate(connection, path, scripts)
    finally:
        connection.close()
    assert sql(path, "PRAGMA user_version") == [(VERSION + 1,)]
    assert sql(path, "SELECT count(*) FROM sqlite_master WHERE name = 'half'") == [(0,)]


def test_a_viewer_does_not_upgrade_an_older_ledger_but_says_how(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagletui.ledger.migrate.OLDEST_READ", VERSION + 1)
    with pytest.raises(LedgerError, match="Resume the run once to upgrade it"):
        connect_reader(path)
    assert sql(path, "PRAGMA user_version") == [(VERSION,)]


def test_a_ledger_of_the_first_version_is_read_as_it_is_and_upgraded_by_the_first_writer(path: Path) -> None:
    described = "SELECT name, type, \"notnull\", pk FROM pragma_table_info('opinions')"
    current = sql(path, described)
    make_first_version(path)
    with LedgerReader(path) as reader:
        assert reader.run().name == "test-run"
        assert reader.opinions() == []
    LedgerWriter(path).close()
    assert sql(path, described) == current
    assert sql(path, "PRAGMA user_version") == [(VERSION,)]


def test_every_table_is_strict(path: Path) -> None:
    lax = sql(path, "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0")
    assert [name for (name,) in lax if not name.startswith("sqlite_")] == []


def test_a_reader_leaves_the_file_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    with LedgerReader(path) as reader:
        reader.snapshot()
        connection = reader._transactions.connection
        for statement in ("UPDATE run SET name = 'x'", "INSERT INTO counters VALUES ('a', 'b', '', 1)"):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute(statement)
    assert path.read_bytes() == before


def test_a_finished_ledger_in_a_folder_that_cannot_be_written_can_be_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test may run as root, to whom every folder is writable: ask the same question and answer no.
    monkeypatch.setattr("eagletui.ledger.connection.os.access", lambda *_: False)
    with LedgerReader(path) as reader:
        assert reader.run().name == "test-run"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_whose_tables_a_build_between_releases_made_is_refused_by_name(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE run DROP COLUMN template_hash")
    connection.close()
    for opening in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match=r"has no run\.template_hash, .* a build between releases made it"):
            opening(path)


def test_a_ledger_that_was_whole_at_the_last_look_is_refused_once_a_column_is_gone(path: Path) -> None:
    for _ in range(2):
        LedgerReader(path).close()
    sql(path, "ALTER TABLE run DROP COLUMN template_hash")
    for opener in (LedgerReader, LedgerWriter):
        with pytest.raises(LedgerError, match=r"has no run\.template_hash"):
            opener(path)


def test_an_older_ledger_is_upgraded_when_it_is_written_and_its_moves_are_those_of_today(path: Path) -> None:
    make_first_version(path)
    with LedgerReader(path) as reader:
        assert reader.run().state == "new", "a viewer reads it as it is"
    LedgerWriter(path).close()
    with sqlite3.connect(path) as upgraded:
        assert upgraded.execute("PRAGMA user_version").fetchone() == (VERSION,)
        moves = upgraded.execute("SELECT count(*) FROM moves WHERE old_state = 'quarantined'").fetchone()
    upgraded.close()
    assert moves == (3,)


def test_a_sample_that_waits_in_an_older_ledger_may_fail_as_often_as_a_new_one(path: Path) -> None:
    with LedgerWriter(path) as writer:
        queue(writer, "a", "b")
        failed = Failed("void", "server_error", "no", retry_at=1.0)
        writer.finish([Finished(send(writer, 1), failed)])
    make_first_version(path)
    with LedgerWriter(path) as writer:
        assert [(sample.key, sample.attempts, sample.excused) for sample in writer.claim(5)] == [
            ("a", 1, 1),
            ("b", 0, 0),
        ]


def test_samples_that_waited_for_an_endpoint_in_an_older_ledger_are_asked_and_turns_still_wait(path: Path) -> None:
    later = 1e12
    with LedgerWriter(path) as writer:
        queue(writer, "new", "tried", "retry")
        with writer.transaction():
            source = writer.add_source("turns.jsonl", "hash of turns", 1)
            writer.add_prompts([prompt("turns", turns=(0, 1))], source)
        for sample, retry_at in ((2, 1.0), (3, later)):
            failed = Failed("void", "server_error", "no", retry_at=retry_at)
            writer.finish([Finished(send(writer, sample), failed)])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        make_sixth_version(connection)
        connection.execute("UPDATE samples SET not_before = 8e15 WHERE sample_key IN ('new', 'tried')")
    with LedgerReader(path) as reader:
        assert reader.snapshot().states["queued"] == 5, "a viewer reads it as it is"
    with LedgerWriter(path) as writer:
        assert [sample.key for sample in writer.claim(9)] == ["tried", "new", "turns.t0"]
        assert not writer.parked()
        assert writer.park({("x",): [1]}) == {("x",): 1}
        assert [sample.key for sample in writer.claim(9)] == ["tried", "turns.t0"]
    assert sql(path, "SELECT not_before FROM samples WHERE id = 3") == [(later,)]


def test_an_engine_of_an_earlier_build_claims_on_after_the_upgrade_and_the_next_one_leaves_no_trace_of_it(
    path: Path,
) -> None:
    claim = """SELECT sample_key FROM samples INDEXED BY samples_queue
        WHERE samples.state = 'queued' AND not_before = 0 ORDER BY not_before, samples.id LIMIT ?"""
    with LedgerWriter(path) as writer:
        queue(writer, "a", "b")
    with closing(sqlite3.connect(path, isolation_level=None)) as engine:
        make_sixth_version(engine)
        assert engine.execute(claim, (5,)).fetchall() == [("a",), ("b",)]
        LedgerWriter(path).close()
        assert engine.execute(claim, (5,)).fetchall() == [("a",), ("b",)]
        engine.execute("UPDATE samples SET not_before = 8e15 WHERE sample_key = 'b'")
    with LedgerWriter(path) as writer:
        writer.recover()
        assert [sample.key for sample in writer.claim(5)] == ["a", "b"], "what the old one let wait is asked"
    made = make_ledger(path.with_name("new.sqlite"))
    described = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
    assert sql(path, described) == sql(made, described)


def test_a_fresh_ledger_of_other_tests_equals_one_that_was_made(tmp_path: Path) -> None:
    dumps = []
    for make in (create_ledger, fresh_ledger):
        made = build.make_ledger(tmp_path / f"{make.__name__}.sqlite", make=make)
        with closing(sqlite3.connect(made)) as connection:
            pragmas = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "journal_mode")]
            dumps.append((stat.S_IMODE(made.stat().st_mode), pragmas, list(connection.iterdump())))
    assert dumps[0] == dumps[1]
