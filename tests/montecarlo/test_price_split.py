"""The same bits for any number of threads, any split of the work, any order of its parts."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import InvalidValueError
from warpfront.montecarlo import AsianArithmetic, European, merge, price, simulate
from warpfront.montecarlo._run import CHUNK
from warpfront.montecarlo._tree import SumTree

ATM = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
OPTIONS = [European(**ATM), AsianArithmetic(**ATM, n_steps=3)]
N = 23 * CHUNK + 1234
METHODS = [{}, {"antithetic": True, "control_variate": True, "greeks": True}]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 24, 40])
def test_any_split_has_the_bits_of_the_whole(parts, method):
    whole = price(OPTIONS, N, seed=5, **method)
    pieces = [simulate(OPTIONS, N, k, parts, seed=5, **method) for k in range(parts)]
    pieces = pickle.loads(pickle.dumps(pieces))
    order = np.random.default_rng(parts).permutation(parts)
    assert merge([pieces[k] for k in order]).estimates == whole.estimates


def test_sobol_splits_too():
    n = 16 * 4 * CHUNK
    whole = price(OPTIONS, n, sobol=True, replicates=16)
    pieces = [simulate(OPTIONS, n, k, 3, sobol=True, replicates=16) for k in range(3)]
    assert merge(pieces).estimates == whole.estimates


@pytest.mark.parametrize("threads", ["1", "2", "3", "7"])
def test_any_number_of_threads(monkeypatch, threads):
    expected = price(OPTIONS, N, seed=6).estimates
    monkeypatch.setenv("WARPFRONT_THREADS", threads)
    assert price(OPTIONS, N, seed=6).estimates == expected


def test_an_option_alone_and_in_a_batch():
    batch = price(OPTIONS * 20, N, seed=2)
    for k in (0, 1, 38, 39):
        assert batch[k] == price(OPTIONS[k % 2], N, seed=2)[0]


def test_streams_are_common_or_apart():
    common = price([OPTIONS[0]] * 2, 50_000)
    apart = price([OPTIONS[0]] * 2, 50_000, streams="independent")
    assert common[0] == common[1] == apart[0]
    assert apart[0].price != apart[1].price
    assert price(OPTIONS[0], 50_000, seed=1)[0].price != common[0].price


def test_more_paths_begin_with_the_same_ones():
    """Samples do not depend on how many there are."""
    a, b = price(OPTIONS[0], 1000)[0], price(OPTIONS[0], 1001)[0]
    assert 0.0 <= 1001 * b.price - 1000 * a.price < 1e4


def test_parts_that_do_not_fit():
    pieces = [simulate(OPTIONS, N, k, 3) for k in range(3)]
    with pytest.raises(InvalidValueError, match="chunks 8 to 15 of the run are missing"):
        merge([pieces[0], pieces[2]])
    with pytest.raises(InvalidValueError, match="chunks 16 to 23 of the run are missing"):
        merge(pieces[:2])
    with pytest.raises(InvalidValueError, match="given twice"):
        merge([*pieces, pieces[1]])
    for other in (
        simulate(OPTIONS, N, 2, 3, seed=1),
        simulate(OPTIONS, N + 1, 2, 3),
        simulate(OPTIONS[:1], N, 2, 3),
    ):
        with pytest.raises(InvalidValueError, match="different runs"):
            merge([*pieces[:2], other])
    with pytest.raises(InvalidValueError, match="PartialSums"):
        merge([pieces[0], 3])
    with pytest.raises(InvalidValueError, match="part must be from 0 to 2"):
        simulate(OPTIONS, N, 3, 3)
    with pytest.raises(InvalidValueError, match="parts must be at least 1"):
        simulate(OPTIONS, N, 0, 0)


def plain_tree(leaves):
    """The sum over a complete binary tree, leaves missing on the right."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return plain_tree(leaves[:half]) + plain_tree(leaves[half:])


@given(count=st.integers(1, 200), seed=st.integers(0, 1000))
def test_tree_of_any_blocks_in_any_order(count, seed):
    rng = np.random.default_rng(seed)
    leaves = rng.standard_normal((count, 2, 3)) * 10.0 ** rng.integers(-8, 8, (count, 1, 1))
    cuts = [
        0,
        *sorted(rng.choice(np.arange(1, count), min(count - 1, int(rng.integers(0, 9))), replace=False)),
        count,
    ]
    tree = SumTree()
    for k in rng.permutation(len(cuts) - 1):
        tree.add(0, int(cuts[k]), leaves[cuts[k] : cuts[k + 1]])
    assert len(tree.nodes) == count.bit_count()
    assert np.array_equal(tree.total(count), plain_tree(leaves))
    for wrong in (count - 1, count + 1):
        with pytest.raises(ValueError, match="missing"):
            tree.total(wrong)
