"""The image chain on the CPU: gray, blur, Sobel and threshold of a strip of rows in one pass over it.

A strip is walked row by row. Each gray row goes through the horizontal pass into a ring of ``2 radius + 1``
uint16 rows, their weighted sum is one blurred row, three blurred rows give one row of the result: whatever
lies between pixels and result fits the second-level cache, and no intermediate image exists.

Rows and columns beyond the image are *virtual*: their gray values come from where the border maps them. For
reflect, reflect101 and wrap the blur of the extended image is the extension of the blurred image, so Sobel
finds its own border right there. For clamp and zero it is not: there Sobel's outer row and column are set
from the blurred image itself.

Sums are exact in the type they are kept in: a horizontal sum is at most 255 * 256 (uint16), a vertical one 255 * 65536
(uint32), a derivative at most 1020 (int16). Every index is unsigned, so that no access is tested for a negative one.

``geometry`` is int64: 0 height, 1 width, 2 step, 3 pitch, 4-6 offsets of red, green, blue, 7 and 8 offset and pitch
of the output, 9 radius, 10 border (`CLAMP` ...), 11 threshold (-1: none), 12 norm (1, 2), 13 whether gray.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

CLAMP, REFLECT, REFLECT101, WRAP, ZERO = 0, 1, 2, 3, 4
U1, U2, U3, U4 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
RED, GREEN, BLUE, HALF15 = np.uint32(9798), np.uint32(19235), np.uint32(3735), np.uint32(16384)
HALF16, SHIFT15, SHIFT16 = np.uint32(32768), np.uint32(15), np.uint32(16)


@njit(cache=True, nogil=True)
def border_index(i, n, border):
    """Return the pixel of 0 .. n - 1 that stands for position ``i``; -1 for none (`ZERO`)."""
    if 0 <= i < n:
        return i
    if border == CLAMP:
        return np.int64(0) if i < 0 else n - 1
    if border == WRAP:
        return i % n
    if border == REFLECT:
        k = i % (2 * n)
        return k if k < n else 2 * n - 1 - k
    if border == REFLECT101:
        if n == 1:
            return np.int64(0)
        k = i % (2 * n - 2)
        return k if k < n else 2 * n - 2 - k
    return np.int64(-1)


@njit(cache=True, nogil=True)
def split3(src, planes, n):
    """Packed pixels of 3 bytes -> three rows of single bytes."""
    a, b, c = planes[0], planes[1], planes[2]
    for i in range(n):
        x = np.uint64(i)
        k = U3 * x
        a[x] = src[k]
        b[x] = src[k + U1]
        c[x] = src[k + U2]


@njit(cache=True, nogil=True)
def split4(src, planes, n):
    """Packed pixels of 4 bytes -> three rows of single bytes; the fourth byte is not read."""
    a, b, c = planes[0], planes[1], planes[2]
    for i in range(n):
        x = np.uint64(i)
        k = U4 * x
        a[x] = src[k]
        b[x] = src[k + U1]
        c[x] = src[k + U2]


@njit(cache=True, nogil=True)
def gray_planar(r, g, b, dst, n):
    for i in range(n):
        x = np.uint64(i)
        total = np.uint32(r[x]) * RED + np.uint32(g[x]) * GREEN + np.uint32(b[x]) * BLUE
        dst[x] = np.uint8((total + HALF15) >> SHIFT15)


@njit(cache=True, nogil=True)
def gray_span(flat, geometry, y, first, n, planes, dst):
    """Gray values of ``n`` pixels of row ``y`` from column ``first`` on, all inside the image."""
    step = geometry[2]
    at = y * geometry[3] + first * step
    r, g, b = geometry[4] + at, geometry[5] + at, geometry[6] + at
    if geometry[13]:
        source = flat[r : r + n]
        for i in range(n):
            dst[np.uint64(i)] = source[np.uint64(i)]
    elif step == 1:
        gray_planar(flat[r : r + n], flat[g : g + n], flat[b : b + n], dst, n)
    else:
        low = min(r, b)
        source = flat[low : low + (n - 1) * step + 3]
        if step == 3:
            split3(source, planes, n)
        else:
            split4(source, planes, n)
        red, blue = (planes[0], planes[2]) if r < b else (planes[2], planes[0])
        gray_planar(red, planes[1], blue, dst, n)


@njit(cache=True, nogil=True)
def gray_virtual(flat, geometry, v, first, n, planes, dst):
    """Gray values of ``n`` virtual pixels of virtual row ``v`` from virtual column ``first`` on."""
    width, border = geometry[1], geometry[10]
    y = border_index(v, geometry[0], border)
    if y < 0:
        dst[:n] = 0
        return
    low, high = min(max(first, 0), first + n), max(min(first + n, width), first)
    if low < high:
        gray_span(flat, geometry, y, low, high - low, planes, dst[low - first :])
    outside = max(0, low - first)
    for i in range(outside):
        gray_outside(flat, geometry, y, first + i, planes, dst[i:])
    for i in range(max(outside, high - first), n):
        gray_outside(flat, geometry, y, first + i, planes, dst[i:])


@njit(cache=True, nogil=True)
def gray_outside(flat, geometry, y, x, planes, dst):
    """Gray value of the pixel that stands for column ``x`` of row ``y``."""
    k = border_index(x, geometry[1], geometry[10])
    if k < 0:
        dst[0] = 0
    else:
        gray_span(flat, geometry, y, k, 1, planes, dst)


@njit(cache=True, nogil=True)
def horizontal(src, dst, n, w, radius):
    """Weighted sums of ``2 radius + 1`` neighbours, from the leftmost on: uint8 -> uint16, exact."""
    # Slices and not offsets: then LLVM sees that loads and stores do not meet, and uses vectors.
    left, middle, right = src[:n], src[radius : radius + n], src[2 * radius : 2 * radius + n]
    outer, weight = w[0], w[radius]
    for i in range(n):
        x = np.uint64(i)
        pair = np.uint32(left[x]) + np.uint32(right[x])
        dst[x] = np.uint16(weight * np.uint32(middle[x]) + outer * pair)
    for k in range(1, radius):
        left, right, weight = src[k : k + n], src[2 * radius - k : 2 * radius - k + n], w[k]
        for i in range(n):
            x = np.uint64(i)
            dst[x] = np.uint16(np.uint32(dst[x]) + weight * (np.uint32(left[x]) + np.uint32(right[x])))


@njit(cache=True, nogil=True)
def vertical(ring, v, sums, dst, n, w, radius):
    """Weighted sum of the ring's rows, whose newest is virtual row ``v``: uint16 -> uint8, rounded once.

    The centre and all pairs of rows but the innermost gather in ``sums``; the innermost pair and the rounding are last.
    """
    taps, last = 2 * radius + 1, radius - 1
    row, weight = ring[(v - radius) % taps], w[radius]
    if radius == 1:
        for i in range(n):
            x = np.uint64(i)
            sums[x] = weight * np.uint32(row[x]) + HALF16
    for k in range(last):
        above, below, outer = ring[(v - 2 * radius + k) % taps], ring[(v - k) % taps], w[k]
        if k == 0:
            for i in range(n):
                x = np.uint64(i)
                pair = np.uint32(above[x]) + np.uint32(below[x])
                sums[x] = weight * np.uint32(row[x]) + HALF16 + outer * pair
        else:
            for i in range(n):
                x = np.uint64(i)
                sums[x] += outer * (np.uint32(above[x]) + np.uint32(below[x]))
    above, below, inner = ring[(v - radius - 1) % taps], ring[(v - last) % taps], w[last]
    for i in range(n):
        x = np.uint64(i)
        dst[x] = np.uint8((sums[x] + inner * (np.uint32(above[x]) + np.uint32(below[x]))) >> SHIFT16)


@njit(cache=True, nogil=True)
def across(p, c, q, smooth, change, n):
    """What Sobel needs of three rows, column by column: ``p + 2 c + q`` and ``q - p``."""
    for i in range(n):
        x = np.uint64(i)
        smooth[x] = np.int16(np.int32(p[x]) + np.int32(2) * np.int32(c[x]) + np.int32(q[x]))
        change[x] = np.int16(np.int32(q[x]) - np.int32(p[x]))


@njit(cache=True, nogil=True)
def binary_l1(smooth, change, dst, n, level):
    left, right = smooth[:n], smooth[2 : n + 2]
    d0, d1, d2 = change[:n], change[1 : n + 1], change[2 : n + 2]
    for i in range(n):
        x = np.uint64(i)
        gx = np.int16(right[x] - left[x])
        gy = np.int16(d0[x] + np.int16(2) * d1[x] + d2[x])
        size = np.int16(max(gx, np.int16(-gx)) + max(gy, np.int16(-gy)))
        dst[x] = np.uint8(255) if size > level else np.uint8(0)


@njit(cache=True, nogil=True)
def saturated(smooth, change, dst, n, norm):
    """Gradient magnitude, at most 255."""
    for i in range(n):
        x = np.uint64(i)
        gx = np.int32(smooth[x + U2]) - np.int32(smooth[x])
        gy = np.int32(change[x]) + np.int32(2) * np.int32(change[x + U1]) + np.int32(change[x + U2])
        if norm == 1:
            dst[x] = np.uint8(min(abs(gx) + abs(gy), np.int32(255)))
        else:
            # The square root of a whole number is never half-way between two, and float32 holds the sum.
            length = np.sqrt(np.float32(gx * gx + gy * gy)) + np.float32(0.5)
            dst[x] = np.uint8(np.int32(min(length, np.float32(255))))


@njit(cache=True, nogil=True)
def sobel_row(smooth, change, dst, n, level, norm):
    """One row of the result, from what `across` left of ``n + 2`` columns."""
    if norm == 1 and level >= 0 and level < 255:
        binary_l1(smooth, change, dst, n, np.int16(level))
        return
    saturated(smooth, change, dst, n, norm)
    if level >= 0:
        for i in range(n):
            x = np.uint64(i)
            dst[x] = np.uint8(255) if dst[x] > level else np.uint8(0)


@njit(cache=True, nogil=True)
def own_border(row, b, geometry, x0, x1):
    """Sobel's border for clamp and zero: what lies beyond the blurred image comes from the blurred image."""
    height, width, border = geometry[0], geometry[1], geometry[10]
    n = x1 - x0
    if border == CLAMP:
        if x0 == 0:
            row[0] = row[1]
        if x1 == width:
            row[n + 1] = row[n]
    elif border == ZERO:
        if b < 0 or b >= height:
            row[: n + 2] = 0
        if x0 == 0:
            row[0] = 0
        if x1 == width:
            row[n + 1] = 0


@njit(cache=True, nogil=True)
def edges_strip(flat, out, geometry, w, y0, y1, x0, x1):
    """Edges of rows ``y0 .. y1 - 1`` and columns ``x0 .. x1 - 1``.

    ``flat``: uint8, the image's memory from its lowest byte on. ``out``: uint8, the output's, likewise.
    ``w``: uint32, the weights up to the centre, from the outermost on.
    """
    height, radius, level, norm = geometry[0], geometry[9], geometry[11], geometry[12]
    clamp = geometry[10] == CLAMP
    n = x1 - x0
    taps = 2 * radius + 1
    planes = np.empty((3, n + 2 * radius + 2), np.uint8)
    pixels = np.empty(n + 2 * radius + 2, np.uint8)
    ring = np.empty((taps, n + 2), np.uint16)
    sums = np.empty(n + 2, np.uint32)
    blurred = np.empty((3, n + 2), np.uint8)
    smooth, change = np.empty(n + 2, np.int16), np.empty(n + 2, np.int16)
    for v in range(y0 - 1 - radius, y1 + 1 + radius):
        b = v - radius
        if radius == 0:
            gray_virtual(flat, geometry, v, x0 - 1, n + 2, planes, blurred[b % 3])
        else:
            gray_virtual(flat, geometry, v, x0 - 1 - radius, n + 2 + 2 * radius, planes, pixels)
            horizontal(pixels, ring[v % taps], n + 2, w, radius)
            if b < y0 - 1:
                continue
            vertical(ring, v, sums, blurred[b % 3], n + 2, w, radius)
        own_border(blurred[b % 3], b, geometry, x0, x1)
        y = b - 1
        if y < y0:
            continue
        above = max(y - 1, 0) if clamp else y - 1
        below = min(b, height - 1) if clamp else b
        across(blurred[above % 3], blurred[y % 3], blurred[below % 3], smooth, change, n + 2)
        at = geometry[7] + y * geometry[8] + x0
        sobel_row(smooth, change, out[at : at + n], n, level, norm)


@njit(cache=True, nogil=True)
def gray_strip(flat, out, geometry, y0, y1):
    """Gray values of rows ``y0 .. y1 - 1``."""
    n = geometry[1]
    planes = np.empty((3, n), np.uint8)
    for y in range(y0, y1):
        at = geometry[7] + y * geometry[8]
        gray_span(flat, geometry, y, 0, n, planes, out[at : at + n])


@njit(cache=True, nogil=True)
def blur_strip(flat, out, geometry, w, y0, y1, x0, x1):
    """Gaussian blur of the gray values of rows ``y0 .. y1 - 1`` and columns ``x0 .. x1 - 1``."""
    radius = geometry[9]
    n = x1 - x0
    taps = 2 * radius + 1
    planes = np.empty((3, n + 2 * radius), np.uint8)
    pixels = np.empty(n + 2 * radius, np.uint8)
    ring = np.empty((taps, n), np.uint16)
    sums = np.empty(n, np.uint32)
    for v in range(y0 - radius, y1 + radius):
        y = v - radius
        gray_virtual(flat, geometry, v, x0 - radius, n + 2 * radius, planes, pixels)
        at = geometry[7] + y * geometry[8] + x0
        if radius == 0:
            out[at : at + n] = pixels
            continue
        horizontal(pixels, ring[v % taps], n, w, radius)
        if y >= y0:
            vertical(ring, v, sums, out[at : at + n], n, w, radius)


@njit(cache=True, nogil=True)
def sobel_strip(flat, gx, gy, geometry, y0, y1):
    """Sobel derivatives of the gray values of rows ``y0 .. y1 - 1``; ``gx``, ``gy``: int16[height, width]."""
    n = geometry[1]
    planes = np.empty((3, n + 2), np.uint8)
    rows = np.empty((3, n + 2), np.uint8)
    smooth, change = np.empty(n + 2, np.int16), np.empty(n + 2, np.int16)
    for v in range(y0 - 1, y1 + 1):
        gray_virtual(flat, geometry, v, -1, n + 2, planes, rows[v % 3])
        y = v - 1
        if y < y0:
            continue
        across(rows[(y - 1) % 3], rows[y % 3], rows[v % 3], smooth, change, n + 2)
        x_out, y_out = gx[y], gy[y]
        for i in range(n):
            x = np.uint64(i)
            x_out[x] = np.int16(smooth[x + U2] - smooth[x])
            y_out[x] = np.int16(change[x] + np.int16(2) * change[x + U1] + change[x + U2])
