"""The generated pages of docs/ are what the code says now, and the hand-written ones name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import FOLDER, PAGES
from dvm_graph.cli import main


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/{name} is out of date: run `make docs`"


ALL_PAGES = [*FOLDER.rglob("*.md"), *FOLDER.parent.glob("*.md")]


@pytest.mark.parametrize("page", sorted(ALL_PAGES), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(
        r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text(encoding="utf-8")
    ):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Those that headings have, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_all_commands_and_options_are_documented() -> None:
    text = (FOLDER / "cli.md").read_text(encoding="utf-8")
    assert main.commands
    for name, command in main.commands.items():
        assert f"| `{name}` |" in text
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option in text, f"{name} {option}"
