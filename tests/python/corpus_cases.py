"""Kernels as people write them, with the libraries that come with CUDA, and what NumPy computes."""

import textwrap

import numpy as np

import kiln

BLOCK = 128
N = 2 * BLOCK
X = np.random.default_rng(0).normal(size=N).astype(np.float32)
K = np.random.default_rng(1).integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32)


class Case:
    """A source, whose kernel `k` has an output and inputs, and what it computes of them."""

    def __init__(self, name, source, wanted, *inputs, near=0.0, device="9.0", prints=""):
        self.name, self.source = name, textwrap.dedent(source)
        self.wanted, self.inputs = np.asarray(wanted), inputs
        self.near, self.device, self.prints = near, device, prints


def of_math(name, kind, dtype, wanted, x, near):
    source = f'extern "C" __global__ void k({kind}* y, const {kind}* x) {{'
    source += f" const int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = {name}(x[i]); }}"
    return Case(f"{name}_{kind}", source, wanted(x.astype(dtype)), x.astype(dtype), near=near)


def words(a, b):
    """Of the kernel bits_and_bytes_of_words."""
    signed = [each - (each >> 31 << 32) for each in (a, b)]
    bytes_of = [[each >> at & 255 for at in (0, 8, 16, 24)] for each in (a, b)]
    packed = lambda parts, bits=8: sum((part & (1 << bits) - 1) << bits * i for i, part in enumerate(parts))
    apart = [abs(p - q) for p, q in zip(*bytes_of)]
    greater = [max(a >> at & 0xFFFF, b >> at & 0xFFFF) for at in (0, 16)]
    all_of_them = (
        a.bit_count() + 32 - b.bit_length() + int(f"{a:032b}"[::-1], 2) % 256
        + (b & -b).bit_length() + (b << 3 | a >> 29)
        + packed([bytes_of[0][0], bytes_of[1][0], bytes_of[0][1], bytes_of[1][1]])
        + sum(apart) + packed(greater, 16) + (a * b >> 32)
        + abs(signed[0] - signed[1]) + 7
        + sum(p * q for p, q in zip(*bytes_of)) + 5
        + (packed(apart) ^ packed([p + q for p, q in zip(*bytes_of)]))
    )
    return np.uint32(all_of_them & 0xFFFFFFFF)


def narrow(value, bits, least):
    """`value` with so many bits behind the leading one, of exponents from `least`."""
    unit = 2.0 ** (max(int(np.floor(np.log2(abs(value)))), least) - bits)
    return np.round(value / unit) * unit


POSITIVE = np.exp(X)
FIBONACCI = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]
HALVES = np.concatenate([X, X]).astype(np.float16)
A16 = (np.arange(256).reshape(16, 16) % 7 - 3).astype(np.float16)
B16 = (np.arange(256).reshape(16, 16) % 5 - 2).astype(np.float16)

CASES = [
    Case(
        "blocks_of_cub",
        """
        #include <cub/block/block_reduce.cuh>
        #include <cub/block/block_scan.cuh>
        extern "C" __global__ void k(int* y, const int* x) {
          using Reduce = cub::BlockReduce<int, 128>;
          using Scan = cub::BlockScan<int, 128>;
          __shared__ union { Reduce::TempStorage r; Scan::TempStorage s; } room;
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          __shared__ int all;
          const int sum = Reduce(room.r).Sum(x[i]);
          if (threadIdx.x == 0) all = sum;
          __syncthreads();
          int before;
          Scan(room.s).ExclusiveSum(x[i], before);
          y[i] = before + 1000 * all;
        }
        """,
        np.concatenate(
            [np.cumsum(b) - b + 1000 * b.sum() for b in (K % 100).astype(np.int32).reshape(2, -1)]
        ).astype(np.int32),
        (K % 100).astype(np.int32),
    ),
    Case(
        "radix_sort_of_cub",
        """
        #include <cub/block/block_radix_sort.cuh>
        extern "C" __global__ void k(unsigned* y, const unsigned* x) {
          using Sort = cub::BlockRadixSort<unsigned, 128, 1>;
          __shared__ Sort::TempStorage room;
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          unsigned keys[1] = {x[i]};
          Sort(room).Sort(keys);
          y[i] = keys[0];
        }
        """,
        np.sort(K.reshape(2, -1)).ravel(),
        K,
    ),
    Case(
        "cooperative_groups",
        """
        #include <cooperative_groups.h>
        #include <cooperative_groups/reduce.h>
        namespace cg = cooperative_groups;
        extern "C" __global__ void k(int* y, const int* x) {
          const auto block = cg::this_thread_block();
          const auto tile = cg::tiled_partition<16>(block);
          const int i = block.group_index().x * block.size() + block.thread_rank();
          const int most = cg::reduce(tile, x[i], cg::greater<int>());
          const auto some = cg::coalesced_threads();
          y[i] = most + tile.shfl_xor(x[i], 3) + some.size();
          block.sync();
        }
        """,
        np.concatenate(
            [t.max() + t[np.arange(16) ^ 3] + 32 for t in (K % 1000).astype(np.int32).reshape(-1, 16)]
        ),
        (K % 1000).astype(np.int32),
        device="7.5",
    ),
    Case(
        "matrices_of_wmma",
        """
        #include <mma.h>
        using namespace nvcuda;
        extern "C" __global__ void k(float* y, const half* a, const half* b) {
          wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
          wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
          wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
          wmma::fill_fragment(sum, 1.0f);
          wmma::load_matrix_sync(fa, a, 16);
          wmma::load_matrix_sync(fb, b, 16);
          wmma::mma_sync(sum, fa, fb, sum);
          for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2;
          if (threadIdx.x < 32 && blockIdx.x == 0)
            wmma::store_matrix_sync(y, sum, 16, wmma::mem_row_major);
        }
        """,
        2 * (A16.astype(np.float32) @ B16.astype(np.float32).T + 1),
        A16,
        B16,
        device="7.5",
    ),
    Case(
        "a_barrier_of_libcudacxx",
        """
        #include <cuda/barrier>
        extern "C" __global__ void k(int* y, const int* x) {
          __shared__ cuda::barrier<cuda::thread_scope_block> all;
          __shared__ int part[128];
          if (threadIdx.x == 0) init(&all, blockDim.x);
          __syncthreads();
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          int sum = 0;
          for (int round = 0; round < 3; ++round) {
            part[threadIdx.x] = x[i] + round;
            all.arrive_and_wait();
            sum += part[127 - threadIdx.x];
            all.arrive_and_wait();
          }
          y[i] = sum;
        }
        """,
        3 * (K % 1000).astype(np.int32).reshape(2, -1)[:, ::-1].ravel() + 3,
        (K % 1000).astype(np.int32),
        device="8.0",
    ),
    Case(
        "a_pipeline_of_copies",
        """
        #include <cooperative_groups.h>
        #include <cuda/pipeline>
        extern "C" __global__ void k(float* y, const float* x) {
          __shared__ float part[2][128];
          __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
          const auto block = cooperative_groups::this_thread_block();
          auto pipe = cuda::make_pipeline(block, &state);
          for (int stage = 0; stage < 2; ++stage) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, part[stage], x + 128 * stage, sizeof part[0], pipe);
            pipe.producer_commit();
          }
          for (int stage = 0; stage < 2; ++stage) {
            pipe.consumer_wait();
            y[128 * stage + threadIdx.x] = 2 * part[stage][127 - threadIdx.x];
            pipe.consumer_release();
          }
        }
        """,
        2 * X.reshape(2, -1)[:, ::-1].ravel(),
        X,
        device="8.0",
    ),
    Case(
        "atomics_and_types_of_libcudacxx",
        """
        #include <cuda/atomic>
        #include <cuda/std/array>
        #include <cuda/std/complex>
        #include <cuda/std/tuple>
        extern "C" __global__ void k(unsigned* y, const unsigned* x) {
          __shared__ unsigned most;
          if (threadIdx.x == 0) most = 0;
          __syncthreads();
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          cuda::atomic_ref<unsigned, cuda::thread_scope_block>(most).fetch_max(x[i]);
          __syncthreads();
          const cuda::std::complex<float> turn(0.0f, 1.0f), by(float(x[i] % 8), 2.0f);
          const cuda::std::array<int, 2> pair{int((turn * by).imag()), 1};
          y[i] = cuda::std::get<0>(cuda::std::make_tuple(most / 2 + pair[0]));
        }
        """,
        np.repeat(K.reshape(2, -1).max(1) // 2, BLOCK) + K % 8,
        K,
    ),
    Case(
        "halves_and_bfloats",
        """
        #include <cuda_bf16.h>
        #include <cuda_fp16.h>
        extern "C" __global__ void k(half2* y, const half2* x) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          const half2 z = __hfma2(x[i], __float2half2_rn(2.0f), __floats2half2_rn(1.0f, -1.0f));
          const __nv_bfloat16 b = __hmul(__float2bfloat16(0.5f), __float2bfloat16(4.0f));
          y[i] = __hmax2(z, __float2half2_rn(-__bfloat162float(b)));
        }
        """,
        np.maximum(HALVES.astype(np.float32) * 2 + np.tile([1.0, -1.0], N).astype(np.float32), -2)
        .astype(np.float16),
        HALVES,
        device="12.0",
    ),
    Case(
        "numbers_of_eight_bits",
        """
        #include <cuda_fp8.h>
        extern "C" __global__ void k(float* y, const float* x) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          y[i] = float(__nv_fp8_e4m3(x[i])) + float(__nv_fp8_e5m2(4 * x[i]));
        }
        """,
        np.float32([narrow(float(x), 3, -6) + narrow(4 * float(x), 2, -14) for x in X]),
        X,
        near=1e-6,
    ),
    Case(
        "bits_and_bytes_of_words",
        """
        extern "C" __global__ void k(unsigned* y, const unsigned* x) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          const unsigned a = x[i], b = x[i ^ 1];
          y[i] = __popc(a) + __clz(b) + (__brev(a) & 255) + __ffs(b) + __funnelshift_l(a, b, 3) +
                 __byte_perm(a, b, 0x5140) + __vsadu4(a, b) + __vmaxu2(a, b) + __umulhi(a, b) +
                 __sad(int(a), int(b), 7u) + __dp4a(a, b, 5u) + (__vabsdiffu4(a, b) ^ __vadd4(a, b));
        }
        """,
        [words(a, b) for a, b in zip(K.tolist(), K.reshape(-1, 2)[:, ::-1].ravel().tolist())],
        K,
    ),
    Case(
        "what_lanes_tell_each_other",
        """
        extern "C" __global__ void k(unsigned* y, const unsigned* x) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          const unsigned few = x[i] % 4;
          const unsigned votes = __ballot_sync(~0u, few == 1);
          y[i] = __popc(__match_any_sync(~0u, few)) + 100 * __popc(votes) +
                 10000 * (__any_sync(~0u, few == 9) + __shfl_down_sync(~0u, few, 1, 8));
        }
        """,
        np.uint32([
            np.count_nonzero(w == w[i]) + 100 * np.count_nonzero(w == 1)
            + 10000 * w[i + 1 if i % 8 != 7 else i]
            for w in (K % 4).reshape(-1, 32)
            for i in range(32)
        ]),
        K,
        device="7.5",
    ),
    Case(
        "functions_by_pointer_and_virtual_ones",
        """
        #include <stdio.h>
        #include <assert.h>
        struct Shape { __device__ virtual int area() const = 0; __device__ virtual ~Shape() {} };
        struct Square : Shape {
          int side;
          __device__ explicit Square(int s) : side(s) {}
          __device__ int area() const override { return side * side; }
        };
        __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
        __device__ int twice(int n) { return 2 * n; }
        __device__ int (*const kFunctions[])(int) = {fibonacci, twice};
        __constant__ int base = 7;
        extern "C" __global__ void k(int* y, const int* x) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          Shape* shape = new Square(x[i]);
          assert(shape != nullptr);
          y[i] = kFunctions[i % 2](x[i]) + shape->area() + base;
          delete shape;
          if (i == 0) printf("%d squares, %s\\n", 1, "done");
        }
        """,
        np.int32([
            [FIBONACCI[n], 2 * n][i % 2] + n * n + 7 for i, n in enumerate((K % 10).tolist())
        ]),
        (K % 10).astype(np.int32),
        prints="1 squares, done",
    ),
    Case(
        "sums_by_compare_and_swap",
        """
        extern "C" __global__ void k(double* y, const double* x) {
          extern __shared__ double part[];
          if (threadIdx.x == 0) part[0] = 0;
          __syncthreads();
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          auto* const at = reinterpret_cast<unsigned long long*>(part);
          unsigned long long old = *at, seen;
          do {
            seen = old;
            old = atomicCAS(at, seen, __double_as_longlong(__longlong_as_double(seen) + x[i]));
          } while (old != seen);
          __syncthreads();
          y[i] = part[0];
        }
        """,
        np.repeat(X.astype(np.float64).reshape(2, -1).sum(1), BLOCK),
        X.astype(np.float64),
        near=1e-13,
        device="12.0",
    ),
    of_math("sin", "double", np.float64, np.sin, 50 * X, 1e-14),
    of_math("exp", "double", np.float64, np.exp, 5 * X, 1e-15),
    of_math("cbrt", "double", np.float64, np.cbrt, X, 1e-15),
    of_math("log1p", "double", np.float64, np.log1p, POSITIVE, 1e-15),
    of_math("tanhf", "float", np.float32, np.tanh, X, 3e-7),
    of_math("sinf", "float", np.float32, np.sin, 1e5 * X, 3e-7),
    of_math("expf", "float", np.float32, np.exp, 5 * X, 3e-7),
    of_math("rsqrtf", "float", np.float32, lambda x: 1 / np.sqrt(x), POSITIVE, 3e-7),
]


def check(case, device=None, to_device=np.copy, from_device=np.asarray):
    """Computes a case on arrays that `to_device` makes of NumPy's."""
    y = to_device(np.zeros_like(case.wanted))
    inputs = [to_device(each) for each in case.inputs]
    kiln.Kernel(case.source, device=device)(2, BLOCK, y, *inputs, shared=8)
    got = from_device(y).astype(np.float64).ravel()
    wanted = case.wanted.astype(np.float64).ravel()
    error = np.abs(got - wanted) / np.maximum(np.abs(wanted), 1)
    at = int(np.argmax(error))
    assert error[at] <= case.near, f"{at}: {got[at]}, not {wanted[at]}; {np.sum(error > case.near)} are wrong"
