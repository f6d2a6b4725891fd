"""SciPy's own tests of LSMR and LSQR, run on labkit's LSMR.

They are the files that SciPy installs, loaded with an adapter in the place of
``scipy.sparse.linalg.lsmr`` and ``lsqr``, which has their signature and their results.
"""

import importlib.util
import inspect

import numpy as np
import pytest
import scipy.sparse.linalg

from labkit.hessian_free import lsmr

HOME = "scipy.sparse.linalg._isolve.tests"


def solved(A, b, damp, atol, btol, conlim, maxiter, x0):
    """Solve as SciPy does: damp the distance from x0, take b of any shape."""
    b, x0 = np.atleast_1d(b), None if x0 is None else np.atleast_1d(x0)
    return lsmr(
        A,
        b.squeeze() if b.ndim > 1 else b,
        x0=x0,
        damping=damp,
        damp_towards="start",
        atol=atol,
        btol=btol,
        conlim=conlim,
        maxiter=maxiter,
    )


def as_lsmr(
    A, b, damp=0.0, atol=1e-6, btol=1e-6, conlim=1e8, maxiter=None, show=False, x0=None
):
    maxiter = min(A.shape) if maxiter is None else maxiter
    found = solved(A, b, damp, atol, btol, conlim, maxiter, x0)
    x, _, s = found
    k = s.iterations
    norms = s.rnorm[k], s.arnorm[k], s.anorm, s.acond, np.linalg.norm(x)
    return x, found.istop, k, *norms


def as_lsqr(
    A,
    b,
    damp=0.0,
    atol=1e-6,
    btol=1e-6,
    conlim=1e8,
    iter_lim=None,
    show=False,
    calc_var=False,
    x0=None,
):
    maxiter = 2 * A.shape[1] if iter_lim is None else iter_lim
    found = solved(A, b, damp, atol, btol, conlim, maxiter, x0)
    x, _, s = found
    k = s.iterations
    norms = s.rnorm[k], s.rnorm[k], s.anorm, s.acond, s.arnorm[k], np.linalg.norm(x)
    return x, found.istop, k, *norms, np.zeros_like(x)


def adapted(name):
    """Load SciPy's test module with the adapter; None where it is not installed."""
    try:
        spec = importlib.util.find_spec(f"{HOME}.{name}")
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    np.random.seed(0)  # noqa: NPY002 its systems are drawn by the global generator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy.sparse.linalg, "lsmr", as_lsmr)
        patch.setattr(scipy.sparse.linalg, "lsqr", as_lsqr)
        spec.loader.exec_module(module)
    return module


def cases(name):
    """Name and function of each test of a module."""
    module = adapted(name)
    if module is None:
        skip = pytest.mark.skip(reason=f"SciPy is installed without {name}")
        return [pytest.param(None, id=f"{name} is absent", marks=skip)]
    tests = []
    for title, value in vars(module).items():
        if title.startswith("test_") and inspect.isfunction(value):
            tests.append(pytest.param(value, id=f"{name}::{title}"))
        elif title.startswith("Test") and inspect.isclass(value):
            tests += [
                pytest.param((value, method), id=f"{name}::{title}::{method}")
                for method in dir(value)
                if method.startswith("test")
            ]
    return tests


ALL = cases("test_lsmr") + cases("test_lsqr")


@pytest.mark.parametrize("case", ALL)
def test_scipys_own_test_passes(case):
    if inspect.isfunction(case):
        case()
        return
    kind, method = case
    made = kind()
    made.setup_method()
    getattr(made, method)()


def test_scipys_tests_are_counted(capsys):
    """Each file is there with all its tests, or absent; the count is printed."""
    run = [case for case in ALL if not case.marks]
    with capsys.disabled():
        print(f" {len(run)} tests of SciPy's own run on labkit's LSMR", end="")
    counts = [sum(name in case.id for case in run) for name in ("_lsmr:", "_lsqr:")]
    assert counts[0] in (0, *range(15, 40)) and counts[1] in (0, *range(5, 20))
