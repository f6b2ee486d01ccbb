"""``margindist warm-up``."""

import warnings

import click

from margindist.cli.app import debug_option

_ROWS = 40


@click.command(
    "warm-up",
    epilog="""
\b
Examples:
  margindist warm-up
      After installing or updating; takes a few minutes once, and some seconds when all is compiled.
""",
)
@debug_option
def warm_up():
    """Compile everything that a first fit needs, so that no later command waits for it.

    Every classifier is fitted to a few made-up rows: dense and sparse, two classes and three, linear and with a kernel.
    What is compiled is kept on disk, for all later runs of this version on this machine.
    """
    from margindist.methods import METHODS, search
    from margindist.spaces.rows import all_compiled

    for number, method in enumerate(METHODS, 1):
        click.echo(f"{number} of {len(METHODS)}: {method.label}", err=True)
        for X, y in _examples():
            grid = {name: [values[0], values[-1]] for name, values in method.grid(_shape(X, y), True).items()}
            with warnings.catch_warnings(), all_compiled():
                warnings.simplefilter("ignore")
                estimator = method.estimator(0)
                chosen = search(estimator, grid, folds=2, seed=0) if grid else estimator
                chosen.fit(X, y).decision_function(X)
    click.echo("Everything is compiled.")


def _examples():
    """Yield made-up rows of every kind that is compiled for: dense and sparse, two classes and three."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    for n_classes in (2, 3):
        y = np.arange(_ROWS) % n_classes
        X = rng.normal(size=(_ROWS, 4)) + y[:, None]
        yield X, y
        yield sp.csr_matrix(np.maximum(X, 0.0)), y


def _shape(X, y):
    import scipy.sparse as sp

    from margindist.methods import Shape

    return Shape(X.shape[0], X.shape[1], int(y.max()) + 1, sp.issparse(X), 8.0)
