"""Data sets of OpenML, which scikit-learn fetches, checks and keeps; the sentences are ours."""

import warnings
from http.client import HTTPException
from urllib.error import HTTPError, URLError

import numpy as np
from sklearn.datasets import fetch_openml

from margindist.datasets.dataset import DataError
from margindist.datasets.encoding import tidy


def read_openml(name, recipe):
    """Return features, labels and names of the features of a data set on OpenML.

    Parameters
    ----------
    name : str
        What errors call it.
    recipe : mapping
        ``name`` on OpenML, with ``id`` (without one, its first version); ``drop`` names columns to leave out.

    Returns
    -------
    X : csr_matrix or DataFrame
    y : ndarray of str
    names : tuple of str

    Raises
    ------
    DataError
        In one sentence: no network, no room, not what was expected.
    """
    which = {"data_id": int(recipe["id"])} if "id" in recipe else {"name": recipe["name"], "version": 1}
    result = _fetched(name, which)
    if result.details.get("name") != recipe["name"]:
        raise DataError(f"{name}: OpenML's data set is {result.details.get('name')}, expected {recipe['name']}.")
    y = np.asarray(result.target, dtype=object)
    if y.ndim != 1 or not result.data.shape[1]:
        raise DataError(f"{name}: expected features and one target on OpenML, got {y.ndim} of the latter.")
    if not hasattr(result.data, "columns"):
        return result.data.tocsr(), y.astype(str), tuple(map(str, result.feature_names))
    known = result.target.notna().to_numpy()
    X = tidy(result.data[known].drop(columns=recipe.get("drop", ()), errors="ignore")).reset_index(drop=True)
    return X, y[known].astype(str), tuple(map(str, X.columns))


def _fetched(name, which):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions, which are named here
            return fetch_openml(**which, as_frame="auto", parser="auto")
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        answer = f" ({error.code} {error.reason})" if isinstance(error, HTTPError) else ""
        raise DataError(
            f"{name} is not here and OpenML did not answer{answer}; check the network, or put {name}.npz into the "
            "folder that MARGINDIST_DATA names."
        ) from None
    except OSError as error:
        raise DataError(
            f"{name}: files of OpenML cannot be kept in {error.filename or 'the data folder'} "
            f"({error.strerror or error}); set SCIKIT_LEARN_DATA to a folder that can be written."
        ) from None
    except ImportError:
        raise DataError(
            f"{name}: files of OpenML need pandas: install it with pip install 'margindist[files]'."
        ) from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        reason = str(error).split("\n")[0].strip(" .")
        raise DataError(f"{name}: what OpenML has cannot be read ({reason}); get it elsewhere.") from None
