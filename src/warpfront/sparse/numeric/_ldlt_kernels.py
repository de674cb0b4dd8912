"""Threshold Bunch-Kaufman factorisation of the fully summed columns of one front.

A front is a column-major rows x full trapezoid (lower triangle). Pivots are taken in panels: inside a panel a
candidate column is brought up to date when it is looked at, the columns behind it are left alone until the panel
ends (as LAPACK's ``sytrf`` does), so a rejected candidate costs one column update and no repair. ``W`` holds the
panel's columns of ``L D``.

A pivot is taken when no entry of its columns of L would exceed 1/u over the *whole* front (Duff and Reid 1983), and
the choice between 1x1 and 2x2 follows Bunch and Kaufman (1977). A rejected column moves behind the others and is
looked at again once other pivots have changed it; what is left when nothing more is accepted is delayed.

For a Hermitian matrix (``rule.hermitian``) L D L^H: D has a real diagonal, and ``W`` holds the conjugate of ``L D``,
so that every update reads ``F -= L W^T`` whatever the structure. Sizes of complex entries are ``|re| + |im|``, as in
LAPACK.
"""

from __future__ import annotations

from warpfront.backend._intrinsics import conjugate_if, magnitude, real_part, view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._dense_kernels import subtract_columns

__all__ = ["BUNCH_KAUFMAN", "DIAGONAL_ONLY", "NO_SEARCH", "PANEL", "exchange", "ldlt_panel", "scale_by_d"]

PANEL = 32
BUNCH_KAUFMAN, DIAGONAL_ONLY, NO_SEARCH = 0, 1, 2  # LdltRule.search
ALPHA = 0.6403882032022076  # (1 + sqrt(17)) / 8
NONE, ONE, TWO, ZERO = 0, 1, 2, 3
WIDE = (
    1e18  # diagonals this far above their off-diagonal entry are no 2x2 pivot: the quotients could overflow
)


@njit(cache=True, nogil=True)
def _largest(x, begin, end):
    """Size of the largest |x[begin:end]|; 0 when empty. NaN does not count."""
    best = 0.0
    for i in range(begin, end):
        size = 1.0 * magnitude(x[i])
        best = size if size > best else best
    return best


@njit(cache=True, nogil=True)
def _place_of(x, begin, end, size):
    """First position in begin..end of an entry of this size."""
    i = begin
    while i < end and magnitude(x[i]) != size:
        i += 1
    return i


@njit(cache=True, nogil=True)
def exchange(a, ld, rows, conj, w, ldw, panel, ind, k, r):
    """Exchange rows and columns k < r of the trapezoid, of the finished columns, and of W's columns panel..k.

    With ``conj`` the trapezoid is that of a Hermitian matrix.
    """
    if k == r:
        return
    for p in range(k):
        a[k + p * ld], a[r + p * ld] = a[r + p * ld], a[k + p * ld]
    for p in range(k - panel):
        w[k + p * ldw], w[r + p * ldw] = w[r + p * ldw], w[k + p * ldw]
    a[k + k * ld], a[r + r * ld] = a[r + r * ld], a[k + k * ld]
    for i in range(k + 1, r):
        a[i + k * ld], a[r + i * ld] = conjugate_if(conj, a[r + i * ld]), conjugate_if(conj, a[i + k * ld])
    a[r + k * ld] = conjugate_if(conj, a[r + k * ld])
    for i in range(r + 1, rows):
        a[i + k * ld], a[i + r * ld] = a[i + r * ld], a[i + k * ld]
    ind[k], ind[r] = ind[r], ind[k]


@njit(cache=True, nogil=True)
def _current(a, ld, rows, conj, w, ldw, panel, k, j, out):
    """Write column j of the trailing matrix, brought up to date, into ``out[k:rows]``."""
    for i in range(k, j):
        out[i] = conjugate_if(conj, a[j + i * ld])
    for i in range(j, rows):
        out[i] = a[i + j * ld]
    depth = k - panel
    if depth > 0:
        subtract_columns(
            view(out, k, rows - k),
            view(a, panel * ld, depth * ld),
            ld,
            depth,
            k,
            view(w, j, depth * ldw),
            ldw,
            False,
            rows - k,
        )


@njit(cache=True, nogil=True)
def _choose(rule, x, y, rows, full, k, r, size, below):
    """Decide on column x (largest off-diagonal ``size`` at fully summed row r, ``below`` over all rows) and column y = r.

    Returns ``(kind, swap)``: NONE, ONE at k (swap = k) or at r (swap = r), or TWO with r.
    """
    akk = magnitude(x[k])
    arr = magnitude(y[r])
    pivot, y[r] = y[r], 0.0  # left out of the three maxima that follow
    inside, y_below = _largest(y, k + 1, full), _largest(y, full, rows)
    y[r] = pivot
    y_full, y_rest = max(magnitude(y[k]), inside), max(inside, y_below)
    y_all = max(y_full, y_below)
    if akk * y_full >= ALPHA * size * size and akk >= rule.threshold * below:
        return ONE, k
    if arr >= ALPHA * y_full and arr >= rule.threshold * y_all:
        return ONE, r
    if size > 0.0 and max(akk, arr) <= WIDE * size:
        ratio = (x[k] / x[r]) * (y[r] / conjugate_if(rule.hermitian, x[r]))
        determinant = magnitude(ratio - 1.0)
        x_rest = max(_largest(x, k + 1, r), _largest(x, r + 1, rows))
        limit = determinant * size / rule.threshold
        if (
            determinant > rule.cancelled
            and arr / size * x_rest + y_rest <= limit
            and x_rest + akk / size * y_rest <= limit
        ):
            return TWO, r
    if akk > 0.0 and akk >= rule.threshold * below:
        return ONE, k
    if arr > 0.0 and arr >= rule.threshold * y_all:
        return ONE, r
    return NONE, k


@njit(cache=True, nogil=True)
def _write_one(a, ld, rows, x, k, pivot):
    column = view(a, k + 1 + k * ld, rows - k - 1)
    source = view(x, k + 1, rows - k - 1)
    inverse = source.dtype.type(1) / pivot
    for i in range(rows - k - 1):
        column[i] = source[i] * inverse
    a[k + k * ld] = 1.0


@njit(cache=True, nogil=True)
def _write_two(a, ld, rows, conj, x, y, k, d):
    """Columns k, k+1 of L from columns x, y of L D; scaled by the subdiagonal entry so that nothing overflows."""
    one = x.dtype.type(1)
    off = x[k + 1]
    above = conjugate_if(conj, off)
    p = x[k] / above
    q = y[k + 1] / off
    scale = one / ((p * q - one) * above)
    scale_second = one / ((p * q - one) * off)
    first = view(a, k + 2 + k * ld, rows - k - 2)
    second = view(a, k + 2 + (k + 1) * ld, rows - k - 2)
    u = view(x, k + 2, rows - k - 2)
    v = view(y, k + 2, rows - k - 2)
    for i in range(rows - k - 2):
        first[i] = (q * u[i] - v[i]) * scale
        second[i] = (p * v[i] - u[i]) * scale_second
    a[k + k * ld] = 1.0
    a[k + 1 + k * ld] = 0.0
    a[k + 1 + (k + 1) * ld] = 1.0
    d[2 * k] = x[k]
    d[2 * k + 1] = off
    d[2 * k + 2] = y[k + 1]
    d[2 * k + 3] = 0.0


@njit(cache=True, nogil=True)
def _finish(x, begin, rows):
    """Turn a column of L D of a Hermitian matrix into one of W."""
    for i in range(begin, rows):
        x[i] = conjugate_if(True, x[i])


@njit(cache=True, nogil=True)
def ldlt_panel(rule, a, ld, rows, full, candidates, begin, force, w, ldw, ind, d, kind, stats):
    """Eliminate up to PANEL columns from column ``begin`` on.

    Parameters
    ----------
    rule : LdltRule
    a : float[ld * full]
        The front; read and written.
    rows, full : int
        Rows of the front, and of the part in which partners are sought: all columns begin..full are up to date.
    candidates : int
        Columns begin..candidates are looked at; the rest was rejected in this pass.
    force : bool
        Take whatever is left: zero pivots below ``rule.zero``, perturbed ones below ``rule.epsilon``.
    w : float[ldw * (PANEL + 2)]
        Written: L D of the panel, its conjugate for a Hermitian matrix.
    ind, d, kind : int32[rows], float[2 * full], int8[full]
        Row indices (permuted along), D and the kind of each pivot; written.
    stats : int64[8]
        Added to: 1x1, 2x2, perturbed, zero, positive, negative, doubtful.

    Returns
    -------
    (next, candidates) : first column not eliminated, and the new end of the candidates.
    """
    conj = rule.hermitian == 1
    floor = rule.epsilon if rule.perturb == 1 else 0.0
    k = begin
    while k < candidates and k - begin < PANEL:
        x = view(w, (k - begin) * ldw, rows)
        y = view(w, (k - begin + 1) * ldw, rows)
        _current(a, ld, rows, conj, w, ldw, begin, k, k, x)
        size = _largest(x, k + 1, full)
        below = max(size, _largest(x, full, rows))
        akk = magnitude(x[k])
        choice, place = ONE, k
        largest = max(akk, below)
        empty = largest <= rule.zero
        if empty and (floor == 0.0 or (rule.sign.size == 0 and rule.search != NO_SEARCH)):
            choice = ZERO
        elif empty or rule.search == NO_SEARCH:
            choice = NONE
        elif not (akk >= ALPHA * size and akk >= rule.threshold * below):
            if rule.search == DIAGONAL_ONLY:
                choice = ONE if akk > 0.0 and akk >= rule.threshold * below else NONE
            elif size > 0.0:
                r = _place_of(x, k + 1, full, size)
                _current(a, ld, rows, conj, w, ldw, begin, k, r, y)
                choice, place = _choose(rule, x, y, rows, full, k, r, size, below)
            else:
                choice = NONE  # only rows below the fully summed ones are large
        if choice == NONE and (force or empty or rule.search == NO_SEARCH):
            choice = ONE
            sign = rule.sign[ind[k]] if rule.sign.size else 0
            size = akk if sign == 0 or rule.search != NO_SEARCH else sign * real_part(x[k])
            if size <= floor:
                negative = real_part(x[k]) < 0.0 if sign == 0 else sign < 0
                x[k] = -floor if negative else floor
                stats[2] += 1
                if floor == 0.0:
                    choice = ZERO
        if choice in (ONE, TWO) and largest <= rule.doubt:
            stats[6] += 1
        if choice == NONE:
            candidates -= 1
            exchange(a, ld, rows, conj, w, ldw, begin, ind, k, candidates)
        elif choice == ZERO:
            for i in range(k, rows):
                x[i] = 0.0
                a[i + k * ld] = 0.0
            a[k + k * ld] = 1.0
            d[2 * k] = 0.0
            d[2 * k + 1] = 0.0
            kind[k] = 0
            stats[3] += 1
            k += 1
        elif choice == ONE:
            if place != k:
                exchange(a, ld, rows, conj, w, ldw, begin, ind, k, place)
                y[k], y[place] = y[place], y[k]
                for i in range(k, rows):
                    x[i] = y[i]
            if conj:
                x[k] = real_part(x[k])
            _write_one(a, ld, rows, x, k, x[k])
            d[2 * k] = x[k]
            d[2 * k + 1] = 0.0
            kind[k] = 1
            stats[0] += 1
            stats[4 if real_part(x[k]) > 0.0 else 5] += 1
            if conj:
                _finish(x, k, rows)
            k += 1
        else:
            exchange(
                a, ld, rows, conj, w, ldw, begin, ind, k + 1, place
            )  # x is a finished column of W by now: swapped with it
            y[k + 1], y[place] = y[place], y[k + 1]
            if conj:
                x[k], y[k + 1] = real_part(x[k]), real_part(y[k + 1])
            _write_two(a, ld, rows, conj, x, y, k, d)
            kind[k] = 2
            kind[k + 1] = 3
            stats[1] += 1
            if real_part((x[k] / x[k + 1]) * (y[k + 1] / conjugate_if(conj, x[k + 1]))) < 1.0:
                stats[4] += 1
                stats[5] += 1
            else:
                stats[4 if real_part(x[k]) > 0.0 else 5] += 2
            if conj:
                _finish(x, k, rows)
                _finish(y, k, rows)
            k += 2
    return k, candidates


@njit(cache=True, nogil=True)
def scale_by_d(out, ldo, a, ld, row, rows, begin, end, conj, d, kind):
    """``out[:rows, :end-begin] = (L D)[row:row+rows, begin:end]``, its conjugate where ``conj``.

    A 2x2 pivot may straddle either end.
    """
    for k in range(begin, end):
        target = view(out, (k - begin) * ldo, rows)
        source = view(a, row + k * ld, rows)
        diagonal = d[2 * k]
        if kind[k] < 2:
            for i in range(rows):
                target[i] = conjugate_if(conj, source[i] * diagonal)
        else:
            other = k + 1 if kind[k] == 2 else k - 1
            off = conjugate_if(conj and kind[k] == 3, d[2 * min(k, other) + 1])
            partner = view(a, row + other * ld, rows)
            for i in range(rows):
                target[i] = conjugate_if(conj, source[i] * diagonal + partner[i] * off)
