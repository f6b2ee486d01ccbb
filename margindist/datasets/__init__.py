"""The papers' data sets and generators."""
