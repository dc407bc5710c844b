#include "CCurl.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The functions of the library, with the types of its headers.
#define FUNCTIONS(f) \
  f(curl_global_init) f(curl_version_info) f(curl_easy_init) f(curl_easy_cleanup) f(curl_easy_setopt) \
  f(curl_easy_getinfo) f(curl_easy_strerror) f(curl_slist_append) f(curl_slist_free_all) f(curl_multi_init) \
  f(curl_multi_cleanup) f(curl_multi_setopt) f(curl_multi_add_handle) f(curl_multi_remove_handle) \
  f(curl_multi_perform) f(curl_multi_poll) f(curl_multi_wakeup) f(curl_multi_info_read)

// The headers check the types of options with macros of the same names.
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define FIELD(name) __typeof__(&name) name;
static struct { FUNCTIONS(FIELD) } library;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *failure;

static void load(void) {
  void *handle = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    failure = "libcurl.so.4 cannot be loaded: install libcurl 7.68 or newer (libcurl4 on Debian)";
    return;
  }
#define LOAD(name) \
  library.name = (__typeof__(&name))dlsym(handle, #name); \
  if (!library.name) failure = "libcurl.so.4 lacks " #name ": install libcurl 7.68 or newer";
  FUNCTIONS(LOAD)
  if (failure) return;
  if (library.curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
    failure = "libcurl cannot be initialised: check the memory and the TLS library of this machine";
  else if (!(library.curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_SSL))
    failure = "libcurl.so.4 has no TLS: install a libcurl that has it";
}

const char *sync_curl_load(void) {
  pthread_once(&once, load);
  return failure;
}

struct sync_curl_set {
  CURLM *multi;
};

sync_curl_set *sync_curl_open(long connections) {
  sync_curl_set *set = calloc(1, sizeof *set);
  if (!set) return NULL;
  set->multi = library.curl_multi_init();
  if (!set->multi) {
    free(set);
    return NULL;
  }
  library.curl_multi_setopt(set->multi, CURLMOPT_MAXCONNECTS, connections);
  library.curl_multi_setopt(set->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
  return set;
}

void sync_curl_close(sync_curl_set *set) {
  library.curl_multi_cleanup(set->multi);
  free(set);
}

void sync_curl_perform(sync_curl_set *set) {
  int running = 0;
  library.curl_multi_perform(set->multi, &running);
}

void sync_curl_wait(sync_curl_set *set, int milliseconds) {
  library.curl_multi_poll(set->multi, NULL, 0, milliseconds, NULL);
}

void sync_curl_wake(sync_curl_set *set) { library.curl_multi_wakeup(set->multi); }

typedef struct {
  CURL *easy;
  sync_curl_calls calls;
  void *owner;
  struct curl_slist *headers;
  CURLcode code;
  int is_in_set;
  char reason[CURL_ERROR_SIZE];
} transfer;

static size_t send_body(char *into, size_t size, size_t count, void *context) {
  transfer *t = context;
  return (size_t)t->calls.send(t->owner, into, (uint64_t)size * count);
}

static int seek_body(void *context, curl_off_t offset, int origin) {
  transfer *t = context;
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  t->calls.seek(t->owner, (uint64_t)offset);
  return CURL_SEEKFUNC_OK;
}

static size_t take_head(char *bytes, size_t size, size_t count, void *context) {
  transfer *t = context;
  return t->calls.head(t->owner, bytes, (uint64_t)size * count) ? size * count : 0;
}

// A callback that takes another number of bytes than it was given fails the transfer; it is never given none.
static size_t take_body(char *bytes, size_t size, size_t count, void *context) {
  transfer *t = context;
  return t->calls.body(t->owner, bytes, (uint64_t)size * count) ? size * count : 0;
}

// Header lines; 0 without memory.
static int add_headers(transfer *t, const char *lines) {
  while (*lines) {
    size_t length = strcspn(lines, "\n");
    char *line = strndup(lines, length);
    struct curl_slist *longer = line ? library.curl_slist_append(t->headers, line) : NULL;
    free(line);
    if (!longer) return 0;
    t->headers = longer;
    lines += length + (lines[length] == '\n');
  }
  return 1;
}

static void set_options(transfer *t, const sync_curl_request *request) {
#define SET(option, value) library.curl_easy_setopt(t->easy, CURLOPT_##option, value)
  SET(ERRORBUFFER, t->reason);
  SET(PRIVATE, t);
  SET(URL, request->url);
  SET(CUSTOMREQUEST, request->method);
  SET(HTTPHEADER, t->headers);
  SET(HEADERFUNCTION, take_head);
  SET(HEADERDATA, t);
  SET(WRITEFUNCTION, take_body);
  SET(WRITEDATA, t);
  if (request->body_bytes >= 0) {
    SET(UPLOAD, 1L);
    SET(INFILESIZE_LARGE, (curl_off_t)request->body_bytes);
    SET(READFUNCTION, send_body);
    SET(READDATA, t);
    SET(SEEKFUNCTION, seek_body);
    SET(SEEKDATA, t);
    SET(UPLOAD_BUFFERSIZE, 256L << 10);
  }
  SET(BUFFERSIZE, 256L << 10);
  // Signals belong to the program, and so do the user's files.
  SET(NOSIGNAL, 1L);
  SET(NETRC, (long)CURL_NETRC_IGNORED);
  SET(FOLLOWLOCATION, 0L);
  SET(PATH_AS_IS, 1L);
  SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  SET(HTTP09_ALLOWED, 0L);
  SET(TCP_KEEPALIVE, 1L);
  SET(SSL_VERIFYPEER, 1L);
  SET(SSL_VERIFYHOST, 2L);
  SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
#if LIBCURL_VERSION_NUM >= 0x075500
  SET(PROTOCOLS_STR, "http,https");
#else
  SET(PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  if (request->authorities) SET(CAINFO, request->authorities);
  if (request->direct) SET(NOPROXY, "*");
  SET(CONNECTTIMEOUT_MS, request->connect_milliseconds);
  SET(LOW_SPEED_LIMIT, request->low_speed_bytes);
  SET(LOW_SPEED_TIME, request->low_speed_seconds);
#undef SET
}

void *sync_curl_begin(
    sync_curl_set *set, const sync_curl_request *request, const sync_curl_calls *calls, void *owner) {
  transfer *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->calls = *calls;
  t->owner = owner;
  t->easy = library.curl_easy_init();
  if (t->easy && add_headers(t, request->headers)) {
    set_options(t, request);
    t->is_in_set = library.curl_multi_add_handle(set->multi, t->easy) == CURLM_OK;
  }
  if (t->is_in_set) return t;
  sync_curl_end(set, t);
  return NULL;
}

static enum sync_curl_result result_of(CURLcode code) {
  switch (code) {
    case CURLE_OK: return sync_curl_done;
    case CURLE_WRITE_ERROR: return sync_curl_stopped;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return sync_curl_unresolved;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS: return sync_curl_untrusted;
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_BAD_FUNCTION_ARGUMENT: return sync_curl_unusable;
    default: return sync_curl_broken;
  }
}

void *sync_curl_next(sync_curl_set *set, void **owner, enum sync_curl_result *result) {
  int left = 0;
  CURLMsg *message;
  while ((message = library.curl_multi_info_read(set->multi, &left))) {
    if (message->msg != CURLMSG_DONE) continue;
    transfer *t = NULL;
    // The message is gone once the handle is removed.
    CURLcode code = message->data.result;
    library.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
    t->code = code;
    *owner = t->owner;
    *result = result_of(code);
    return t;
  }
  return NULL;
}

int sync_curl_was_sent(void *handle) {
  long bytes = 0;
  library.curl_easy_getinfo(((transfer *)handle)->easy, CURLINFO_REQUEST_SIZE, &bytes);
  return bytes > 0;
}

const char *sync_curl_reason(void *handle) {
  transfer *t = handle;
  return t->reason[0] ? t->reason : library.curl_easy_strerror(t->code);
}

void sync_curl_end(sync_curl_set *set, void *handle) {
  transfer *t = handle;
  if (t->is_in_set) library.curl_multi_remove_handle(set->multi, t->easy);
  if (t->easy) library.curl_easy_cleanup(t->easy);
  if (t->headers) library.curl_slist_free_all(t->headers);
  free(t);
}
