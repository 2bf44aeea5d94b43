"""Tables → LaTeX: one tabular per file to \\input in a paper, and a document with all of them. Needs no packages."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from lossbench.core import plain
from lossbench.report.blocks import Section, Table

# Characters that LaTeX reads as commands, and those of our tables that its fonts lack.
SPECIAL = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "–": "--",
    "—": "---",
    "−": r"$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "°": r"$^{\circ}$",
    "²": r"$^{2}$",
    "½": r"$\frac{1}{2}$",
    "…": r"\dots{}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "χ": r"$\chi$",
    "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$",
}


def documents(sections: Sequence[Section]) -> dict[str, str]:
    """The tables by file name, and `all.tex`, a document that includes them."""
    files: dict[str, str] = {}
    shown = []
    for section in sections:
        met: Counter[str] = Counter()
        for table in (block for block in section.blocks if isinstance(block, Table)):
            name = "-".join(filter(None, (section.slug, table.experiment)))
            met[name] += 1
            name += f"-{met[name]}" if met[name] > 1 else ""
            files[f"{name}.tex"] = tabular(table)
            title, caption = escaped(section.title), escaped(table.caption)
            shown.append(f"\\section*{{{title}}}\n{{\\tiny\\input{{{name}}}}}\n\n{caption}\n")
    if not files:
        return {}
    body = "\n\\clearpage\n".join(shown)
    return files | {"all.tex": f"\\documentclass{{article}}\n\\begin{{document}}\n{body}\\end{{document}}\n"}


def tabular(table: Table) -> str:
    """One table as a tabular environment; its caption is a comment."""
    align = "".join("l" if column in table.left else "r" for column in table.columns)
    lines = [" & ".join(_braced(cell) for cell in row) + r" \\" for row in (table.columns, *table.rows)]
    note = f"% {plain.line(table.caption)}\n" if table.caption else ""
    body = "\n".join(lines[1:])
    return f"{note}\\begin{{tabular}}{{{align}}}\n\\hline\n{lines[0]}\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n"


def _braced(cell: str) -> str:
    """A cell; a leading bracket or star would be read as an argument of the line break before it."""
    text = escaped(cell)
    return f"{{}}{text}" if text.startswith(("[", "*")) else text


@functools.lru_cache(maxsize=1 << 14)  # tables repeat their cells: most are labels and short numbers
def escaped(text: str) -> str:
    """Text that LaTeX shows unchanged; characters that its standard fonts lack are shown as their code point."""
    text = re.sub("(.)\u0304", "\ue000\\1", plain.line(text))  # a bar over the letter
    shown = "".join(SPECIAL.get(letter, letter if _plain(letter) else f"[U+{ord(letter):04X}]") for letter in text)
    return re.sub("\ue000\\$(.*?)\\$", r"$\\bar{\1}$", shown).replace("\ue000", "")


def _plain(letter: str) -> bool:
    """ASCII, or an accented letter that LaTeX composes."""
    return letter.isascii() or letter == "\ue000" or (ord(letter) < 0x180 and unicodedata.category(letter)[0] == "L")
