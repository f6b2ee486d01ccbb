"""skops stores and loads every classifier."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import Perceptron

import margindist
from margindist.methods import OURS

skops_io = pytest.importorskip("skops.io")


def _fitted(name):
    X, y = load_iris(return_X_y=True)
    arguments = (Perceptron(),) if name == "ECOCClassifier" else ()
    model = getattr(margindist, name)(*arguments)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=20)
    return model.fit(X, y), X


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(OURS))
def test_a_classifier_comes_back(name):
    model, X = _fitted(OURS[name].name)
    stored = skops_io.dumps(model)
    back = skops_io.loads(stored, trusted=skops_io.get_untrusted_types(data=stored))
    np.testing.assert_array_equal(back.decision_function(X), model.decision_function(X))
    assert back.get_params().keys() == model.get_params().keys()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_an_online_learner_goes_on_from_where_it_was(kernel):
    X, y = load_iris(return_X_y=True)
    model = margindist.PUMMAClassifier(kernel=kernel, soft_margin=1.0)
    model.partial_fit(X[::2], y[::2], classes=[0, 1, 2])
    stored = skops_io.dumps(model)
    back = skops_io.loads(stored, trusted=skops_io.get_untrusted_types(data=stored))
    for each in (model, back):
        each.partial_fit(X[1::2], y[1::2])
    np.testing.assert_array_equal(back.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(back.n_updates_, model.n_updates_)
