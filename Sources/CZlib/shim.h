// zlib as Swift sees it: its header, and the two macros with arguments that begin a stream.
#pragma once

#include <zlib.h>

static inline int sync_deflate_start(z_stream *stream, int level, int window_bits, int memory_level) {
  return deflateInit2(stream, level, Z_DEFLATED, window_bits, memory_level, Z_DEFAULT_STRATEGY);
}

static inline int sync_inflate_start(z_stream *stream) { return inflateInit(stream); }
