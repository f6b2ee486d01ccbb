"""The five papers' tables and figures: declared as data, run again, and set beside the printed numbers."""
