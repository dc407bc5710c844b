// A 64-byte line that other processes may be changing, read in a defined order: Swift has no ordered vector
// loads.
#pragma once

#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// The sanitizer reports a load of two words as a race: with it, each word is loaded by itself.
#define SYNC_LINE_BY_WORDS 1
#endif
#endif
#if defined(__SSE2__) && !defined(SYNC_LINE_BY_WORDS)
#define SYNC_LINE_BY_PAIRS 1
#include <emmintrin.h>
#endif

// Summary of eight words: bit 4n + 3 of `matches` is set if the upper 16 bits of word n are the tag; the
// exclusive or of all words; the last word.
struct sync_line {
  uint64_t fold;
  uint64_t last;
  uint32_t matches;
};

// Reads the line, aligned to 64 bytes, from its last words to its first: each word is loaded once, untorn,
// and none before a later one. Pairs of words are loaded at once: every processor with AVX guarantees that to
// be atomic; on others a line in the cache cannot change between the two halves.
#if defined(SYNC_LINE_BY_PAIRS)
static inline struct sync_line sync_look_at_line(const void *line, uint16_t tag) {
  const __m128i *pairs = (const __m128i *)line;
  const __m128i tags = _mm_set1_epi16((short)tag);
  __m128i three = _mm_load_si128(pairs + 3);
  __asm__ volatile("" ::: "memory");
  __m128i two = _mm_load_si128(pairs + 2);
  __asm__ volatile("" ::: "memory");
  __m128i one = _mm_load_si128(pairs + 1);
  __asm__ volatile("" ::: "memory");
  __m128i zero = _mm_load_si128(pairs);
  __m128i fold = _mm_xor_si128(_mm_xor_si128(zero, one), _mm_xor_si128(two, three));
  uint32_t low = (uint32_t)_mm_movemask_epi8(
      _mm_packs_epi16(_mm_cmpeq_epi16(zero, tags), _mm_cmpeq_epi16(one, tags)));
  uint32_t high = (uint32_t)_mm_movemask_epi8(
      _mm_packs_epi16(_mm_cmpeq_epi16(two, tags), _mm_cmpeq_epi16(three, tags)));
  struct sync_line look;
  look.fold = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(fold, _mm_unpackhi_epi64(fold, fold)));
  look.last = (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(three, three));
  look.matches = (low | high << 16) & 0x88888888u;
  return look;
}
#else
static inline struct sync_line sync_look_at_line(const void *line, uint16_t tag) {
  const uint64_t *words = (const uint64_t *)line;
  struct sync_line look = {0, 0, 0};
  for (int index = 7; index >= 0; index--) {
    uint64_t word = __atomic_load_n(words + index, __ATOMIC_ACQUIRE);
    if (index == 7) look.last = word;
    look.fold ^= word;
    if ((uint16_t)(word >> 48) == tag) look.matches |= 8u << (4 * index);
  }
  return look;
}
#endif
