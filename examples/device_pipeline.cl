// Makes each value the mean of those around that are like it: in OpenCL C and in CUDA C++.
#ifdef __OPENCL_VERSION__
#define COLUMN get_global_id(0)
#define ROW get_global_id(1)
#define WIDTH (int)get_global_size(0)
#else
#define __kernel extern "C" __global__
#define __global
#define COLUMN (blockIdx.x * blockDim.x + threadIdx.x)
#define ROW blockIdx.y
#define WIDTH (int)(gridDim.x * blockDim.x)
#endif

__kernel void smooth(__global const unsigned char *noisy, __global unsigned char *clean, int reach, int like) {
    int column = COLUMN, row = ROW, pitch = WIDTH + 6 * reach;  // three bytes a pixel; around all is a margin
    __global const unsigned char *window = noisy + row * pitch + column;
    int here = window[reach * pitch + 3 * reach], weights = 0, total = 0;
    for (int i = 0; i <= 2 * reach; ++i)
        for (int j = 0; j <= 2 * reach; ++j) {
            int other = window[i * pitch + 3 * j];
            int weight = max(0, like * like - (other - here) * (other - here));
            weights += weight;
            total += weight * other;
        }
    clean[row * WIDTH + column] = (total + weights / 2) / weights;
}
