// Which CA certificates a libcurl handle believes: the system's and, where one is configured, a file of our own.

internal import CCurl
internal import CShims

/// Gives every new connection OpenSSL's default roots and a PEM file besides.
///
/// libcurl would read the system's whole bundle for every connection, which takes tens of milliseconds on the event loop;
/// OpenSSL's own default is a directory it looks single certificates up in. And libcurl's option for a CA file would replace
/// the system's roots.
final class CurlRoots: Sendable {
  private let file: String?

  /// - Parameter file: a PEM file of CA certificates believed besides the system's; nil for none.
  init(file: String?) {
    self.file = file
  }

  /// The handle must not outlive this object.
  func install(in handle: UnsafeMutableRawPointer) {
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_CAINFO, nil)
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_CAPATH, nil)
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_SSL_CTX_DATA, context)
    _ = unsafe shim_curl_easy_setopt_ssl_context_callback(handle) { _, sslContext, roots in
      guard let sslContext = unsafe sslContext, let roots = unsafe roots else { return CURLE_SSL_CACERT_BADFILE }
      let file = unsafe Unmanaged<CurlRoots>.fromOpaque(roots).takeUnretainedValue().file
      var isLoaded = unsafe SSL_CTX_set_default_verify_paths(OpaquePointer(sslContext)) == 1
      if let file { isLoaded = unsafe isLoaded && SSL_CTX_load_verify_file(OpaquePointer(sslContext), file) == 1 }
      ERR_clear_error()
      return isLoaded ? CURLE_OK : CURLE_SSL_CACERT_BADFILE
    }
  }
}
