"""Exercises of online gradients: exact RTRL, UORO, KF-RTRL, OK and SnAp-1."""

from functools import partial

from labkit.lab.exercises.answers import Question
from labkit.lab.exercises.judging import Exercise
from labkit.lab.exercises.rtrl_examples import (
    apart,
    back_propagation,
    carries,
    example,
    first_variances,
    influences,
    judge_nearer,
    judge_rank,
    judge_variance,
    kronecker_rank,
    least_noise,
    nearer,
    nearest,
    unbiased,
    unbiased_in_two_steps,
)
from labkit.rtrl.exact import rtrl_step
from labkit.rtrl.kronecker import kf_step, mix, ok_step
from labkit.rtrl.snap import snap1_step
from labkit.rtrl.uoro import uoro_step

UORO, KF, OK = (
    (partial(unbiased, name), partial(least_noise, name), partial(apart, name))
    for name in ("UORO", "KF-AVG", "OK")
)
UORO += (partial(unbiased_in_two_steps, "UORO"),)
EXACT = (back_propagation, partial(carries, "RTRL"))
SNAP1 = (partial(carries, "SNAP-1", own_unit=True),)

SIGNS = (
    "The mean over all signs decides: a product of two signs that are drawn "
    "independently has the mean 0, and the square of a sign is 1."
)

EXERCISES = (
    Exercise(
        name="rtrl-exact",
        title="Write what one step of the cell makes of the influence so far.",
        function=rtrl_step,
        tags=("1",),
        equation=r"G_t = \texttt{HG} + F_t, \qquad \texttt{HG} = H_t\, G_{t-1}",
        shapes={"HG": "(b, S, m K n)"},
        given=("HG = ...  # (1)\nG = HG if out is None else out.copy_(HG)",),
        plain=("H @ G",),
        stands_for={"HG": "G"},
        hints=(
            "Both `H` (b, S, S) and `G` (b, S, m K n) have one matrix for each "
            "sequence in the batch.",
            "The product of two matrices for each sequence is what `@` computes on "
            "tensors of three dimensions.",
            r"$H_t = \partial s_t / \partial s_{t-1}$ stands on the left of "
            r"$G_{t-1} = \partial s_{t-1} / \partial W$: this is the chain rule.",
        ),
        example=partial(example, "RTRL"),
        theorems=EXACT,
    ),
    Exercise(
        name="rtrl-uoro-factors",
        title=r"Write the two factors with which UORO mixes.",
        function=uoro_step,
        tags=("2", "3"),
        equation=r"\rho_0 = \sqrt{|v| / |Hu|}, \qquad \rho_1 = \sqrt{|w| / |\nu|}",
        shapes={"rho0": "(b, 1)", "rho1": "(b, 1)"},
        hints=(
            "The mean is right with any factors above 0. These make the noise least, "
            "since the two cross terms are then equally large.",
            r"`balance(x, y)` is $\sqrt{x / y}$, and 1 where a norm is 0. "
            "`norm(x, dims)` goes over the last `dims` dimensions and keeps them with "
            r"size 1. `signs` is $\nu$.",
            "`v` and `w` are matrices for each sequence, so their norms go over 2 "
            "dimensions; `norm(v, 2)[..., 0]` is of shape (b, 1), as `norm(Hu, 1)` is.",
        ),
        example=partial(example, "UORO"),
        theorems=UORO,
    ),
    Exercise(
        name="rtrl-uoro-mix",
        title="Write the two vectors whose product is UORO's new estimate.",
        function=uoro_step,
        tags=("4", "5"),
        equation=r"u' = \rho_0\, Hu + \rho_1\, \nu, \quad v' = v / \rho_0 + w / \rho_1",
        shapes={"u": "(b, S)", "v": "(b, m, K n)"},
        hints=(
            SIGNS + r" So of $u' v'^\top$ only $Hu\,v^\top$ and $\nu\,w^\top$ remain.",
            r"`signs` is $\nu$. What multiplies in $u'$ divides in $v'$.",
            "`rho0` and `rho1` are (b, 1), and `v` and `w` are (b, m, K n): they need "
            "`[..., None]` there.",
        ),
        example=partial(example, "UORO"),
        theorems=UORO,
    ),
    Exercise(
        name="rtrl-kf-factors",
        title="Write the two factors with which KF-RTRL mixes.",
        function=kf_step,
        tags=("1", "2"),
        equation=r"p_1 = \sqrt{|HA| / |u|}, \qquad p_2 = \sqrt{|D| / |\hat h|}",
        shapes={"p1": "(b, c, 1)", "p2": "(b, c, 1)"},
        hints=(
            "The mean is right with any factors above 0. These make the noise least, "
            "since the two cross terms are then equally large.",
            r"`balance(x, y)` is $\sqrt{x / y}$, and 1 where a norm is 0. `HA` is "
            "$HA$, and `size` is the norm of `D`, of shape (b, 1, 1, 1).",
            "`norm(HA, 2)` is (b, c, 1, 1) and `norm(u, 1)` is (b, c, 1). One index 0 "
            "at the end takes the last dimension off. `norm(h_hat, 1)` is (b, 1) and "
            "needs one more dimension in the middle.",
        ),
        example=partial(example, "KF-AVG"),
        theorems=KF,
    ),
    Exercise(
        name="rtrl-kf-mix",
        title="Write the new vector of the Kronecker product that KF-RTRL keeps.",
        function=kf_step,
        tags=("3",),
        equation=r"u' = p_1 u + c\, p_2 \hat h",
        shapes={"u": "(b, c, m)"},
        hints=(
            SIGNS + " One sign is drawn for each copy, and it also stands in (4).",
            r"`h_hat` is (b, m), the same for all copies; `h_hat[:, None]` is (b, 1, "
            "m).",
            "`c`, `p1` and `p2` are (b, c, 1), so that they multiply `u` and "
            "`h_hat[:, None]` as they are.",
        ),
        example=partial(example, "KF-AVG"),
        theorems=KF,
    ),
    Exercise(
        name="rtrl-ok-u",
        title="Write the new vectors $u'_j$ of the optimal Kronecker sum.",
        function=ok_step,
        tags=("7",),
        equation=r"u'_j = \sum_i X_{ij}\, u_i",
        shapes={"u": "(b, r, m)"},
        hints=(
            r"`u` holds all $r + 1$ vectors as its rows, the last is $\hat h$. Row j "
            "of the result is a sum of them with the weights of column j of `X`.",
            "`X` is (b, r + 1, r) and `u` is (b, r + 1, m). The sum goes over the "
            "first index of both.",
            "A sum over the first index of `X` is a product with its transpose. `X.mT` "
            "transposes the last two dimensions.",
        ),
        example=partial(example, "OK"),
        theorems=OK,
    ),
    Exercise(
        name="rtrl-ok-A",
        title="Write the new matrices $A'_j$ of the optimal Kronecker sum.",
        function=ok_step,
        tags=("8",),
        equation=r"A'_j = \sum_{i \le r} Z_{ij}\, HA_i + Z_{r+1, j}\, D",
        shapes={"A": "(b, r, K n, S)"},
        given=("A = ...  # (8)",),
        plain=(
            "torch.einsum('bij,bicd->bjcd', Z[:, :-1], HA) + torch.diag_embed(Z[:, "
            "-1, :, None, None, None] * D.transpose(1, 2)[:, None], "
            "dim1=3, dim2=5).reshape(HA.shape)",
        ),
        hints=(
            "`HA` (b, r, K n, S) holds the first r matrices. `Z` is (b, r + 1, r); its "
            "last row belongs to $D$.",
            "`torch.einsum('bij,bicd->bjcd', Z[:, :-1], HA)` is the sum over the first "
            "r. D is still missing.",
            "D is zero but on the diagonals $j = j'$ of a matrix, and `diagonals(A, "
            "D)` is a view (b, r, K, P, n) of these entries of `A`. In this layout D "
            "is `D.transpose(1, 2)[:, None]`, and `Z[:, -1, :, None, None, None]` are "
            "its weights: `diagonals(A, D).add_(...)` of their product.",
        ),
        example=partial(example, "OK"),
        theorems=OK,
    ),
    Exercise(
        name="rtrl-ok-C",
        title="Write the small matrix C whose singular values decide what is kept.",
        function=mix,
        tags=("3",),
        equation=r"C = L R^\top = U\,\mathrm{diag}(d)\,V^\top",
        shapes={"C": "(b, r + 1, r + 1)"},
        given=("C = ...  # (3)\nU, d, V = svd(C)",),
        plain=("L @ R.mT",),
        hints=(
            r"The sum of the terms is $\sum_i u_i \otimes A_i$. With $u_i = Q L_i$ and "
            "$A_i = M R_i$, where $Q$ and $M$ have orthonormal columns, it is "
            r"$Q\,(\sum_i L_i R_i^\top)\,M^\top$.",
            r"$L_i$ and $R_i$ are the columns of `L` and `R`. The paper's Lemma 3 "
            "prints $L^T R$, which is another matrix.",
            "A sum of products of columns is the product of one matrix with the "
            "transpose of the other; `.mT` transposes each matrix of a batch.",
        ),
        example=partial(example, "OK"),
        theorems=OK,
    ),
    Exercise(
        name="rtrl-snap1-carry",
        title="Write what one step of the cell makes of SnAp-1's influence so far.",
        function=snap1_step,
        tags=("1",),
        equation=r"J_t = \texttt{J} + F_t, \qquad \texttt{J} = H_{jj}\, J_{t-1}",
        shapes={"J": "(b, P, m, K, n)"},
        hints=(
            "A unit j has P numbers in the state. `H.reshape(b, P, n, P, n)` has the "
            "derivatives of all of these by all others; only those with the same j are "
            "used.",
            "`.diagonal(dim1=2, dim2=4)` takes these and puts j last: (b, P, P, n), "
            "indexed by the new part p, the old part q, and j.",
            "The sum goes over the old part q: `torch.einsum('bpqj,bqikj->bpikj', own, "
            "J)`.",
        ),
        example=partial(example, "SNAP-1"),
        theorems=SNAP1,
    ),
    Exercise(
        name="rtrl-snap1-direct",
        title="Write what a weight does to its own unit at once.",
        function=snap1_step,
        tags=("2",),
        equation=r"F_t = \hat h_t \otimes D_t",
        shapes={"F": "(b, P, m, K, n)"},
        given=("F = ...  # (2)\nJ += F",),
        plain=("h_hat[:, None, :, None, None] * D[:, :, None]",),
        hints=(
            r"Entry [p, i, k, j] is $\hat h_i$ times $D_{pkj}$: a weight in row i "
            r"meets the input $\hat h_i$.",
            "`h_hat` is (b, m) and `D` is (b, P, K, n). Every index of the result but "
            "b stands in one of the two alone.",
            "`torch.einsum` with the letters `bi,bpkj->bpikj` says this, or a product "
            "with `None` where an index is missing.",
        ),
        example=partial(example, "SNAP-1"),
        theorems=SNAP1,
    ),
    Question(
        name="rtrl-1",
        title=(
            "How does UORO's relative variance grow with the number S of its signs, in "
            "the first step after a reset? Write it as a function of S."
        ),
        wants="a function of one whole number S",
        measured=first_variances,
        right=lambda _: lambda S: S - 1,
        verdict=judge_variance,
        hints=(
            r"After a reset the estimate is $\nu \nu^\top F$, and what it should be is "
            "$F$.",
            r"The error is $(\nu \nu^\top - I) F$. Each entry of $\nu \nu^\top - I$ is "
            "0 on the diagonal, and a sign elsewhere.",
            r"$E[(\nu \nu^\top - I)^2]$ is a multiple of the identity: row i sums S - "
            "1 squares.",
        ),
        because=(
            "`lambda S: S - 1`. There is a sign for every unit, so the noise of UORO "
            "grows with the size of the network."
        ),
    ),
    Question(
        name="rtrl-2",
        title=(
            "How few Kronecker products hold an influence? Write a function of `G`, of "
            "shape (S, m K n), and of `m`: the least r for which the best sum of r "
            "products $u_i \\otimes A_i$ misses at most $10^{-6} |G|$."
        ),
        wants="a function of G and m that returns a whole number",
        measured=influences,
        right=lambda _: kronecker_rank,
        verdict=judge_rank,
        hints=(
            "Give the tensor other axes, (m, S K n): a product $u \\otimes A$ is then "
            "a matrix of rank one.",
            "`G.unflatten(1, (m, -1)).movedim(1, 0).flatten(1)` does so. The best sum "
            "of r products is the truncated singular value decomposition.",
            "What r terms miss is the root of the sum of the squares of the singular "
            "values from the next one on.",
        ),
        because=(
            "The number of singular values, of G as a matrix with m rows, that are "
            "left until the rest is below 1e-6. The influence of an untrained network "
            "fades so fast that few products hold all of it, and OK of that rank has "
            "no noise."
        ),
    ),
    Question(
        name="rtrl-3",
        title=(
            "B-OK at rank 1 is nearer to the exact gradient than one draw of OK is, or "
            "is it not? And which of the two is nearer if the gradients of 400 draws "
            "are averaged? Predict both, by name."
        ),
        wants="two of the names 'OK' and 'B-OK', such as ('OK', 'OK')",
        measured=nearest,
        right=nearer,
        verdict=judge_nearer,
        hints=(
            "One of the two has noise with the mean 0. The other one has none, and "
            "makes the same error in every draw.",
            "The mean of N independent draws has a variance of 1 / N of theirs. A bias "
            "does not change.",
            "B-OK throws the least away that a sum of rank 1 can, in each step.",
        ),
        because=(
            "('B-OK', 'OK'): the error of B-OK is the same in every draw. It neither "
            "averages out over a batch nor over time. Noise with the mean 0 does."
        ),
    ),
)
