// The SIMT runner's runtime, one translation unit so that the checks inline into the callbacks.
#include "callbacks.hpp"
#ifdef SIMT_ASAN
#include "replay.hpp"
#endif
