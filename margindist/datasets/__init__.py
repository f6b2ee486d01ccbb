"""Data: reading files, the papers' data sets and generators, encoding."""

from margindist.datasets.catalogue import Entry, Printed, Status, catalogue, find, load, status
from margindist.datasets.dataset import DataError, Dataset, content_checksum
from margindist.datasets.encoding import encoder, encoding_notes, tidy
from margindist.datasets.generators import make_ringnorm, make_threshold, make_twonorm, make_waveform
from margindist.datasets.partitions import Partitions
from margindist.datasets.readers import read_file

__all__ = [
    "DataError",
    "Dataset",
    "Entry",
    "Partitions",
    "Printed",
    "Status",
    "catalogue",
    "content_checksum",
    "encoder",
    "encoding_notes",
    "find",
    "load",
    "make_ringnorm",
    "make_threshold",
    "make_twonorm",
    "make_waveform",
    "read_file",
    "status",
    "tidy",
]
