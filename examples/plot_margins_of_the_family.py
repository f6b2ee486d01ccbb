"""
How do the margins of these methods differ?
===========================================

All of them are linear here, and all are fitted to the same rows. Margins have no unit, so each method's are divided
by their mean: what is left is the shape.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale

from margindist import LDMClassifier, LSSVMClassifier, MAMClassifier, MSVMAvClassifier, ODMClassifier
from margindist.margins import MarginDistributionDisplay, MarginSample, margin_statistics, margins

X, y = load_breast_cancer(return_X_y=True)
X = minmax_scale(X)
m = len(y)

methods = {
    "SVM": LDMClassifier(C=1.0, lambda1=0, lambda2=0),
    "LDM": LDMClassifier(C=1.0, lambda1=m, lambda2=m),
    "ODM": ODMClassifier(lam=m),
    "LSSVM": LSSVMClassifier(C=1.0),
    "MAMC_b": MAMClassifier(),
    "MSVMAv": MSVMAvClassifier(alpha=1.0, beta=1.0),
}

# %%
# Semi-variance counts only what lies below the mean. Both are those of margins with mean 1.

samples = []
print(f"{'':8} training error  variance  semi-variance   minimum")
for name, method in methods.items():
    z = margins(method.fit(X, y), X, y)
    z /= z.mean()
    s = margin_statistics(z)
    print(f"{name:8} {s.share_below_zero:14.3f} {s.variance:9.3f} {s.semi_variance:14.3f} {s.minimum:9.2f}")
    samples.append(MarginSample(name, None, z, np.ones(m)))

# %%
# A steep curve has margins that are alike; what lies left of zero is wrong.

figure, ax = plt.subplots(figsize=(7.5, 4.2))
MarginDistributionDisplay(samples).plot(ax=ax)
ax.set_xlabel("margin / mean margin")
