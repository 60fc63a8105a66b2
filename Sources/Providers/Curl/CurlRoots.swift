// Which CA certificates a libcurl handle believes: the system's and, where one is configured, a file of our own.

internal import CCurl
internal import CShims
internal import Synchronization

/// OpenSSL's default roots and a PEM file besides, read once and shared by every connection.
///
/// libcurl would read the system's whole bundle anew for every connection, which takes tens of milliseconds on the event loop;
/// and its option for a CA file would replace the system's roots.
// @unchecked: OpenSSL counts the references to a store atomically and locks it itself; the pointer never changes.
@safe final class CurlRoots: @unchecked Sendable {
  private static let known = Mutex<[String?: CurlRoots]>([:])

  /// nil when a certificate could not be read: then no connection is made.
  private let store: OpaquePointer?

  /// The roots with this file, read at the first call.
  ///
  /// - Parameter file: a PEM file of CA certificates believed besides the system's; nil for none.
  static func with(file: String?) -> CurlRoots {
    known.withLock { known in
      if let roots = known[file] { return roots }
      let roots = CurlRoots(file: file)
      known[file] = roots
      return roots
    }
  }

  private init(file: String?) {
    let store = unsafe X509_STORE_new()
    var isLoaded = unsafe store != nil && X509_STORE_set_default_paths(store) == 1
    if let file { isLoaded = unsafe isLoaded && X509_STORE_load_file(store, file) == 1 }
    ERR_clear_error()
    if !isLoaded { unsafe X509_STORE_free(store) }
    unsafe self.store = isLoaded ? store : nil
  }

  deinit {
    unsafe X509_STORE_free(store)
  }

  /// The handle must not outlive this object.
  func install(in handle: UnsafeMutableRawPointer) {
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_CAINFO, nil)
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_CAPATH, nil)
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_SSL_CTX_DATA, context)
    _ = unsafe shim_curl_easy_setopt_ssl_context_callback(handle) { _, sslContext, roots in
      guard let sslContext = unsafe sslContext, let roots = unsafe roots else { return CURLE_SSL_CACERT_BADFILE }
      guard let store = unsafe Unmanaged<CurlRoots>.fromOpaque(roots).takeUnretainedValue().store else {
        return CURLE_SSL_CACERT_BADFILE
      }
      unsafe SSL_CTX_set1_cert_store(OpaquePointer(sslContext), store)
      return CURLE_OK
    }
  }
}
