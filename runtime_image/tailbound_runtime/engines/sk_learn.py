"""scikit-learn estimators in skops files.

A skops file names the types of its objects. Those that skops trusts by itself, of scikit-learn, NumPy and
SciPy, are made, and decision trees, whose numbers are checked here; any other type is refused before an
object is made, so that no code of the author runs.
"""

import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.tree._tree import Tree
from skops import io
from skops.io.exceptions import UntrustedTypesFoundException
from threadpoolctl import threadpool_limits

from tailbound_runtime.engine import Engine, Order, one_line
from tailbound_runtime.engines.table import OUTPUT, TableModel
from tailbound_runtime.errors import ModelFailedError, ModelLoadError
from tailbound_runtime.mistaken import check_head
from tailbound_runtime.tensors import BY_NAME, Array

_HEAD: Final = b"PK\x03\x04"
_TREE: Final = "sklearn.tree._tree.Tree"
_METHODS: Final = (OUTPUT, "predict_proba")
_LEAF: Final = -1


class SkLearn(TableModel):
    """An estimator; its outputs are what `predict` and, where it has that, `predict_proba` return."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        outputs = [name for name in _METHODS if hasattr(estimator, name)]
        super().__init__(int(estimator.n_features_in_), BY_NAME["FP64"], "sklearn_skops", outputs)

    def _predict(self, output: str, rows: Array) -> Array:
        try:
            answer = np.asarray(getattr(self._estimator, output)(rows))
        except Exception as error:  # an estimator raises whatever comes of its numbers
            raise ModelFailedError(one_line(error)) from error
        return answer.astype(np.object_) if answer.dtype.kind in "SU" else answer


def load(order: Order) -> Engine:
    """Load a file of `skops.io.dump`. Raises ModelLoadError."""
    order.check_cpu_only("scikit-learn")
    check_head(order.path, "skops model", _HEAD)
    warnings.filterwarnings("ignore", module="sklearn")  # its lines are not JSON
    threadpool_limits(order.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InconsistentVersionWarning)
            estimator = io.load(order.path, trusted=[_TREE])
    except UntrustedTypesFoundException as error:
        raise ModelLoadError(
            f"{order.path} asks for types beside those of scikit-learn that are known to run no code: "
            f"{str(error).splitlines()[0].rstrip('.')}; leave them out, or convert the model to ONNX as "
            "docs/engines.md says"
        ) from error
    except InconsistentVersionWarning as error:
        raise ModelLoadError(
            f"{order.path} was written by scikit-learn {error.original_sklearn_version}, and this image has "
            f"{sklearn.__version__}: write it again with that version"
        ) from error
    except Exception as error:  # skops checks little else of what it reads
        raise ModelLoadError(
            f"scikit-learn {sklearn.__version__} cannot load {order.path}: {one_line(error)}"
        ) from error
    return _checked(estimator, order)


def _checked(estimator: Any, order: Order) -> SkLearn:
    path = order.path
    if not isinstance(estimator, BaseEstimator) or not hasattr(estimator, OUTPUT):
        raise ModelLoadError(f"{path} holds a {type(estimator).__name__}, which has no method `predict`")
    if not isinstance(getattr(estimator, "n_features_in_", None), int):
        raise ModelLoadError(
            f"the {type(estimator).__name__} in {path} takes no table of numbers (n_features_in_): convert "
            "it to ONNX as docs/engines.md says"
        )
    if not all(map(_is_whole, _trees(estimator))):
        raise ModelLoadError(f"{path} has a decision tree whose numbers are beyond it: write it again")
    try:
        jobs = [name for name in estimator.get_params() if name.rpartition("__")[2] == "n_jobs"]
        estimator.set_params(**dict.fromkeys(jobs, order.threads))
        return SkLearn(estimator)
    except (AttributeError, KeyError, ModelFailedError, TypeError, ValueError) as error:
        raise ModelLoadError(
            f"scikit-learn {sklearn.__version__} cannot run {path}: {one_line(error)}"
        ) from error


def _trees(estimator: Any) -> Iterator[Any]:
    """All decision trees in the attributes of an estimator and of those in it."""
    seen: set[int] = set()
    left = [estimator]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tree):
            yield one
        elif isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple | set) or (isinstance(one, np.ndarray) and one.dtype == np.object_):
            left.extend(one)
        elif type(one).__module__.startswith("sklearn.") and hasattr(one, "__dict__"):
            left.extend(vars(one).values())


def _is_whole(tree: Any) -> bool:
    """Whether each node is a leaf, or leads to two later ones by a feature that there is."""
    count = tree.node_count
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != _LEAF
    places = np.arange(count)
    return bool(
        count > 0
        and all(((child > places) & (child < count))[inner].all() for child in (left, right))
        and ((feature >= 0) & (feature < tree.n_features))[inner].all()
    )
