// The CA certificates that a libcurl handle trusts: the system's and a configured file.

internal import CCurl
internal import CShims
internal import Synchronization

/// OpenSSL's default roots and an optional PEM file, read once and shared by all connections.
///
/// libcurl itself would read the system's whole bundle again for every connection, which takes tens of milliseconds on the event
/// loop. Its option for a CA file would replace the system's roots.
// @unchecked: OpenSSL counts the references to a store atomically and locks the store itself. The pointer never changes.
@safe final class CurlRoots: @unchecked Sendable {
  private static let known = Mutex<[String?: CurlRoots]>([:])

  /// Nil if a certificate could not be read. No connection is then opened.
  private let store: OpaquePointer?

  /// The roots with this file. They are read at the first call.
  ///
  /// - Parameter file: a PEM file of CA certificates trusted in addition to the system's; nil for none.
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

  /// Sets the roots of a handle. The handle must not outlive this object.
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
