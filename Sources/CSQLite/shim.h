// SQLite as Swift sees it: its header, and what takes SQLITE_TRANSIENT, a cast that Swift cannot import.
#pragma once

#include <sqlite3.h>
#include <stdint.h>

// SQLite copies the bytes: the caller's may go at once.
static inline int sync_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, uint64_t count) {
  return sqlite3_bind_blob64(statement, index, count ? bytes : "", count, SQLITE_TRANSIENT);
}

static inline int sync_bind_text(sqlite3_stmt *statement, int index, const char *text, uint64_t count) {
  return sqlite3_bind_text64(statement, index, text, count, SQLITE_TRANSIENT, SQLITE_UTF8);
}
