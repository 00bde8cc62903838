"""Keeps linear algebra to one thread: on matrices as small as ours, more threads only wait for each other."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

__all__ = ["one_blas_thread"]


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which NumPy's and SciPy's linear algebra run in the calling thread alone.

    Idle threads of OpenBLAS spin: on two cores that others use, too, inverting 200 x 200 takes a tenth of the
    time with one thread. The limit holds for the process: when contexts overlap in several threads, the last
    one to end may leave it in place.
    """
    return _libraries().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401 - it brings an OpenBLAS of its own, which is found only once it is loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
