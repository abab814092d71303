// The kernel of the benchmark of CUDA. cuda_kernels.ptx is what this becomes, for every GPU since Maxwell:
//   nvcc -ptx -arch=compute_75 --fmad=false -o - cuda_kernels.cu |
//       sed 's/^.version .*/.version 6.3/; s/^.target .*/.target sm_50/; /^\/\//d' > cuda_kernels.ptx
extern "C" __global__ void point(float *out, const float *a, const float *b, const float *c, long long count,
                                 long long rounds) {
    long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at >= count)
        return;
    float value = 0.25f * a[at] + 0.5f * b[at] + 0.25f * c[at];
    for (long long round = 0; round < rounds; ++round)
        value = __fmaf_rn(value, 0.999f, 0.001f);
    out[at] = value;
}
