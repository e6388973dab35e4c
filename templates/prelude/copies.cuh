// Copies from global to shared memory that a thread begins and waits for later. Before
// 8.0 they are done where they are begun.

/// Begins to copy 16 bytes from global to shared memory, both 16-byte aligned; zeros
/// where `is_there` is false, and then `from` is not read.
KILN_FUNCTION void kiln_copy_async(void* to_shared, const void* from, bool is_there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(kiln_shared_address(to_shared)), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
#else
  kiln_words<16> words = {};
  if (is_there) {
    words = kiln_load<16>(from);
  }
  kiln_store(to_shared, words);
#endif
}
/// The copies begun by this thread since the last commit are a group.
KILN_FUNCTION void kiln_copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
/// Until all but the `kPending` newest groups of this thread have arrived: for this
/// thread, others need a barrier besides.
template <int kPending>
KILN_FUNCTION void kiln_copy_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}
