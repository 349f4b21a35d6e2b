"""The README keeps to what the program is: its commands exist, its labels are all there, and two commands set up."""

import re
from pathlib import Path

from eagletui.cli.app import COMMANDS
from eagletui.core.fidelity import EVIDENCE, USABILITY

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_every_command_that_the_readme_names_exists() -> None:
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    inline = re.findall(r"`(eagletui [^`]+)`", README)
    named = {found for text in (*blocks, *inline) for found in re.findall(r"\beagletui ([a-z]+)", text)}
    assert named
    assert named <= set(COMMANDS)


def test_exactly_two_commands_set_up() -> None:
    assert len([line for line in README.splitlines() if line.startswith("pip install")]) == 2


def test_every_label_is_explained() -> None:
    for label in (*EVIDENCE, *USABILITY):
        assert f"`{label}`" in README


def test_every_file_that_the_readme_links_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
