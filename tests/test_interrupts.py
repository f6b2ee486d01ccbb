"""Ctrl-C at any moment of a fit is a KeyboardInterrupt, and leaves the estimator as it was."""

import os
import subprocess
import sys

import pytest

# Prints what each of many fits ended with, to which the signal came at a moment of its own.
INTERRUPTED = """
import collections, os, random, signal, sys, threading, time, warnings
import numpy as np
from margindist import LDMClassifier, LDMClassifierCV, ODMClassifier, ROMMAClassifier

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(600, 8))
y = (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=600) > 1).astype(int)
model, n_classes, n_rows = {
    "linear": (LDMClassifier(C=100, lambda1=1000), 3, 600),
    "kernel": (LDMClassifier(C=10, kernel="rbf"), 2, 600),
    "joint": (ODMClassifier(kernel="rbf"), 3, 200),
    "search": (LDMClassifierCV(kernel="rbf", Cs=[1, 10], lambda1s=[0.1, 1], lambda2s=[0.1]), 2, 150),
    "online": (ROMMAClassifier(kernel="rbf", soft_margin=1, max_iter=20), 2, 300),
}[sys.argv[1]]
labels = y if n_classes == 2 else y + (X[:, 2] > 0.5)
X, labels = X[:n_rows], labels[:n_rows]
model.fit(X, labels)
began = time.perf_counter()
model.fit(X, labels)
took = time.perf_counter() - began
random.seed(0)
ends = collections.Counter()
for _ in range(int(sys.argv[2])):
    before = vars(model).copy()
    timer = threading.Timer(random.random() * took, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True:
            model.fit(X, labels)
            before = vars(model).copy()
    except BaseException as error:
        kept = before.keys() == vars(model).keys()
        ends[type(error).__name__ if kept else "left in between"] += 1
print(dict(ends))
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGINT")
@pytest.mark.parametrize("kind", ["linear", "kernel", "joint", "search", "online"])
def test_an_interrupt_is_an_interrupt(kind):
    command = [sys.executable, "-c", INTERRUPTED, kind, "10"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == "{'KeyboardInterrupt': 10}", ended.stderr
