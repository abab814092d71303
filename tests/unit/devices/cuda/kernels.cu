// The kernels of the tests and of the benchmark. kernels.ptx is what this becomes, for every GPU since Maxwell and every
// driver that we take:
//   nvcc -ptx -arch=compute_75 --fmad=false -o - kernels.cu |
//       sed 's/^.version .*/.version 6.3/; s/^.target .*/.target sm_50/; /^\/\//d' > kernels.ptx
extern "C" __global__ void nothing() {}

extern "C" __global__ void axpb(double *x, double a, double b, long long count) {
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x)
        x[at] = x[at] * a + b;
}

extern "C" __global__ void add(double *sum, const double *a, const double *b, long long count) {
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x)
        sum[at] = a[at] + b[at];
}

// What the tasks of a stencil do: as many multiplications and additions as are asked for.
extern "C" __global__ void smooth(float *x, long long count, long long rounds) {
    long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at < count) {
        float value = x[at];
        for (long long round = 0; round < rounds; ++round)
            value = __fmaf_rn(value, 0.999f, 0.001f);
        x[at] = value;
    }
}

extern "C" __global__ void stall(long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while ((long long)(now - begin) < nanoseconds);
}

// Until the host writes to `flag`, or for ten seconds.
extern "C" __global__ void hold(const volatile int *flag) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (*flag == 0 && now - begin < 10000000000ull);
}

extern "C" __global__ void fault() { *(volatile int *)8 = 1; }
