"""Tables of any columns: what kind each column is, rows of numbers for the trainer, and tables again."""

from gedikit.tables.columns import KINDS, LABEL_COLUMNS, Column, ColumnOptions
from gedikit.tables.dialect import CsvDialect, dialect_of
from gedikit.tables.encoding import TableEncoding
from gedikit.tables.grid import grid_step

__all__ = [
    "KINDS",
    "LABEL_COLUMNS",
    "Column",
    "ColumnOptions",
    "CsvDialect",
    "TableEncoding",
    "dialect_of",
    "grid_step",
]
