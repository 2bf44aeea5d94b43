"""The pages that people read, README.md and docs/*.md, as blocks, commands, headings and tables.

A fenced block means one of these, and nothing else is allowed:

    python, toml   a first line `# losses/my_loss.py` names a file: it is written, or, where a command has written it,
                   must contain what is shown; python without a name is run; toml without one is a piece of a suite
    diff           a first line `--- losses/my_loss.py` names a file: its − lines become the + lines
    (none), bash   commands, one per line, run in order in a folder that all pages share
    text           lines that the block before it must have printed, apart from decimals; `…` ends a shortened line
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the first line names."""
        marker = "---" if self.language == "diff" else "#"
        found = re.fullmatch(rf"{marker} ([\w/]+\.\w+)", self.text.split("\n", 1)[0])
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        if self.language not in ("", "bash"):
            return []
        lines = (re.sub(r"\s+#.*", "", line) for line in self.text.splitlines())
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def blocks(*pages: Path) -> list[Block]:
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2]))
    return found


def block_that_starts_with(start: str, *pages: Path) -> Block:
    return next(block for block in blocks(*pages) if block.text.startswith(start))


def named(file: str) -> str:
    """The content of a file that a page shows."""
    return next(block.text for block in blocks(*PAGES) if block.file == file)


def plain(line: str) -> str:
    """A line without what another machine may print differently: decimals (not options), and the width of columns."""
    return " ".join(re.sub(r"(?<![=\d])(< )?[-+]?\d+\.\d+", "0.0", line).split())


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", without_blocks(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def section(page: Path, heading: str) -> str:
    """The text under a heading of the second level, on one line."""
    text = page.read_text()
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    return " ".join(text[start : end if end > 0 else len(text)].split())


def rows(page: Path, head: str) -> list[list[str]]:
    """The rows of the Markdown table that begins with `head`, header and rule included."""
    text = page.read_text()
    table = text[text.index(head) :].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
