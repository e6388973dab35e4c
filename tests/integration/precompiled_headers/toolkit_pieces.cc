#include "tests/integration/precompiled_headers/pieces.h"

namespace kiln::test {
namespace {

constexpr Piece kToolkitPieces[] = {
    // --- CUB
    {"block_reduce", "cub/block/block_reduce.cuh",
     "using R = cub::BlockReduce<float, 128>; __shared__ typename R::TempStorage s; "
     "float x = R(s).Sum(f[threadIdx.x]); if (threadIdx.x == 0) *f = x;"},
    {"block_reduce_raking", "cub/block/block_reduce.cuh",
     "using R = cub::BlockReduce<int, 64, cub::BLOCK_REDUCE_RAKING>; __shared__ "
     "typename R::TempStorage s; n[threadIdx.x] = R(s).Reduce(n[threadIdx.x], [](int "
     "a, int b) { return a > b ? a : b; });"},
    {"block_scan", "cub/block/block_scan.cuh",
     "using S = cub::BlockScan<int, 128>; __shared__ typename S::TempStorage s; int x, "
     "sum; S(s).ExclusiveSum(n[threadIdx.x], x, sum); n[threadIdx.x] = x + sum;"},
    {"block_radix_sort", "cub/block/block_radix_sort.cuh",
     "using S = cub::BlockRadixSort<int, 64, 4, float>; __shared__ typename "
     "S::TempStorage s; int k[4] = {n[0], n[1], n[2], n[3]}; float v[4] = {f[0], f[1], "
     "f[2], f[3]}; S(s).Sort(k, v); n[threadIdx.x] = k[1]; f[threadIdx.x] = v[2];"},
    {"block_load_store", "cub/block/block_load.cuh cub/block/block_store.cuh",
     "using L = cub::BlockLoad<float, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>; using S = "
     "cub::BlockStore<float, 64, 4, cub::BLOCK_STORE_VECTORIZE>; __shared__ union { "
     "typename L::TempStorage l; typename S::TempStorage s; } t; float x[4]; "
     "L(t.l).Load(f, x); __syncthreads(); S(t.s).Store(f, x);"},
    {"block_exchange", "cub/block/block_exchange.cuh",
     "using E = cub::BlockExchange<int, 32, 4>; __shared__ typename E::TempStorage s; "
     "int x[4] = {n[0], n[1], n[2], n[3]}; E(s).StripedToBlocked(x, x); n[threadIdx.x] "
     "= x[3];"},
    {"block_histogram", "cub/block/block_histogram.cuh",
     "using H = cub::BlockHistogram<unsigned char, 64, 4, 256>; __shared__ typename "
     "H::TempStorage s; __shared__ unsigned h[256]; unsigned char x[4] = {1, 2, 3, "
     "(unsigned char)n[0]}; H(s).Histogram(x, h); n[threadIdx.x] = h[threadIdx.x];"},
    {"block_discontinuity", "cub/block/block_discontinuity.cuh",
     "using D = cub::BlockDiscontinuity<int, 64>; __shared__ typename D::TempStorage "
     "s; int x[2] = {n[0], n[1]}, h[2]; D(s).FlagHeads(h, x, [](int a, int b) { return "
     "a != b; }); n[1] = h[1];"},
    {"block_adjacent_difference", "cub/block/block_adjacent_difference.cuh",
     "using D = cub::BlockAdjacentDifference<int, 64>; __shared__ typename "
     "D::TempStorage s; int x[2] = {n[0], n[1]}; D(s).SubtractLeft(x, x, [](int a, int "
     "b) { return a - b; }); n[1] = x[1];"},
    {"block_merge_sort", "cub/block/block_merge_sort.cuh",
     "using S = cub::BlockMergeSort<int, 64, 2>; __shared__ typename S::TempStorage s; "
     "int x[2] = {n[0], n[1]}; S(s).Sort(x, [](int a, int b) { return a < b; }); "
     "n[threadIdx.x] = x[0];"},
    {"block_run_length_decode", "cub/block/block_run_length_decode.cuh",
     "using D = cub::BlockRunLengthDecode<int, 64, 2, 2>; __shared__ typename "
     "D::TempStorage s; int v[2] = {n[0], n[1]}; unsigned l[2] = {1, 2}, sum; D d(s, "
     "v, l, sum); int o[2]; d.RunLengthDecode(o, 0); n[threadIdx.x] = o[0];"},
    {"warp_reduce_scan", "cub/warp/warp_reduce.cuh cub/warp/warp_scan.cuh",
     "using R = cub::WarpReduce<float>; using S = cub::WarpScan<int>; __shared__ "
     "typename R::TempStorage r; __shared__ typename S::TempStorage s; f[1] = "
     "R(r).Sum(*f); int x; S(s).InclusiveSum(*n, x); n[1] = x;"},
    {"warp_sort_exchange", "cub/warp/warp_merge_sort.cuh cub/warp/warp_exchange.cuh",
     "using S = cub::WarpMergeSort<int, 2, 32>; using E = cub::WarpExchange<int, 2>; "
     "__shared__ typename S::TempStorage s; __shared__ typename E::TempStorage e; int "
     "x[2] = {n[0], n[1]}; S(s).Sort(x, [](int a, int b) { return a < b; }); "
     "E(e).BlockedToStriped(x, x); n[threadIdx.x] = x[1];"},
    {"cub_thread",
     "cub/thread/thread_load.cuh cub/thread/thread_store.cuh "
     "cub/thread/thread_reduce.cuh cub/thread/thread_sort.cuh",
     "int x[4] = {n[0], n[1], n[2], cub::ThreadLoad<cub::LOAD_CG>(n + 3)}; "
     "cub::ThreadStore<cub::STORE_CS>(n, cub::ThreadReduce(x, [](int a, int b) { "
     "return a + b; }));"},
    {"cub_iterators",
     "cub/iterator/cache_modified_input_iterator.cuh "
     "cub/iterator/arg_index_input_iterator.cuh",
     "cub::CacheModifiedInputIterator<cub::LOAD_LDG, int> a(n); "
     "cub::ArgIndexInputIterator<int*> b(n); n[0] = a[1] + b[2].key + b[3].value;"},
    // --- cooperative groups
    {"groups", "cooperative_groups.h cooperative_groups/reduce.h",
     "namespace g = cooperative_groups; auto t = "
     "g::tiled_partition<32>(g::this_thread_block()); *n = g::reduce(t, *n, "
     "g::plus<int>()); g::this_grid().sync();"},
    {"groups_scan", "cooperative_groups.h cooperative_groups/scan.h",
     "namespace g = cooperative_groups; auto t = g::coalesced_threads(); *n = "
     "g::exclusive_scan(t, *n);"},
    {"groups_memcpy", "cooperative_groups.h cooperative_groups/memcpy_async.h",
     "namespace g = cooperative_groups; __shared__ int s[64]; auto b = "
     "g::this_thread_block(); g::memcpy_async(b, s, n, sizeof s); g::wait(b); "
     "n[threadIdx.x] = s[63 - threadIdx.x];"},
    {"groups_cluster", "cooperative_groups.h",
     "namespace g = cooperative_groups; __shared__ int s[32]; auto c = "
     "g::this_cluster(); s[threadIdx.x] = *n; c.sync(); n[threadIdx.x] = "
     "*c.map_shared_rank(s, 0);"},
    // --- libcu++, of cuda::
    {"atomic", "cuda/atomic",
     "cuda::atomic_ref<int, cuda::thread_scope_device> r(*n); r.fetch_add(1, "
     "cuda::memory_order_relaxed);"},
    {"atomic_object", "cuda/atomic",
     "auto& a = reinterpret_cast<cuda::atomic<float, cuda::thread_scope_block>&>(*f); "
     "a.fetch_min(2.f); int want = 3; "
     "cuda::atomic_ref<int>(n[1]).compare_exchange_strong(want, 4);"},
    {"atomic_small", "cuda/std/atomic",
     "cuda::std::atomic_ref<short> r(*reinterpret_cast<short*>(n)); r.exchange(3); "
     "cuda::std::atomic_thread_fence(cuda::std::memory_order_seq_cst);"},
    {"barrier", "cuda/barrier",
     "__shared__ cuda::barrier<cuda::thread_scope_block> b; if (threadIdx.x == 0) "
     "init(&b, blockDim.x); __syncthreads(); b.arrive_and_wait(); *n = 1;"},
    {"barrier_tma", "cuda/barrier",
     "__shared__ alignas(16) int s[32]; __shared__ "
     "cuda::barrier<cuda::thread_scope_block> b; if (threadIdx.x == 0) { init(&b, 1); "
     "cuda::memcpy_async(s, n, cuda::aligned_size_t<16>(128), b); } "
     "b.wait(b.arrive()); n[32] = s[3];"},
    {"pipeline", "cuda/pipeline",
     "__shared__ int s[64]; auto p = cuda::make_pipeline(); p.producer_acquire(); "
     "cuda::memcpy_async(s + threadIdx.x, n + threadIdx.x, sizeof(int), p); "
     "p.producer_commit(); p.consumer_wait(); n[0] = s[threadIdx.x]; "
     "p.consumer_release();"},
    {"latch_semaphore", "cuda/latch cuda/semaphore",
     "auto& l = reinterpret_cast<cuda::latch<cuda::thread_scope_device>&>(*n); "
     "l.count_down(); auto& s = "
     "reinterpret_cast<cuda::binary_semaphore<cuda::thread_scope_block>&>(n[8]); "
     "s.acquire(); s.release();"},
    {"annotated_ptr", "cuda/annotated_ptr",
     "cuda::annotated_ptr<int, cuda::access_property::persisting> p(n); *p = 3;"},
    {"cuda_functional", "cuda/functional",
     "n[0] = cuda::maximum<int>{}(n[1], n[2]) + cuda::proclaim_return_type<int>([](int "
     "x) { return x + 1; })(3);"},
    {"ptx", "cuda/ptx",
     "*n = cuda::ptx::get_sreg_laneid() + cuda::ptx::get_sreg_clusterid_x(); "
     "cuda::ptx::fence_proxy_async();"},
    {"cuda_numbers", "cuda/cmath cuda/bit cuda/numeric",
     "n[0] = cuda::ceil_div(n[1], 7) + int(cuda::bitmask<unsigned>(3, 4)) + "
     "cuda::ilog2(n[2]);"},
    {"cuda_mdspan", "cuda/std/mdspan cuda/mdspan",
     "cuda::std::mdspan<int, cuda::std::extents<int, 4, cuda::std::dynamic_extent>> "
     "m(n, 8); m(1, 2) = m(3, 4);"},
    {"cuda_warp", "cuda/warp", "*n = cuda::device::warp_shuffle_xor(*n, 3).data;"},
    // --- libcu++, of cuda::std::
    {"array", "cuda/std/array",
     "cuda::std::array<int, 4> a{1, 2, 3, *n}; *n = a[*n & 3];"},
    {"tuple", "cuda/std/tuple cuda/std/utility",
     "auto t = cuda::std::make_tuple(*n, *f, 'x'); *n = cuda::std::get<0>(t) + "
     "cuda::std::apply([](int a, float b, char c) { return int(a + b + c); }, t);"},
    {"type_traits", "cuda/std/type_traits cuda/std/concepts",
     "if constexpr (cuda::std::is_same_v<decltype(*n), int&>) *n = "
     "cuda::std::is_integral<float>::value + cuda::std::extent_v<int[3]>;"},
    {"limits", "cuda/std/limits cuda/std/cstdint cuda/std/climits",
     "*n = cuda::std::numeric_limits<int>::max() - "
     "cuda::std::numeric_limits<cuda::std::uint16_t>::digits; *f = "
     "cuda::std::numeric_limits<float>::infinity();"},
    {"complex", "cuda/std/complex",
     "cuda::std::complex<float> c(f[0], f[1]); c = exp(c) * conj(c) / abs(c); f[0] = "
     "c.real();"},
    {"optional_variant", "cuda/std/optional cuda/std/variant cuda/std/expected",
     "cuda::std::optional<int> o; if (*n) o = 3; cuda::std::variant<int, float> v = "
     "*f; cuda::std::expected<int, char> e = cuda::std::unexpected<char>('x'); *n = "
     "o.value_or(2) + v.index() + e.has_value() + "
     "(cuda::std::holds_alternative<int>(v) ? 1 : 0);"},
    {"span", "cuda/std/span cuda/std/iterator",
     "for (int& x : cuda::std::span<int, 8>(n, 8)) x += 1;"},
    {"bit", "cuda/std/bit",
     "*n = cuda::std::popcount(unsigned(*n)) + cuda::std::bit_cast<int>(*f) + "
     "cuda::std::countl_zero(7u);"},
    {"chrono", "cuda/std/chrono cuda/std/ratio",
     "*n = "
     "int(cuda::std::chrono::duration_cast<cuda::std::chrono::milliseconds>(cuda::std::"
     "chrono::seconds(*n)).count()); if "
     "(cuda::std::chrono::system_clock::now().time_since_epoch().count() == 0) *n = "
     "1;"},
    {"algorithms", "cuda/std/numeric cuda/std/functional",
     "*n = cuda::std::accumulate(n, n + 4, 0, cuda::std::plus<>()) + "
     "cuda::std::gcd(n[4], n[5]);"},
    {"cmath", "cuda/std/cmath",
     "*f = cuda::std::hypot(f[0], f[1]) + cuda::std::lerp(f[0], f[1], .5f) + "
     "cuda::std::isnan(*f);"},
    {"inplace", "cuda/std/inplace_vector cuda/std/bitset",
     "cuda::std::inplace_vector<int, 4> v; v.push_back(*n); cuda::std::bitset<40> "
     "b(*n); *n = int(v.size() + b.count());"},
    {"initializer_list", "cuda/std/initializer_list cuda/std/cassert cuda/std/cstring",
     "for (int x : {1, 2, *n}) n[1] += x; assert(n[1] != 7); cuda::std::memcpy(n, f, "
     "8);"},
    // --- Thrust
    {"thrust_tuple", "thrust/tuple.h thrust/pair.h thrust/functional.h",
     "*n = thrust::get<0>(thrust::make_tuple(*n, 2.f)) + thrust::make_pair(1, "
     "*f).first + thrust::plus<int>()(1, *n);"},
    {"thrust_iterators",
     "thrust/iterator/counting_iterator.h thrust/iterator/transform_iterator.h "
     "thrust/iterator/zip_iterator.h",
     "auto t = thrust::make_transform_iterator(thrust::counting_iterator<int>(*n), "
     "Twice()); auto z = thrust::make_zip_iterator(thrust::make_tuple(n, f)); *n = "
     "t[3] + thrust::get<0>(z[1]);",
     "struct Twice { __device__ int operator()(int x) const { return 2 * x; } };\n"},
    {"thrust_random", "cstdint thrust/random.h",
     "thrust::default_random_engine e(*n); thrust::uniform_real_distribution<float> "
     "d(0, 1); e.discard(3); *f = d(e);"},
    // --- number formats, matrices, random numbers, pipelines of C
    {"fp16_bf16", "cuda_fp16.h cuda_bf16.h",
     "auto* h = reinterpret_cast<__half2*>(f); *h = __hfma2(*h, *h, h2exp(*h)); "
     "reinterpret_cast<__nv_bfloat16*>(n)[0] = __float2bfloat16(*f);"},
    {"fp8", "cuda_fp8.h",
     "__nv_fp8_e4m3 x(*f); __nv_fp8x4_e5m2 y(float4{1, 2, 3, *f}); *f = float(x); n[1] "
     "= int(y.__x);"},
    {"fp6_fp4", "cuda_fp6.h cuda_fp4.h",
     "__nv_fp6_e2m3 x(*f); __nv_fp4x2_e2m1 y(float2{1, *f}); *f = float(x); "
     "n[1] = y.__x;"},
    {"mma", "mma.h",
     "using namespace nvcuda; wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, "
     "wmma::row_major> a; wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, "
     "wmma::col_major> b; wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; "
     "wmma::fill_fragment(c, 0.f); wmma::load_matrix_sync(a, (__half*)n, 16); "
     "wmma::load_matrix_sync(b, (__half*)n, 16); wmma::mma_sync(c, a, b, c); "
     "wmma::store_matrix_sync(f, c, 16, wmma::mem_row_major);"},
    {"curand", "curand_kernel.h",
     "curandStatePhilox4_32_10_t s; curand_init(1, threadIdx.x, 0, &s); f[threadIdx.x] "
     "= curand_normal(&s); curandState x; curand_init(*n, 0, 0, &x); *n = curand(&x) + "
     "curand_poisson(&x, 2.0);"},
    {"pipeline_c", "cuda_pipeline.h cuda_awbarrier.h",
     "__shared__ int s[4]; __pipeline_memcpy_async(s, n, 16); __pipeline_commit(); "
     "__pipeline_wait_prior(0); *n = s[2];"},
    {"complex_c", "cuComplex.h math_constants.h vector_types.h",
     "f[0] = cuCabsf(cuCmulf(make_cuFloatComplex(f[0], f[1]), "
     "make_cuFloatComplex(CUDART_PI_F, 1)));"},
    {"targets", "nv/target", "NV_IF_TARGET(NV_PROVIDES_SM_90, (*n = 90;), (*n = 1;))"},
};

}  // namespace

std::span<const Piece> toolkit_pieces() {
  return kToolkitPieces;
}

}  // namespace kiln::test
