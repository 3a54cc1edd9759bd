/* NAME_check: 0, or what differs from the header (4), the weights (5) or the processor (6). */
int STK_CHECK(int abi, int64_t checksum) {
  if (abi != STK_ABI || checksum != STK_CHECKSUM) return 4;
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return 6;
#endif
#ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) return 6;
#endif
#ifdef __AVX512DQ__
  if (!__builtin_cpu_supports("avx512dq")) return 6;
#endif
#ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return 6;
#endif
#ifdef __AVX512VNNI__
  if (!__builtin_cpu_supports("avx512vnni")) return 6;
#endif
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return 6;
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return 6;
#endif
#ifdef STK_ADLER
  uint32_t a = 1, b = 0; /* Adler-32 */
  for (int64_t i = 0; i < STK_BYTES; i++) {
    a = (a + (unsigned char)stk_weights[i]) % 65521;
    b = (b + a) % 65521;
  }
  return (b << 16 | a) == STK_ADLER ? 0 : 5;
#else
  return 0;
#endif
}
