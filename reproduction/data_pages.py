"""Pages of the papers' own tables of data sets: what is printed of each, and what the set at hand is."""

from margindist.datasets.catalogue import Entry, Printed, catalogue
from reproduction.blocks import Block, section

TABLES = {  # the page, the paper's name in the catalogue, the table
    "ldm-table-1": ("LDM", "LDM Table 1: the data sets"),
    "mamc-table-1": ("MAMC", "MAMC Table 1: the data sets"),
    "mcodm-table-1": ("mcODM", "mcODM Table 1: the data sets"),
    "msvmav-table-3": ("MSVMAv", "MSVMAv Table 3: the data sets"),
}


def data_page(name: str) -> list[Block]:
    """Return the page of one of the tables."""
    paper, title = TABLES[name]
    lines = [(entry, printed) for entry in catalogue() for printed in entry.printed if printed.paper == paper]
    known = [(entry, printed) for entry, printed in lines if entry.rows is not None]
    alike = sum(_shape(entry) == _shape(printed) for entry, printed in known)
    header = ["data set", "printed", "ours", "what differs, or is not known"]
    rows = [[printed.name, _shape(printed), _shape(entry), _remark(entry)] for entry, printed in lines]
    return [
        Block("heading", (1, title)),
        Block("text", (
            f"{len(lines)} data sets, {len(known)} of which have been found; the shape is the printed one for {alike} "
            "of those. `margindist datasets` says which are on your machine."
        )),
        *section("Printed and ours", Block("table", (header, rows), "Rows x features, classes.")),
    ]  # fmt: skip


def _shape(described: Entry | Printed) -> str:
    if described.rows is None:
        return "–"
    return f"{described.rows:,} x {described.features:,}, {described.classes}"


def _remark(entry):
    elsewhere = "On OpenML; not read yet." if entry.rows is None and entry.openml else ""
    return " ".join(text for text in (entry.missing, elsewhere, entry.encoding, entry.note) if text)
