// Wrappers of what Swift cannot call: variadic functions and function-like macros of libcurl, OpenSSL and zlib. Every
// function here makes one call, of the function that it is named after.
#pragma once

#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <zlib.h>

#ifdef __linux__
#include <sys/epoll.h>  // not part of Swift's Glibc
#endif

static inline CURLcode shim_curl_easy_setopt_long(CURL *handle, CURLoption option, long value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode shim_curl_easy_setopt_offset(CURL *handle, CURLoption option, curl_off_t value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode shim_curl_easy_setopt_string(CURL *handle, CURLoption option, const char *value) {
  return curl_easy_setopt(handle, option, value);
}
static inline CURLcode shim_curl_easy_setopt_pointer(CURL *handle, CURLoption option, void *value) {
  return curl_easy_setopt(handle, option, value);
}
typedef size_t (*shim_curl_data_callback)(char *data, size_t size, size_t count, void *context);
static inline CURLcode shim_curl_easy_setopt_data_callback(CURL *handle, CURLoption option, shim_curl_data_callback callback) {
  return curl_easy_setopt(handle, option, callback);
}
static inline CURLcode shim_curl_easy_setopt_prereq_callback(CURL *handle, curl_prereq_callback callback) {
  return curl_easy_setopt(handle, CURLOPT_PREREQFUNCTION, callback);
}
static inline CURLcode shim_curl_easy_setopt_seek_callback(CURL *handle, curl_seek_callback callback) {
  return curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, callback);
}
static inline CURLcode shim_curl_easy_setopt_sockopt_callback(CURL *handle, curl_sockopt_callback callback) {
  return curl_easy_setopt(handle, CURLOPT_SOCKOPTFUNCTION, callback);
}
static inline CURLcode shim_curl_easy_setopt_debug_callback(CURL *handle, curl_debug_callback callback) {
  return curl_easy_setopt(handle, CURLOPT_DEBUGFUNCTION, callback);
}
static inline CURLcode shim_curl_easy_setopt_ssl_context_callback(CURL *handle, curl_ssl_ctx_callback callback) {
  return curl_easy_setopt(handle, CURLOPT_SSL_CTX_FUNCTION, callback);
}
static inline CURLcode shim_curl_easy_getinfo_long(CURL *handle, CURLINFO info, long *value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLcode shim_curl_easy_getinfo_offset(CURL *handle, CURLINFO info, curl_off_t *value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLcode shim_curl_easy_getinfo_pointer(CURL *handle, CURLINFO info, void **value) {
  return curl_easy_getinfo(handle, info, value);
}
static inline CURLMcode shim_curl_multi_setopt_long(CURLM *multi, CURLMoption option, long value) {
  return curl_multi_setopt(multi, option, value);
}
static inline CURLMcode shim_curl_multi_setopt_pointer(CURLM *multi, CURLMoption option, void *value) {
  return curl_multi_setopt(multi, option, value);
}
static inline CURLMcode shim_curl_multi_setopt_socket_callback(CURLM *multi, curl_socket_callback callback) {
  return curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, callback);
}
static inline CURLMcode shim_curl_multi_setopt_timer_callback(CURLM *multi, curl_multi_timer_callback callback) {
  return curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, callback);
}

static inline long shim_SSL_CTX_set_min_proto_version(SSL_CTX *context, int version) {
  return SSL_CTX_set_min_proto_version(context, version);
}
static inline long shim_SSL_CTX_set_mode(SSL_CTX *context, long mode) { return SSL_CTX_set_mode(context, mode); }
static inline long shim_SSL_set_tlsext_host_name(SSL *ssl, const char *name) {
  return SSL_set_tlsext_host_name(ssl, name);
}

static inline int shim_deflateInit2(z_stream *stream, int level, int windowBits) {
  return deflateInit2(stream, level, Z_DEFLATED, windowBits, 8, Z_DEFAULT_STRATEGY);
}
static inline int shim_inflateInit2(z_stream *stream, int windowBits) { return inflateInit2(stream, windowBits); }

// Sets the name of the calling thread, which debuggers and top show. It is cut to the system's maximum length.
void shim_set_thread_name(const char *name);

// Disables core dumps of this process, and keeps other processes of its user from reading its memory. Returns 0 on
// success.
int shim_prctl_not_dumpable(void);
