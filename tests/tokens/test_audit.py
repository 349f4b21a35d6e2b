"""Auditing tokenizer folders and formats, and what the command prints."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui.tokens.audit import audit, passed
from eagletui.tokens.fit import Check, fit_checks
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from tests.commands import command

FORMATS = Path(__file__).parents[2] / "eagletui" / "formats"


def by_name(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def kimi_folder(tmp_path: Path, kimi: Tokenizer) -> Path:
    """A copy that can be changed."""
    return Path(shutil.copytree(kimi.folder, tmp_path / "kimi"))


def test_the_kimi_audit_holds_names_the_end_token_and_warns_of_eos(kimi: Tokenizer) -> None:
    checks = audit(kimi, load_format("kimi-k2.5"))
    assert passed(checks)
    end = by_name(checks, "end stop")
    assert end.ids == (163586,)
    assert "<|im_end|>" in end.detail
    eos = by_name(checks, "eos_token")
    assert (eos.ok, eos.level, eos.ids) == (False, "warn", (163585,))


def test_a_generation_config_that_claims_an_ordinary_id_fails_by_name(tmp_path: Path, kimi: Tokenizer) -> None:
    folder = kimi_folder(tmp_path, kimi)
    for declared in (163533, [163586, 163533]):
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
        for fmt in (load_format("kimi-k2.5"), None):
            checks = audit(load_tokenizer(folder), fmt)
            assert not passed(checks)
            failed = next(check for check in checks if check.failed)
            assert "163533" in failed.detail
            assert "arbete" in failed.detail


def test_a_format_that_claims_an_ordinary_id_fails_by_name(tmp_path: Path, kimi: Tokenizer) -> None:
    shipped = (FORMATS / "kimi-k2.5.toml").read_text()
    claims = tmp_path / "claims.toml"
    claims.write_text(shipped.replace("[end]\n", '[claimed_ids]\n"<|im_end|>" = 163533\n[end]\n'))
    piece = tmp_path / "piece.toml"
    piece.write_text(shipped.replace('"<|im_end|>"', '" arbete"'))
    for path in (claims, piece):
        checks = audit(kimi, load_format(str(path)))
        assert not passed(checks)
        told = " ".join(check.detail for check in checks if check.failed)
        assert "163533" in told
        assert "arbete" in told


def test_an_end_token_that_the_template_does_not_write_fails(tmp_path: Path, kimi: Tokenizer) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text((FORMATS / "kimi-k2.5.toml").read_text().replace('"<|im_end|>"', '"[EOS]"'))
    failed = [check.name for check in fit_checks(kimi, load_format(str(changed))) if check.failed]
    assert failed == ["generation config", "template end"]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('close = "</think>"', 'close = "\\n"', "reasoning close"),
        ('opened_by = "prompt"', 'opened_by = "model"', "template opener"),
        ('close = "</think>"', 'close = "</think>"\nafter_close = "\\n"', "template glue after"),
    ],
)
def test_glue_and_tags_that_the_template_does_not_write_fail(
    old: str, new: str, name: str, tmp_path: Path, kimi: Tokenizer
) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text((FORMATS / "kimi-k2.5.toml").read_text().replace(old, new))
    assert name in [check.name for check in fit_checks(kimi, load_format(str(changed))) if check.failed]


def test_a_format_of_another_family_fails_on_its_structural_strings(smollm2: Tokenizer) -> None:
    checks = audit(smollm2, load_format("llama-3.1"))
    assert by_name(checks, "special <|eot_id|>").failed
    assert by_name(checks, "end stop").failed
    assert passed(audit(smollm2, load_format("smollm2")))


def test_merges_across_a_boundary_are_reported(tmp_path: Path, smollm2: Tokenizer) -> None:
    changed = tmp_path / "glue.toml"
    text = (FORMATS / "smollm2.toml").read_text()
    changed.write_text(text + '\n[reasoning]\nopened_by = "prompt"\nopen = "<t>"\nclose = ".\\n"\n')
    merges = by_name(audit(smollm2, load_format(str(changed))), "merges reasoning close")
    assert "merges with the text beside it" in merges.detail


def audited(*args: object) -> tuple[int, dict[str, Any]]:
    ended = command("audit", *args, "--json")
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_the_command_ends_with_one_when_a_check_fails(tmp_path: Path, kimi: Tokenizer) -> None:
    code, told = audited("--tokenizer", kimi.folder, "--format", "kimi-k2.5")
    assert (code, told["ok"]) == (0, True)
    assert {"name", "ok", "level", "detail", "ids"} == set(told["checks"][0])
    folder = kimi_folder(tmp_path, kimi)
    (folder / "generation_config.json").write_text('{"eos_token_id": 163533}')
    code, told = audited("--tokenizer", folder, "--format", "kimi-k2.5")
    assert (code, told["ok"]) == (1, False)


def test_a_template_that_writes_calls_in_another_syntax_fails(kimi: Tokenizer) -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
        "{% for call in m.tool_calls %}OPENER{{ call.function.name }}(){% endfor %}<|im_end|>\n{% endfor %}"
    )
    for opener, ok in (
        ("<|tool_call_start|>", False),
        ("<|tool_calls_section_begin|><|tool_call_begin|><|tool_call_end|>", True),
    ):
        other = replace(kimi, chat_template=template.replace("OPENER", opener))
        check = by_name(fit_checks(other, load_format("kimi-k2")), "template call")
        assert check.ok is ok, check.detail
    silent = replace(kimi, chat_template=template.replace("{{ call.function.name }}", ""))
    assert not [c for c in fit_checks(silent, load_format("kimi-k2")) if c.name == "template call"]
