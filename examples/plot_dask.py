"""
My rows are on a Dask cluster
=============================

``fit``, ``predict`` and ``score`` take Dask arrays and dataframes as they take arrays. The rows stay on the workers;
what travels are weights and sums, a few small arrays per round. The certificate is the same as in memory: it is
summed up over the chunks.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from margindist import LDMClassifier

# %%
# Two workers, here in this process; yours are elsewhere. The rows are generated, in chunks with all columns.

cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
client = Client(cluster)

rng = da.random.default_rng(0)
X = rng.normal(size=(20_000, 10), chunks=(5_000, 10))
noise = rng.normal(size=20_000, chunks=5_000)
y = (X[:, 0] + 0.5 * X[:, 1] + 0.8 * noise > 0).astype(np.int8)
X, y = client.persist([X, y])
print(X)

# %%
# The same call as always. ``predict`` is lazy, as Dask's users expect.

model = LDMClassifier(C=1.0, lambda1=0, lambda2=0).fit(X, y)
print(f"gap {model.duality_gap_:.1e} after {model.n_iter_} iterations, {model.solver_}")
predicted = model.predict(X)
print(predicted, f"accuracy {float((predicted == y).mean().compute()):.3f}", sep="\n")

# %%
# Is it what a fit in memory gives? Within the gap, yes.

here = LDMClassifier(C=1.0, lambda1=0, lambda2=0).fit(np.asarray(X), np.asarray(y))
print(f"objectives: {model.objective_:.4f} on the cluster, {here.objective_:.4f} in memory")

figure, ax = plt.subplots(figsize=(6, 3))
columns = np.arange(X.shape[1])
ax.bar(columns - 0.2, model.coef_[0], 0.4, label="on the cluster")
ax.bar(columns + 0.2, here.coef_[0], 0.4, label="in memory")
ax.set(xlabel="column", ylabel="weight", xticks=columns)
ax.legend()

del X, y, noise, predicted  # what the cluster holds
client.close()
cluster.close()
