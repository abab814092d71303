// A profiler as code generators for GPUs have them: one program, many kernels for the same problem, C = A * B.
//
//     c++ -O3 -march=native -o gemm_profiler gemm_profiler.cpp && ./gemm_profiler 48 3072 768
//
// For each kernel that can do the problem, and does it right, it prints how many milliseconds ITERATIONS runs took, and
// how many bytes the kernel needs besides the matrices.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int ITERATIONS = 10;

struct Problem {
    int m, n, k;
    std::vector<float> a, b, c, packed;
};

template <int ROWS, int LANES, bool PACKS>
void gemm(Problem& p) {
    typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
    for (int column = 0; column < p.n; column += LANES) {
        const float* strip = p.b.data() + column;
        int stride = p.n;
        if constexpr (PACKS) {
            for (int k = 0; k < p.k; ++k) {
                std::memcpy(p.packed.data() + k * LANES, strip + k * stride, sizeof(Lanes));
            }
            strip = p.packed.data();
            stride = LANES;
        }
        for (int row = 0; row < p.m; row += ROWS) {
            Lanes sums[ROWS] = {};
            for (int k = 0; k < p.k; ++k) {
                const Lanes factors = *reinterpret_cast<const Lanes*>(strip + k * stride);
#pragma GCC unroll 16
                for (int r = 0; r < ROWS; ++r) {
                    sums[r] += p.a[(row + r) * p.k + k] * factors;
                }
            }
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; ++r) {
                *reinterpret_cast<Lanes*>(p.c.data() + (row + r) * p.n + column) = sums[r];
            }
        }
    }
}

struct Kernel {
    const char* name;
    int rows, lanes;
    bool packs;
    void (*run)(Problem&);
};

#define KERNEL(rows, lanes)                                                            \
    {"gemm_" #rows "x" #lanes, rows, lanes, false, gemm<rows, lanes, false>}, {        \
        "gemm_" #rows "x" #lanes "_packed", rows, lanes, true, gemm<rows, lanes, true> \
    }

const Kernel KERNELS[] = {KERNEL(4, 8), KERNEL(8, 8), KERNEL(4, 16), KERNEL(6, 16), KERNEL(8, 16), KERNEL(4, 32)};

bool is_right(const Problem& p) {
    for (int i = 0; i < p.m; i += 5) {
        for (int j = 0; j < p.n; j += 7) {
            double sum = 0;
            for (int k = 0; k < p.k; ++k) {
                sum += double(p.a[i * p.k + k]) * p.b[k * p.n + j];
            }
            if (!(std::abs(sum - p.c[i * p.n + j]) <= 1e-4 * p.k)) {
                return false;
            }
        }
    }
    return true;
}

int main(int argc, char** argv) {
    Problem p{};
    if (argc != 4 || (p.m = std::atoi(argv[1])) < 1 || (p.n = std::atoi(argv[2])) < 1 ||
        (p.k = std::atoi(argv[3])) < 1) {
        std::fprintf(stderr, "usage: gemm_profiler M N K\n");
        return 2;
    }
    for (auto [matrix, size] :
         {std::pair{&p.a, p.m * p.k}, {&p.b, p.k * p.n}, {&p.c, p.m * p.n}, {&p.packed, p.k * 32}}) {
        for (int i = 0; i < size; ++i) {
            matrix->push_back(float(i * 2654435761u >> 8) / (1 << 24) - 0.5f);
        }
    }
    for (const Kernel& kernel : KERNELS) {
        if (p.m % kernel.rows != 0 || p.n % kernel.lanes != 0) {
            std::fprintf(stderr, "%s cannot do %d x %d\n", kernel.name, p.m, p.n);
            continue;
        }
        p.c.assign(p.c.size(), NAN);
        kernel.run(p);  // warms up, and is what is checked
        if (!is_right(p)) {
            std::fprintf(stderr, "%s computes something else\n", kernel.name);
            continue;
        }
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < ITERATIONS; ++i) {
            kernel.run(p);
        }
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        std::printf("OP:%s,TIME:%g,WS:%zu\n", kernel.name, took.count(),
                    kernel.packs ? sizeof(float) * kernel.lanes * p.k : 0);
    }
    return 0;
}
