"""Scikit-learn classifiers, one file a family."""
