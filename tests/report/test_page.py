"""The report of a run: right figures, nothing foreign that acts, nothing secret, whole or not at all."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import sqlite3
import stat
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest

from eagletui.cli.app import main
from eagletui.ledger.locks import RoleLock
from eagletui.report.page import page
from eagletui.report.story import read_story
from tests.tui.factory import HOSTILE, Built, busy_run, empty_run, stored

OURS = {
    *("html head meta title style body header main footer section div p h1 h2 h3 strong code span".split()),
    *("table thead tbody tr th td dl dt dd ul li figure figcaption details summary".split()),
    *("svg path line rect text".split()),
}
ATTACKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style></title><svg onload=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "<!-- --!><iframe src=//evil.example></iframe>",
    "&lt;b&gt; &amp; &#60;i&#62;",
    "javascript:alert(1)",
    "]]><?xml version='1.0'?>",
)
SECRETS = ("https://hooks.example/T0/B0/abcdef", "user:pass-word@proxy.example", "SOME_KEY_VARIABLE", "/home/someone")


class _Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.other: list[str] = []
        self._open: list[str] = []
        self.feed(data.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open.append("")

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A run whose every foreign field holds hostile text, and whose config holds secrets."""
    built = busy_run(tmp_path_factory.mktemp("report") / "b3-magicoder", hostile=True)
    with sqlite3.connect(built.ledger) as connection:
        attacks = [stored(text) for text in (*HOSTILE, *ATTACKS)]
        for number, text in enumerate(attacks):
            connection.execute(
                "INSERT INTO findings (kind, endpoint, sentence, affected, examined, example_key, action, first_at,"
                " last_at) VALUES (?, ?, ?, 1, 2, ?, ?, 0, 0)",
                (f"kind{number}", text, text, text, text),
            )
            connection.execute(
                "INSERT INTO verdicts (at, dataset, rule, accepted_by, mismatched, samples) VALUES (0, ?, ?, ?, 1, 2)",
                ("b1_glaive", text, text),
            )
            connection.execute(
                "INSERT INTO sources (path, sha256, samples, added_at) VALUES (?, ?, 1, 0)",
                (f"/home/someone/{text}", f"{number + 1:064}"),
            )
        connection.execute("UPDATE endpoints SET offset_tokens = 1, offset_cause = ?", (ATTACKS[0],))
        config = {
            "provider": {"kind": ATTACKS[1], "base_url": SECRETS[1], "api_key_env": SECRETS[2], "only": list(attacks)},
            "notify": {"webhook": SECRETS[0]},
            "sampling": {"temperature": 0.7},
            "model": "no table",
        }
        connection.execute("UPDATE run SET name = ?, config_json = ?", (ATTACKS[0], json.dumps(config)))
    connection.close()
    return built


@pytest.fixture(scope="module")
def written(hostile_run: Built) -> bytes:
    return page(read_story(hostile_run.ledger, hostile_run.clock), ATTACKS[1])


def test_foreign_text_becomes_no_element_no_attribute_and_no_control_character(written: bytes) -> None:
    found = _Page(written)
    assert {tag for tag, _ in found.tags} <= OURS
    assert found.other == []
    for _, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("href", "src", "style", "srcdoc")]
    harmful = [char for char in "".join(found.texts) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert set(harmful) <= {"\n"}
    for attack in ATTACKS[:3]:
        assert attack in found.text, "foreign text is shown as what it is"
    assert len(written) < 400_000, "a long text is cut"


def test_the_policy_allows_our_style_sheet_and_nothing_else(written: bytes) -> None:
    text = written.decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy
    wanted = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert wanted in html.unescape(text)
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert "url(" not in style
    assert "@import" not in style


def test_secrets_addresses_and_paths_of_the_config_stay_out(written: bytes) -> None:
    text = html.unescape(written.decode())
    for secret in SECRETS:
        assert secret not in text
    assert "0.7" in text, "the settings that figures depend on are shown"


def test_figures_are_those_of_the_run(tmp_path: Path) -> None:
    built = busy_run(tmp_path / "b3-magicoder")
    with RoleLock(built.path, "engine"):
        text = _Page(page(read_story(built.ledger, built.clock), "running")).text
    # 37 answers at 112,345,678 picodollars and one refusal that was billed all the same.
    assert "samples answered 37 of 60" in text
    assert "$0.004269" in text
    assert "$0.000112" in text, "the wasted one"
    assert "$0.2000" in text, "0.0000002 USD a prompt token, by the million"
    assert "bills 3 tokens more than counted" in text
    assert "the run goes on" in text
    assert "2025-10-09 09:" in text, "moments are told in UTC"


def test_a_run_that_was_left_alone_for_long_keeps_its_plots_and_says_that_nobody_works(tmp_path: Path) -> None:
    built = busy_run(tmp_path / "b3-magicoder")
    with built.writer() as writer:
        writer.quarantine("embedded/text", built.clock.now - 300)
    soon = read_story(built.ledger, built.clock)
    built.clock.now += 400 * 86_400
    late = read_story(built.ledger, built.clock)
    assert late.ticks == soon.ticks
    assert len(late.ticks) > 30
    text = _Page(page(late, "interrupted")).text
    assert "nobody worked on the run; last sign of a worker 400 d before" in text
    assert "the run goes on" not in text
    assert "quarantined since 2025-10-09 09:03 UTC" in text


def test_a_run_without_prompts_has_a_report_too(tmp_path: Path) -> None:
    built = empty_run(tmp_path / "new")
    text = _Page(page(read_story(built.ledger, built.clock), "not started")).text
    assert "No prompt was added yet." in text
    assert "ids proved unknown 0 of 0 answers" in text, "what is not known is not 0"
    assert "nobody worked on the run" in text


def test_a_data_set_with_too_many_doubtful_samples_says_so(hostile_run: Built) -> None:
    story = read_story(hostile_run.ledger, hostile_run.clock)
    unread = dataclasses.replace(story, bases=dict.fromkeys(story.bases))
    assert "not read" in _Page(page(unread, "running")).text


@pytest.fixture
def chdir_runs(hostile_run: Built, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EAGLETUI_RUNS", str(hostile_run.path.parent))
    return hostile_run.path.name


def _report(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["report", *arguments])
    return int(end.value.code or 0)


def test_the_page_is_private_replaces_a_report_and_leaves_the_ledger_alone(
    chdir_runs: str, hostile_run: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    before = hashlib.sha256(hostile_run.ledger.read_bytes()).digest()
    assert _report(chdir_runs, "--html", str(target), "--json") == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert _report(chdir_runs, "--html", str(target)) == 0
    assert hashlib.sha256(hostile_run.ledger.read_bytes()).digest() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_hold_the_page_is_refused_and_left_as_it_is(
    chdir_runs: str, hostile_run: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "notes.html"
    other.write_text("<p>my notes</p>")
    for target, complaint in (
        (tmp_path, "is a folder"),
        (tmp_path / "absent" / "report.html", "does not exist"),
        (other, "is not a report"),
        (hostile_run.ledger, "is not a report"),
    ):
        assert _report(chdir_runs, "--html", str(target)) == 2
        assert complaint in capsys.readouterr().err
    assert other.read_text() == "<p>my notes</p>"
    assert _report("no-such-run", "--html", str(tmp_path / "new.html")) == 2
    assert _report(chdir_runs) == 2
    assert not (tmp_path / "new.html").exists()
