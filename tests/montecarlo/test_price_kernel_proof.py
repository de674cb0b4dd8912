"""The pricing kernel's two barriers are both needed, and the second build (address, undefined behaviour) is clean."""

import re

import numpy as np
import pytest

from warpfront.backend.simt import AddressSimt, In, Out, Simt
from warpfront.montecarlo import AsianArithmetic, _cuda
from warpfront.montecarlo._run import CHANNELS, CHUNK, Run, Settings

pytestmark = pytest.mark.simt
BARRIER = re.compile(r"^\s*(__syncthreads\(\));", re.MULTILINE)
RUN = Run.of(
    (AsianArithmetic(spot=100, strike=100, rate=0.05, volatility=0.2, maturity=1, n_steps=2),),
    Settings(antithetic=True, control_variate=True, greeks=True),
)
NAME = _cuda.plan(1, (2,), RUN.settings, 1, 2).expression


def arguments(n):
    nothing = np.zeros(1, np.uint32)
    whole = np.array([[2, 0]], np.int32)
    arrays = [Out(np.empty((1, 2, CHANNELS))), In(RUN.coefficients), In(whole), In(nothing), In(nothing)]
    return [*arrays, 7, n, 0, 2, 1, 1, 1]


def test_the_kernel_as_it_is():
    report = Simt.build(_cuda.SOURCE, [NAME]).launch(NAME, 1, 128, arguments(CHUNK + 200))
    assert not report.findings, report.findings


@pytest.mark.parametrize("k", [0, 1])
def test_without_one_of_its_barriers_it_is_reported(k, tmp_path):
    text = _cuda.SOURCE.read_text(encoding="utf-8")
    sites = [match.span(1) for match in BARRIER.finditer(text)]
    assert len(sites) == 2
    first, last = sites[k]
    mutant = tmp_path / "price_paths.cu"
    mutant.write_text(text[:first] + text[last:], encoding="utf-8")
    kernel = Simt.build(mutant, [NAME], include=[_cuda.SOURCE.parent])
    # One block takes both chunks: the shared sums of the first are read while the second's are written.
    report = kernel.launch(NAME, 1, 128, arguments(CHUNK + 200))
    assert any(finding.kind == "race" for finding in report.findings)


def test_addresses_and_integers():
    kernel = AddressSimt(_cuda.SOURCE, [NAME, _cuda.TREE])
    assert not kernel.launch(NAME, 1, 128, arguments(700)).findings
    src, dst = np.random.default_rng(0).random((1, 130, CHANNELS)), np.empty((1, 2, CHANNELS))
    assert not kernel.launch(_cuda.TREE, 1, 128, [Out(dst), In(src), 1, 2, 130, 1]).findings
