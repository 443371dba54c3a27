"""The reference pages say what the code does."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections(text: str) -> list[str]:
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return [part.strip() for part in parts]


@pytest.mark.parametrize("page", ["cli.md", "rest.md", "job-file.md", "configuration.md"])
def test_the_page_is_what_the_code_says(page: str) -> None:
    module = script()
    written = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert sections(written) == sections(module.MADE + module.PAGES[page]()), "run python scripts/reference.py"
