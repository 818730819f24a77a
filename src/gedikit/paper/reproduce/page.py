"""A reproduction as a Markdown file, one HTML page that opens without a network, and its pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gedikit.report.style import data_uri
from gedikit.report.template import page_template
from gedikit.storage import write_bytes, write_text
from gedikit.version import __version__


@dataclass(frozen=True)
class ResultTable:
    """Cells as text."""

    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class Section:
    """A part of a page; a picture has a name for its file."""

    title: str
    text: str
    table: ResultTable | None = None
    picture: bytes | None = None
    name: str = ""

    @property
    def uri(self) -> str:
        return "" if self.picture is None else data_uri(self.picture)


def write_page(out: Path, name: str, title: str, sections: Sequence[Section]) -> Path:
    """Writes NAME.md with pictures beside it and NAME.html with them inside; returns the HTML page."""
    markdown = [f"# {title}", f"gedikit {__version__}"]
    for section in sections:
        markdown += [f"## {section.title}", section.text] if section.text else [f"## {section.title}"]
        if section.table is not None:
            markdown.append(section.table.markdown())
        if section.picture is not None:
            write_bytes(out / f"{section.name}.png", section.picture)
            markdown.append(f"![{section.title}]({section.name}.png)")
    write_text(out / f"{name}.md", "\n\n".join(markdown) + "\n")
    html = page_template("gedikit.paper.reproduce").render(title=title, version=__version__, sections=sections)
    write_text(out / f"{name}.html", html)
    return out / f"{name}.html"
