// The floating-point environment (rounding, flush-to-zero, exception masks) of a run's submitter.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace ostinato {

#if defined(__x86_64__)

struct FloatingPointMode {
    std::uint32_t mxcsr = 0;
    std::uint16_t x87 = 0;

    static FloatingPointMode current() {
        FloatingPointMode mode;
        mode.mxcsr = _mm_getcsr() & ~kFlags;
        asm volatile("fnstcw %0" : "=m"(mode.x87));
        return mode;
    }
    void apply() const {
        _mm_setcsr(mxcsr);
        asm volatile("fldcw %0" : : "m"(x87));
    }
    bool operator==(const FloatingPointMode&) const = default;

private:
    static constexpr std::uint32_t kFlags = 0x3f;  // sticky exception flags are a result, not a mode
};

#else

struct FloatingPointMode {
    int rounding = 0;

    static FloatingPointMode current() { return {std::fegetround()}; }
    void apply() const { std::fesetround(rounding); }
    bool operator==(const FloatingPointMode&) const = default;
};

#endif

}  // namespace ostinato
