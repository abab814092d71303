// The applications in C++. A file that includes this defines `each` and `each_uneven`: loops run by two threads.
// The arithmetic is that of benchmarks/applications: see there for what is computed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" {

void heat(double* a, double* b, int size, int steps, double rate) {
    const int width = size + 2;
    for (int step = 0; step < steps; ++step) {
        each(size, [=](int row) {
            const double* __restrict old = a + (row + 1) * static_cast<int64_t>(width);
            double* __restrict next = b + (row + 1) * static_cast<int64_t>(width);
            for (int j = 1; j <= size; ++j) {
                const double around = old[j - width] + old[j + width] + old[j - 1] + old[j + 1];
                next[j] = old[j] + rate * (around - 4 * old[j]);
            }
        });
        std::swap(a, b);
    }
}

// x, r, q: size x size; p: with a frame of zeros.
void conjugate_gradients(double* x, double* r, double* p, double* q, int size, int iterations) {
    const int width = size + 2;
    std::vector<double> partial(static_cast<size_t>(size));
    double* sums = partial.data();
    const auto total = [&] {
        double sum = 0;
        for (const double each_sum : partial)
            sum += each_sum;
        return sum;
    };
    each(size, [=](int row) {
        const double* here = r + row * static_cast<int64_t>(size);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < size; ++j)
            sum += here[j] * here[j];
        sums[row] = sum;
    });
    double rho = total();
    for (int iteration = 0; iteration < iterations; ++iteration) {
        each(size, [=](int row) {
            const double* __restrict old = p + (row + 1) * static_cast<int64_t>(width) + 1;
            double* __restrict out = q + row * static_cast<int64_t>(size);
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j < size; ++j) {
                out[j] = 4 * old[j] - old[j - width] - old[j + width] - old[j - 1] - old[j + 1];
                sum += old[j] * out[j];
            }
            sums[row] = sum;
        });
        const double alpha = rho / total();
        each(size, [=](int row) {
            const double* __restrict direction = p + (row + 1) * static_cast<int64_t>(width) + 1;
            const double* __restrict image = q + row * static_cast<int64_t>(size);
            double* __restrict solution = x + row * static_cast<int64_t>(size);
            double* __restrict residual = r + row * static_cast<int64_t>(size);
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j < size; ++j) {
                solution[j] += alpha * direction[j];
                residual[j] -= alpha * image[j];
                sum += residual[j] * residual[j];
            }
            sums[row] = sum;
        });
        const double next = total(), beta = next / rho;
        rho = next;
        each(size, [=](int row) {
            double* __restrict direction = p + (row + 1) * static_cast<int64_t>(width) + 1;
            const double* __restrict residual = r + row * static_cast<int64_t>(size);
            for (int j = 0; j < size; ++j)
                direction[j] = residual[j] + beta * direction[j];
        });
    }
}

// source: (height + 4) x (width + 4); across: (height + 4) x width; soft, crisp, result: height x width.
void filter_images(const float* source, float* across, float* soft, float* crisp, uint8_t* result, int count,
                   int height, int width) {
    const int64_t wide = width + 4, padded = (height + 4) * wide, mid = (height + 4) * static_cast<int64_t>(width),
                  plane = height * static_cast<int64_t>(width);
    for (int k = 0; k < count; ++k, source += padded, across += mid, soft += plane, crisp += plane, result += plane) {
        each(height + 4, [=](int row) {
            const float* __restrict in = source + row * wide;
            float* __restrict out = across + row * static_cast<int64_t>(width);
            for (int j = 0; j < width; ++j)
                out[j] = (in[j] + in[j + 4] + 4.0F * (in[j + 1] + in[j + 3]) + 6.0F * in[j + 2]) * 0.0625F;
        });
        each(height, [=](int row) {
            const float* __restrict in = across + row * static_cast<int64_t>(width);
            float* __restrict out = soft + row * static_cast<int64_t>(width);
            for (int j = 0; j < width; ++j) {
                out[j] = (in[j] + in[j + 4 * width] + 4.0F * (in[j + width] + in[j + 3 * width]) +
                          6.0F * in[j + 2 * width]) *
                         0.0625F;
            }
        });
        each(height, [=](int row) {
            const float* __restrict in = source + (row + 2) * wide + 2;
            const float* __restrict smooth = soft + row * static_cast<int64_t>(width);
            float* __restrict out = crisp + row * static_cast<int64_t>(width);
            for (int j = 0; j < width; ++j)
                out[j] = in[j] + 0.75F * (in[j] - smooth[j]);
        });
        each(height, [=](int row) {
            const float* __restrict in = crisp + row * static_cast<int64_t>(width);
            uint8_t* __restrict out = result + row * static_cast<int64_t>(width);
            for (int j = 0; j < width; ++j)
                out[j] = static_cast<uint8_t>(255.0F * std::sqrt(std::min(std::max(in[j], 0.0F), 1.0F)));
        });
    }
}

// Three rows each of x, v and force; a block of particles at a time.
void move_particles(double* x, double* v, double* force, int count, int block, int steps, double softening,
                    double time) {
    for (int step = 0; step < steps; ++step) {
        each(count / block, [=](int at) {
            const int low = at * block, high = low + block;
            double* __restrict fx = force, * __restrict fy = force + count, * __restrict fz = force + 2 * count;
            const double* __restrict px = x, * __restrict py = x + count, * __restrict pz = x + 2 * count;
            for (int i = low; i < high; ++i)
                fx[i] = fy[i] = fz[i] = 0;
            for (int j = 0; j < count; ++j) {
                const double jx = px[j], jy = py[j], jz = pz[j];
#pragma omp simd
                for (int i = low; i < high; ++i) {
                    const double dx = jx - px[i], dy = jy - py[i], dz = jz - pz[i];
                    const double square = dx * dx + dy * dy + dz * dz + softening;
                    const double weight = 1.0 / (square * std::sqrt(square));
                    fx[i] += weight * dx;
                    fy[i] += weight * dy;
                    fz[i] += weight * dz;
                }
            }
        });
        each(count / block, [=](int at) {
            for (int axis = 0; axis < 3; ++axis) {
                const int low = axis * count + at * block;
                for (int i = low; i < low + block; ++i) {
                    v[i] += time * force[i];
                    x[i] += time * v[i];
                }
            }
        });
    }
}

using Gemm = void(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
                  const int*, const double*, const int*, const double*, double*, const int*);
using SingleGemm = void(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                        const int*, const float*, const int*, const float*, float*, const int*);
using Trsm = void(const char*, const char*, const char*, const char*, const int*, const int*, const double*,
                  const double*, const int*, double*, const int*);
using Potrf = void(const char*, const int*, double*, const int*, int*);

// tiles: count x count tiles of size x size, rows first; Fortran sees each one transposed.
void factorise(double* tiles, int count, int size, Potrf* potrf, Trsm* trsm, Gemm* gemm) {
    const auto tile = [=](int i, int j) { return tiles + (static_cast<int64_t>(i) * count + j) * size * size; };
    const double one = 1, minus = -1;
    for (int k = 0; k < count; ++k) {
        int failed = 0;
        potrf("U", &size, tile(k, k), &size, &failed);
        double* diagonal = tile(k, k);
        for (int row = 1; row < size; ++row)
            std::fill_n(tile(k, k) + static_cast<int64_t>(row - 1) * size + row, size - row, 0.0);
        each_uneven(count - k - 1, [&](int i) {
            trsm("L", "U", "T", "N", &size, &size, &one, diagonal, &size, tile(k + 1 + i, k), &size);
        });
        const int rest = count - k - 1;
        each_uneven(rest * (rest + 1) / 2, [&](int number) {
            int i = static_cast<int>((std::sqrt(8.0 * number + 1) - 1) / 2);
            const int j = k + 1 + number - i * (i + 1) / 2;
            i += k + 1;
            gemm("T", "N", &size, &size, &size, &minus, tile(j, k), &size, tile(i, k), &size, &one, tile(i, j), &size);
        });
    }
}

// A layer on one tile of a batch: out = max(in @ weights + bias, 0), rows first.
static void dense(SingleGemm* gemm, const float* in, const float* weights, const float* bias, float* out, int rows,
                  int inputs, int outputs) {
    const float one = 1, zero = 0;
    gemm("N", "N", &outputs, &rows, &inputs, &one, weights, &outputs, in, &inputs, &zero, out, &outputs);
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < outputs; ++j) {
            float& value = out[i * static_cast<int64_t>(outputs) + j];
            value = std::max(value + bias[j], 0.0F);
        }
    }
}

void infer(float** layers, const float** weights, const float** biases, const int* widths, int depth, int batch,
           int tile, SingleGemm* gemm) {
    each(batch / tile, [=](int at) {
        for (int k = 0; k < depth; ++k) {
            const int64_t row = static_cast<int64_t>(at) * tile;
            dense(gemm, layers[k] + row * widths[k], weights[k], biases[k], layers[k + 1] + row * widths[k + 1], tile,
                  widths[k], widths[k + 1]);
        }
    });
}
}
