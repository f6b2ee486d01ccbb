"""Pages as lists of blocks, and how they become Markdown and HTML."""

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, NamedTuple

_MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\.md\)")


class Block(NamedTuple):
    """A piece of a page: kind "heading", "text", "list", "table", "figure" or "code", and what it holds."""

    kind: str
    content: Any
    caption: str = ""


def section(title: str, *blocks: Block) -> list[Block]:
    """Return blocks below a heading."""
    return [Block("heading", (2, title)), *blocks]


def listed(title: str, items: Sequence[str]) -> list[Block]:
    """Return a list below a heading; nothing if it is empty."""
    return section(title, Block("list", items)) if items else []


def markdown(blocks: Iterable[Block], toctree: Sequence[str] = ()) -> str:
    """Return a page as Markdown (MyST); `toctree` names the pages below it."""
    parts = []
    for kind, content, caption in blocks:
        if kind == "heading":
            parts.append(f"{'#' * content[0]} {content[1]}")
        elif kind == "text":
            parts.append(content)
        elif kind == "list":
            parts.append("\n".join(f"- {item}" for item in content))
        elif kind == "code":
            parts.append(f"```console\n$ {content}\n```")
        elif kind == "figure":
            parts.append(f"![{caption}](figures/{content.name})\n\n{caption}")
        else:
            header, rows = content
            lines = [header, ["---"] * len(header), *rows]
            cells = (" | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in line) for line in lines)
            parts.append("\n".join(f"| {line} |" for line in cells) + f"\n\n{caption}")
    if toctree:
        parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(toctree) + "\n```")
    return "\n\n".join(parts) + "\n"


def html(blocks: Sequence[Block]) -> str:
    """Return a page as HTML."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"link": _link, "linked": _linked}
    template = resources.files("reproduction") / "templates" / "reproduction.html.j2"
    title = next((content[1] for kind, content, _ in blocks if kind == "heading"), "margindist")
    return environment.from_string(template.read_text(encoding="utf-8")).render(title=title, blocks=blocks)


def _link(cell):
    """A cell's lines as HTML, and a Markdown link at its beginning as a link to the HTML page."""
    from markupsafe import Markup, escape

    if cell.startswith("[") and "](" in cell:
        text, _, target = cell[1:-1].partition("](")
        return Markup(f'<a href="{escape(target.removesuffix(".md"))}.html">{escape(text)}</a>')
    return Markup("<br>").join(escape(line) for line in cell.split("\n"))


def _linked(text):
    """A text as HTML, with its Markdown links as links to HTML pages."""
    from markupsafe import Markup, escape

    return Markup(_MARKDOWN_LINK.sub(r'<a href="\2.html">\1</a>', str(escape(text))))
