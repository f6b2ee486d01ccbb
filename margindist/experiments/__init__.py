"""Comparisons and the papers' tables: cells, a store for their results, a runner, statistics, reports."""
