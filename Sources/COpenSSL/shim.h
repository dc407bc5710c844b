// OpenSSL 3 as Swift sees it: its headers, and the few things that are macros with arguments, which Swift cannot import.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

// EVP_CIPHER_CTX_ctrl takes void * even where it only reads: opening takes the expected tag that way.
static inline int sync_gcm_set_tag(EVP_CIPHER_CTX *context, const unsigned char *tag, int count) {
  return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, count, (void *)tag);
}

// SSL_OP_BIT() is a macro with an argument, and so these are not imported.
static const uint64_t sync_tls_refusals = SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION;

static inline int sync_tls_only_version(SSL_CTX *context, int version) {
  return SSL_CTX_set_min_proto_version(context, version) && SSL_CTX_set_max_proto_version(context, version);
}

static inline int sync_tls_set_signatures(SSL_CTX *context, const char *list) {
  return (int)SSL_CTX_set1_sigalgs_list(context, list);
}

static inline int sync_tls_set_groups(SSL_CTX *context, const char *list) {
  return (int)SSL_CTX_set1_groups_list(context, list);
}

static inline void sync_tls_set_mode(SSL_CTX *context, long mode) { SSL_CTX_set_mode(context, mode); }

static inline void sync_tls_set_session_cache(SSL_CTX *context, long mode) {
  SSL_CTX_set_session_cache_mode(context, mode);
}

static inline void sync_tls_set_certificate_limit(SSL_CTX *context, long bytes) {
  SSL_CTX_set_max_cert_list(context, bytes);
}
