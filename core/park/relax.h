// What a thread does between two looks at a word that another one will write.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ostinato {

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace ostinato
