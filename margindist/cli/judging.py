"""What ``margindist predict`` says about the rows it met: how right it was, and what the model had never seen."""

from collections import Counter

import numpy as np

from margindist.datasets.dataset import labels_of, same_spelling

_NAMED = 3  # examples in a sentence
_FLAGS = {"true": "1", "false": "0", "1": "true", "0": "false"}  # as some formats write them, and others


class Judge:
    """Counts, table after table, what predictions can be held against.

    Labels that differ from the model's only in their spelling (true for True, 1.0 for 1) are taken for them.

    Parameters
    ----------
    metadata : ModelMetadata
    categories : dict of str to iterable
        For the columns of categories, those that the model has seen.
    """

    def __init__(self, metadata, categories):
        self._target, self._classes = metadata.target_name, tuple(metadata.classes)
        self._meant = {same_spelling(label): label for label in metadata.classes}
        self._categories = {name: set(map(str, seen)) for name, seen in categories.items()}
        self._unseen = {name: Counter() for name in categories}
        self._respelled, self._unknown = Counter(), Counter()
        self._rows = self._right = self._given = 0

    def see_categories(self, X):
        """Count the values of a table that the model has not seen."""
        for name, known in self._categories.items():
            values = X[name].dropna().astype(str)
            self._unseen[name].update(values[~values.isin(known)].tolist())

    def see_labels(self, dataset, predicted):
        """Count what is right among the predictions of a table that has the target column."""
        if self._target not in dataset.feature_names:
            return
        truth, given = _labels(dataset, self._target)
        self._given += int(given.sum())
        for label, count in Counter(truth[given].tolist()).items():
            rows = given & (truth == label)
            meant = label if label in self._classes else self._other_spelling(label)
            if meant is None:
                self._unknown[label] += count
                continue
            if meant != label:
                self._respelled[label, meant] += count
            self._rows += count
            self._right += int(np.sum(predicted.astype(str)[rows] == meant))

    def _other_spelling(self, label):
        key = same_spelling(label)
        return self._meant.get(key) or self._meant.get(_FLAGS.get(key))

    def sentences(self):
        """Return what there is to say."""
        result = [self._unseen_sentence(name, counts) for name, counts in self._unseen.items() if counts]
        if self._respelled:
            pairs = ", ".join(f"{label!r} for {meant!r}" for label, meant in list(self._respelled)[:_NAMED])
            many = _rows(self._respelled.total(), "has a label that differs", "have labels that differ")
            result.append(f"{many} from the model's in spelling only and count as equal: {pairs}.")
        if self._unknown:
            listed = ", ".join(map(repr, list(self._unknown)[:_NAMED]))
            knows = ", ".join(map(repr, self._classes[:5]))
            many = _rows(self._unknown.total(), "has a label", "have labels")
            result.append(f"{many} that the model does not know, {listed}, which counts as wrong; it knows {knows}.")
        judged = self._rows + self._unknown.total()
        if judged:
            share = self._right / judged
            result.append(f"Accuracy on the {judged} rows that have a value in {self._target!r}: {share:.3f}")
        return result

    def _unseen_sentence(self, name, counts):
        values = list(counts)
        more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
        listed = ", ".join(map(repr, values[:_NAMED])) + more
        many = _rows(counts.total(), "has a value", "have values")
        text = f"{many} in {name!r} that the model has never seen and ignores: {listed}."
        spelled = {same_spelling(value): value for value in self._categories[name]}
        pairs = [f"{v!r} for {spelled[same_spelling(v)]!r}" for v in values if same_spelling(v) in spelled]
        return f"{text} Is it only spelled differently ({', '.join(pairs[:_NAMED])})?" if pairs else text


def _rows(count, one, many):
    return f"1 row {one}" if count == 1 else f"{count} rows {many}"


def _labels(dataset, name):
    """Return a column as labels in text, and where it has a value."""
    X = dataset.X
    column = X[name] if hasattr(X, "columns") else X[:, dataset.feature_names.index(name)]
    known = ~column.isna().to_numpy() if hasattr(column, "isna") else ~np.isnan(column)
    values = np.asarray(column)
    if values.dtype.kind != "f":
        return values.astype(str).astype(object), known
    result = np.full(len(values), "", dtype=object)
    result[known] = labels_of(values[known]).astype(str)
    return result, known


def texts_of(dataset, name):
    """Return a column as it was spelled, or its numbers in full; what is missing is empty."""
    X = dataset.X
    column = X[name] if hasattr(X, "columns") else X[:, dataset.feature_names.index(name)]
    if column.dtype.kind == "f":
        return np.array(["" if value != value else f"{value:.17g}" for value in np.asarray(column)], dtype=object)
    return column.astype(object).where(column.notna(), "").astype(str).to_numpy(dtype=object)
