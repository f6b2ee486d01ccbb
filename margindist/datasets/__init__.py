"""Data: reading files, the papers' data sets and generators, encoding."""

from margindist.datasets.catalogue import Entry, Printed, Status, catalogue, find, load, status
from margindist.datasets.dataset import DataError, Dataset, content_checksum
from margindist.datasets.encoding import encoder, encoding_notes
from margindist.datasets.generators import make_threshold
from margindist.datasets.readers import read_file

__all__ = [
    "DataError",
    "Dataset",
    "Entry",
    "Printed",
    "Status",
    "catalogue",
    "content_checksum",
    "encoder",
    "encoding_notes",
    "find",
    "load",
    "make_threshold",
    "read_file",
    "status",
]
