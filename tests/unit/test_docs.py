"""The pages of the documentation lead to each other: no dead link, every page reached, every named file there."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import swell

ROOT = Path(swell.__file__).parents[2]
SOURCES = ("", "src/", "src/swell/", "tests/", "docs/")
"""Where a path in a page begins: pages name files of the package and of the tests without the folders above."""


@cache
def pages() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listed.splitlines() if (path := ROOT / name).is_file())


def _links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)|<(?:img|a)\b[^>]*?(?:src|href)=\"([^\"]+)\"", text)
    return [link for pair in found for link in pair if link and not re.match(r"[a-z]+:", link)]


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "]", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


def _is_dead(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in _anchors(target))


def test_no_link_is_dead() -> None:
    links = [(page, link) for page in pages() for link in _links(page)]
    assert len(links) > 100
    dead = [f"{page.relative_to(ROOT)}: {link}" for page, link in links if _is_dead(page, link)]
    assert dead == []


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "docs/index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in _links(page)]
        ahead += [target for target in targets if target.suffix == ".md" and target.is_file()]
        ahead += [inner for target in targets if target.is_dir() for inner in target.glob("*.md")]
    docs = [page for page in pages() if page.is_relative_to(ROOT / "docs")]
    assert len(docs) > 50
    assert [str(page.relative_to(ROOT)) for page in docs if page not in reached] == []


def test_every_file_that_a_page_names_is_there() -> None:
    named = [
        (page, name)
        for page in pages()
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|json|yaml|toml))`", page.read_text(encoding="utf-8"))
    ]
    assert len(named) > 200
    missing = [f"{page.relative_to(ROOT)}: {name}" for page, name in named if not _is_there(page, name)]
    assert missing == []


def _is_there(page: Path, name: str) -> bool:
    return any((base / name).exists() for base in (page.parent, *(ROOT / source for source in SOURCES)))
