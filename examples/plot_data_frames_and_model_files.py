"""
A table with text and gaps, a pipeline, a model file
====================================================

Real tables have categories, missing values, and columns that say nothing. :func:`~margindist.datasets.encoder` makes
a transformer from a data frame, and :func:`~margindist.save_model` keeps the whole pipeline in a file without pickle:
who opens it runs nobody's code.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from margindist import LDMClassifier, load_model, save_model
from margindist.datasets import encoder

rng = np.random.default_rng(0)
n = 600
table = pd.DataFrame(
    {
        "weight": rng.normal(150, 30, n).round(),
        "colour": rng.choice(["red", "green", "yellow"], n),
        "grown": rng.choice(["north", "south"], n),
    }
)
sour = (
    0.02 * (table.weight - 150) + table.colour.map({"red": -1.0, "green": 1.0, "yellow": 0.5}) + rng.normal(0, 0.7, n)
)
label = np.where(sour > 0, "sour", "sweet")
table.loc[rng.random(n) < 0.1, "weight"] = np.nan
print(table.head())

# %%
# The encoder looks at the kinds of columns only. In a pipeline it learns means and categories from the training rows of
# each fold.

model = make_pipeline(encoder(table), LDMClassifier(lambda1=0, lambda2=0))
scores = cross_val_score(model, table, label, cv=5)
print(f"accuracy {scores.mean():.3f} ± {scores.std():.3f}")

# %%
# Which columns matter? A linear model says it with its weights.

model.fit(table, label)
weights = pd.Series(model[-1].coef_[0], model[0].get_feature_names_out()).sort_values()
figure, ax = plt.subplots(figsize=(6, 2.8))
ax.barh(weights.index, weights)
ax.set(xlabel=f"weight (positive: {model.classes_[1]})")

# %%
# Into a file and back. The loaded model finds its columns by name.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "fruit.model")
    save_model(model, path, target_name="taste")
    print(path.stat().st_size, "bytes")
    again = load_model(path)
assert (again.predict(table[["grown", "colour", "weight"]]) == model.predict(table)).all()
