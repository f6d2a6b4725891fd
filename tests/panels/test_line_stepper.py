"""Walking the lines of a real step: stops, loops, equations, what is shown."""

import re
import unicodedata

import pytest
import torch
from torch import nn

from labkit.panels import LineStepper
from labkit.panels.aria import Aria
from labkit.panels.docstrings import docstrings_of, equations_of, symbol
from labkit.panels.line_view import source_html, values_html
from labkit.panels.source import tags_of_line
from labkit.rls import rls_step
from labkit.rtrl import OK


def inner(x):
    return x + 1


def summed(n):
    """Sum of squares.

    (1) $s \\leftarrow s + i^2$
    """
    s = 0
    for i in range(n):
        s = s + i * i  # (1)
        t = inner(s)
    return t


def rls_walk(**options):
    g = torch.Generator().manual_seed(0)
    x, gradient, theta = (torch.randn(s, generator=g) for s in (6, (3, 6), (3, 6)))
    rule = {"velocity": torch.zeros(3, 6), "momentum": 0.5, "l1": 0.1}
    return LineStepper(rls_step, theta, torch.eye(6), x, gradient, **rule, **options)


def test_a_loop_is_one_stop_with_turns_also_through_its_helpers():
    walk = LineStepper(summed, 4, interactive=False)
    assert [len(stop) for stop in walk.stops] == [1, 5, 4, 4, 4, 1]
    body = 2
    assert walk.go(body, 3) == body
    assert walk.record.values["s"].text == "14"
    assert walk.equations == {"1": r"s \leftarrow s + i^2"}
    assert walk.go(body + 1, 2) == body + 1  # the helper's line, third turn
    assert walk.record.depth == 1 and walk.record.values["x"].text == "5"
    assert walk.go(99, 99) == 5 and walk.turn == 0 and walk.go(-3) == 0


def test_walking_to_the_next_change():
    walk = rls_walk(interactive=False)
    walk.next_change("u")
    assert walk.record.code.co_name == "gain"
    walk.next_change("P")
    assert walk.record.code.co_name == "rls_step"
    stop = walk.position
    message = r"no later line changes 'x'; lines change preconditioned, u, h"
    with pytest.raises(LookupError, match=message):
        walk.next_change("x")
    assert walk.position == stop


def test_headless_is_a_static_table():
    walk = rls_walk(interactive=False)
    assert walk.widget is None
    bundle = walk._repr_mimebundle_()
    table = bundle["text/html"]
    assert table.count("<tr>") == len(walk.stops) + 1
    assert "velocity.addcdiv_(step, h, value=-lr)" in table and "(99)" in table
    assert bundle["text/plain"] == f"LineStepper(line 1 of {len(walk.stops)})"
    walk.next_change("P")
    values = values_html(walk.record, walk._docs)
    assert "<tr class='changed'><td>● P</td><td><i>P</i></td>" in values
    assert "<td>6 × 6</td><td>float32</td><td>cpu</td>" in values and "<svg" in values
    source = source_html(walk.record, walk.stops)
    assert source.count('aria-current="step"') == 1
    lit = source.split('aria-current="step"')[1].split("</div>")[0]
    assert "P.addcmul_(v[:, None], v, value=-1)" in lit
    assert "in place: theta, velocity" not in source  # the docstring is folded
    assert source.count("…") == 1 and "def rls_step" in source


def test_widgets_follow_and_lead():
    walk = LineStepper(summed, 3)
    first, back, forward, last, name, change = walk.widget.children[0].children
    forward.click()
    assert walk.position == 1
    last.click()
    assert walk.position == len(walk.stops) - 1
    back.click()
    first.click()
    assert walk.position == 0 and walk._turns.disabled
    walk._slider.value = 3
    assert walk.position == 2 and walk._turns.max == 3
    walk._turns.value = 2
    assert (walk.position, walk.turn) == (2, 1)
    assert "s \\leftarrow" in walk._equation.value
    assert "aria-current" in walk._source.value
    walk.go(1)
    assert walk._slider.value == 2 and "stop 2 of 6" in walk._status.value
    assert name.options == ("s", "i", "t")
    name.value = "t"
    change.click()
    assert walk.record.changed == {"t"}
    change.click()
    assert walk.position == 4 and "no later line changes t" in walk._status.value


def test_keys_move_it():
    walk = LineStepper(summed, 3)
    (keys,) = (w for w in walk.widget.children if isinstance(w, Aria))
    for key, position in {"ArrowRight": 1, "End": 5, "ArrowLeft": 4, "Home": 0}.items():
        keys._heard(keys, {"key": key}, [])
        assert walk.position == position
    keys._heard(keys, {"key": "x"}, [])
    assert walk.position == 0 and "x" not in keys.heard


def test_what_cannot_be_walked_is_refused():
    with pytest.raises(TypeError, match="no Python source"):
        LineStepper(len, [1])

    def pairs():
        yield 1

    with pytest.raises(ValueError, match=r"no line of .* ran that could be shown"):
        LineStepper(pairs)


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("x = 1  # (5')", ["5'"]),
        ("W = solve(V)  # (6), for l = L + 1", ["6"]),
        ("F = S  # (A2)", ["A2"]),
        ("a = b  # (38), (39)", ["38", "39"]),
        ("theta: Tensor  # (N, n)", []),
        ("x: Tensor  # (5, 2) training inputs", []),
        ("y = f(1)", []),
        ("U = G.T @ V  # (a)", ["a"]),
        ("mix(G)  # (1)-(4): all", ["1", "2", "3", "4"]),
        ("mix(G)  # (5a)-(5c)", ["5a", "5c"]),
        ("P: Tensor  # (n,) bias", []),
    ],
)
def test_tags_of_a_line(line, tags):
    assert tags_of_line(line) == tags


def test_equations_in_their_two_forms():
    doc = r"""Title.

    (57), (87): $J = \frac12 |z|^2$ and (6) $W = G^{-1} B$,  $\lambda = \rho$.
    The (20) of the paper is (a) $U = G^T V$; see (21)
    (7) $v = 0$.

    .. math::
        u &= P x  &&(38) \\
        v &= u / h
            - 1   &&(39)

    After.
    """
    assert equations_of(doc) == {
        "38": "u  = P x",
        "39": "v  = u / h - 1",
        "57": r"J = \frac12 |z|^2",
        "87": r"J = \frac12 |z|^2",
        "6": r"W = G^{-1} B \quad \lambda = \rho",
        "a": "U = G^T V",
        "7": "v = 0",
    }
    assert equations_of(None) == {}


def scaled(
    x,
    factor,
):
    """Scale: (1) $y = f x$ with factor : $f$.

    factor : $f$
    """
    y = torch.mul(
        x,
        factor,  # (1)
    )
    return y


def test_a_statement_of_several_lines_is_one_stop():
    walk = LineStepper(scaled, torch.ones(2), 3.0, interactive=False)
    assert len(walk.stops) == 2 and walk.equations == {"1": "y = f x"}
    source = source_html(walk.record, walk.stops)
    lit = [line for line in source.split("<div")[1:] if 'class="lit"' in line]
    assert len(lit) == 4 and source.count("aria-current") == 1
    assert "torch.mul( x, factor, )" in walk._still.html


def symbols(walk):
    return {p: walk._docs.symbol(walk.record, p) for p in walk.record.values}


def test_symbols_come_from_the_docstrings():
    walk = LineStepper(scaled, torch.ones(2), 3.0, interactive=False)
    assert symbols(walk) == {"x": "x", "factor": "f", "y": "y"}
    rls = rls_walk(interactive=False)
    rls.next_change("P")
    found = symbols(rls)
    wanted = {"x_mean": "x̄", "theta": "Θ", "velocity": "Ω", "P": "P", "momentum": "α"}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("table", "name", "found"),
    [
        ("x_mean : (n,) tensor\n    $\\bar x$, mean of the inputs", "x_mean", "x̄"),
        ("lr : float\n    Step size $\\eta$ > 0.", "lr", "η"),
        ("P : (n, n) tensor, $P$\n    Inverse of $A^\\top A$.", "P", "P"),
        ("a, b : (n,) tensors\n    $\\alpha$ and $\\beta$.", "b", "β"),
        ("a, b : (n,) tensors\n    Norms below $\\epsilon$.", "b", ""),
        ("ridge : float\n    >= 0.\nx : int\n    $x$", "ridge", ""),
        ("(1) $h' = \\tanh(\\hat h W_0)$", "h_hat", "ĥ"),
        ("(1) $h' = \\tanh(\\hat h W_0)$", "W0", "W_0"),
        ("(1) $h' = \\tanh(\\hat h W_0)$", "weights", ""),
    ],
)
def test_a_symbol_is_the_first_of_its_entry_or_spelled_in_a_formula(table, name, found):
    text = f"Do it.\n\nParameters\n----------\n{table}\n"
    assert unicodedata.normalize("NFC", symbol(name, text)) == found


def test_docstrings_are_the_functions_its_classes_its_modules():
    own, owner, module = docstrings_of(OK._advance)
    assert own is None and owner == OK.__doc__ and "Kronecker" in module
    assert list(docstrings_of(None)) == []


def ranked(self, b):
    a, used = {"x": b}, 2
    c = used + len(a)
    return c


def test_what_a_line_changes_and_names_stands_first():
    held = nn.Linear(2, 2)
    walk = LineStepper(ranked, held, 7, interactive=False)
    walk.next_change("c")
    table = values_html(walk.record, walk._docs)
    rows = re.findall(r"<tr class='\w*'><td>(?:● )?([^<]+)</td>", table)
    assert rows == ["c", "used", "a[&quot;x&quot;]", "b", "self.weight", "self.bias"]
    sizes = re.findall(r'<svg[^>]* width="(\d+)" height="(\d+)"', table)
    assert sizes == [("10", "10"), ("10", "5")]
