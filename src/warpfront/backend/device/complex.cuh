// Complex numbers, laid out as NumPy and CuPy lay them out: real part first, aligned to the pair.
#pragma once
#include "types.cuh"

namespace wf {

template <typename T>
struct alignas(2 * sizeof(T)) complex {
  T re, im;
};

template <typename T>
WF_DEVICE complex<T> operator+(complex<T> a, complex<T> b) { return {a.re + b.re, a.im + b.im}; }

template <typename T>
WF_DEVICE complex<T> operator-(complex<T> a, complex<T> b) { return {a.re - b.re, a.im - b.im}; }

template <typename T>
WF_DEVICE complex<T> operator*(complex<T> a, complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

template <typename T>
WF_DEVICE complex<T> operator*(T s, complex<T> a) { return {s * a.re, s * a.im}; }

template <typename T>
WF_DEVICE complex<T> conj(complex<T> a) { return {a.re, -a.im}; }

template <typename T>
WF_DEVICE T abs2(complex<T> a) { return a.re * a.re + a.im * a.im; }

template <typename T>
WF_DEVICE T abs_of(T a) { return a < T(0) ? -a : a; }

// Smith's algorithm (Communications of the ACM 5 (1962) 435): no overflow in |b|^2.
template <typename T>
WF_DEVICE complex<T> operator/(complex<T> a, complex<T> b) {
  if (abs_of(b.re) >= abs_of(b.im)) {
    const T r = b.im / b.re, d = b.re + b.im * r;
    return {(a.re + a.im * r) / d, (a.im - a.re * r) / d};
  }
  const T r = b.re / b.im, d = b.re * r + b.im;
  return {(a.re * r + a.im) / d, (a.im * r - a.re) / d};
}

}  // namespace wf
