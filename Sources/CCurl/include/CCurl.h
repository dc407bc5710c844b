// libcurl's multi interface, for HTTP requests whose bodies are read and written by callbacks.
//
// The library is loaded at first use and not linked: its dynamic linking costs each start of a program 5.6 ms
// (docs/decisions/0055-s3.md). Swift could call few of its functions anyway, since they are variadic.
#pragma once

#include <stdint.h>

// Loads the library, once for the process. NULL, or the reason why it cannot be used. Thread-safe.
const char *sync_curl_load(void);

// A set of transfers that one thread drives. Only `sync_curl_wake` may be called from another thread. All of
// them require a successful `sync_curl_load`.
typedef struct sync_curl_set sync_curl_set;
// `connections` are kept open for later requests. NULL without memory.
sync_curl_set *sync_curl_open(long connections);
void sync_curl_close(sync_curl_set *set);
// Moves the bytes that can be moved now.
void sync_curl_perform(sync_curl_set *set);
// Sleeps until bytes can be moved, a time limit has passed, or `sync_curl_wake` has been called.
void sync_curl_wait(sync_curl_set *set, int milliseconds);
void sync_curl_wake(sync_curl_set *set);

// The functions of the program that a transfer calls, on the driving thread, with its `owner`.
typedef struct {
  // Stores up to `most` bytes of the request's body, and returns their number.
  uint64_t (*send)(void *owner, char *into, uint64_t most);
  // Continues the request's body at `offset`.
  void (*seek)(void *owner, uint64_t offset);
  // Takes a line of the answer's head, with its end. 0 breaks the transfer off.
  int (*head)(void *owner, const char *bytes, uint64_t count);
  // Takes bytes of the answer's body. 0 breaks the transfer off.
  int (*body)(void *owner, const char *bytes, uint64_t count);
} sync_curl_calls;

typedef struct {
  const char *method;
  const char *url;
  // Lines that end with a line feed.
  const char *headers;
  // -1: no body.
  int64_t body_bytes;
  // A file of certificates in place of those of the system; NULL for these.
  const char *authorities;
  long connect_milliseconds;
  // Fewer bytes per second than this, for so long, break the transfer off.
  long low_speed_bytes;
  long low_speed_seconds;
  // 1: no proxy, whatever the environment says.
  int direct;
} sync_curl_request;

// Begins a transfer and returns it. NULL without memory. The strings are copied.
void *sync_curl_begin(
    sync_curl_set *set, const sync_curl_request *request, const sync_curl_calls *calls, void *owner);

// The next transfer that has ended; NULL if there is none. `owner` and `result` are set.
enum sync_curl_result {
  sync_curl_done = 0,
  // A callback has returned 0.
  sync_curl_stopped,
  // The connection could not be made, or broke, or was too slow.
  sync_curl_broken,
  // The name of the host is unknown.
  sync_curl_unresolved,
  // The certificate is not trusted, or TLS failed.
  sync_curl_untrusted,
  // Repeating it does not help: a file of certificates that cannot be read, an unsupported URL, no memory.
  sync_curl_unusable,
};
void *sync_curl_next(sync_curl_set *set, void **owner, enum sync_curl_result *result);

// Whether any byte of the request was sent.
int sync_curl_was_sent(void *transfer);
// The library's text for the failure of an ended transfer, in a buffer that lives as long as the transfer.
const char *sync_curl_reason(void *transfer);
// Ends the transfer, if it has not ended, and releases it.
void sync_curl_end(sync_curl_set *set, void *transfer);
