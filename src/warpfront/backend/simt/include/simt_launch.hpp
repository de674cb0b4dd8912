// The table of a build's instantiations: how each is called from packed arguments, and what the arguments are.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

namespace simt {
struct Argument {  // kind: f, i, u number; p pointer; s anything else passed by value
  unsigned size;
  char kind, element_kind, read_only, pad;
  unsigned element_size;
};
struct Entry {
  const char *name;
  void (*invoke)(void **);
  unsigned count;
  const Argument *arguments;
};
template <typename T> constexpr char kind_of() {
  if (std::is_floating_point<T>::value) return 'f';
  if (std::is_integral<T>::value) return std::is_signed<T>::value ? 'i' : 'u';
  return 's';
}
template <typename T> constexpr Argument argument() {
  if constexpr (std::is_pointer<T>::value) {
    using P = std::remove_pointer_t<T>;
    using E = std::remove_cv_t<P>;
    if constexpr (std::is_void<E>::value) return {8, 'p', 's', std::is_const<P>::value, 0, 1};
    else return {8, 'p', kind_of<E>(), std::is_const<P>::value, 0, sizeof(E)};
  } else {
    return {sizeof(T), kind_of<T>(), 0, 0, 0, 0};
  }
}
template <auto F> struct Kernel;
template <typename... A, void (*F)(A...)> struct Kernel<F> {
  static constexpr Argument arguments[sizeof...(A) + 1] = {argument<std::remove_cv_t<A>>()..., {}};
  static constexpr unsigned count = sizeof...(A);
  template <std::size_t... K>
  __attribute__((no_sanitize("thread"), noinline)) static void call(void **p, std::index_sequence<K...>) {
    F(*static_cast<std::remove_cv_t<A> *>(p[K])...);
  }
  __attribute__((no_sanitize("thread"), noinline)) static void invoke(void **p) {
    call(p, std::index_sequence_for<A...>{});
  }
};
template <auto F> constexpr Entry entry(const char *name) {
  return {name, &Kernel<F>::invoke, Kernel<F>::count, Kernel<F>::arguments};
}
}  // namespace simt
