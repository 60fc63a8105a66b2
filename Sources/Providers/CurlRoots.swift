// CA certificates believed besides the system's. libcurl's own option for a CA file would replace the system's roots.

internal import CCurl
internal import CShims

/// A PEM file that is added to the roots of every new connection.
final class CurlRoots: Sendable {
  private let file: String

  init(file: String) {
    self.file = file
  }

  /// The handle must not outlive this object.
  func install(in handle: UnsafeMutableRawPointer) {
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_SSL_CTX_DATA, context)
    _ = unsafe shim_curl_easy_setopt_ssl_context_callback(handle) { _, sslContext, roots in
      guard let sslContext = unsafe sslContext, let roots = unsafe roots else { return CURLE_SSL_CACERT_BADFILE }
      let file = unsafe Unmanaged<CurlRoots>.fromOpaque(roots).takeUnretainedValue().file
      let isLoaded = unsafe SSL_CTX_load_verify_file(OpaquePointer(sslContext), file) == 1
      ERR_clear_error()
      return isLoaded ? CURLE_OK : CURLE_SSL_CACERT_BADFILE
    }
  }
}
