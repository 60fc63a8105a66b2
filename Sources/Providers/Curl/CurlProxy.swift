// The proxy of a libcurl handle: sets it up and reads the proxy's answers.
//
// libcurl reads the answer to CONNECT as long as bytes arrive and so could block the event loop. Each line is therefore also passed
// to `ConnectAnswer`, as for the other providers. If `ConnectAnswer` refuses a line, the connection is closed at once with its
// reason.
//
// libcurl includes the bytes of CONNECT in the bytes of the request. They are subtracted here: before there is a connection to the
// server, no byte of the request has been sent.

internal import CCurl
internal import CShims
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The proxy of one easy handle. Used only by its transfer.
@safe
final class CurlProxy {
  private let proxy: HTTPProxy
  private let handle: UnsafeMutableRawPointer
  /// The value of CURLOPT_PROXY.
  let url: String
  private var headers: UnsafeMutablePointer<curl_slist>?
  private var target = ""
  private var isLoggedIn = false
  /// The socket of the connection being opened; nil when it is open, and on a reused connection.
  private var socket: curl_socket_t?
  /// The proxy's answer on the connection being opened.
  private var answer = ConnectAnswer()
  private var fault: ConnectAnswer.Fault?
  /// Number of bytes libcurl had counted when the connection to the server was open; nil before.
  private var bytesBefore: Int?

  /// - Parameter handle: must outlive this object's use.
  init(_ proxy: HTTPProxy, of handle: UnsafeMutableRawPointer) {
    self.proxy = proxy
    unsafe self.handle = handle
    url = "http://\(proxy)"
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_HTTPPROXYTUNNEL, 1)  // also to a server without TLS
    // The headers of the proxy's answer are not headers of the server's answer.
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_HEADEROPT, Int(CURLHEADER_SEPARATE))
  }

  deinit {
    unsafe curl_slist_free_all(headers)
  }

  /// A request begins.
  ///
  /// - Parameter target: host and port in the format of `HTTPProxy.authority`.
  func begin(_ target: String) {
    self.target = target
    let authorization = proxy.authorization
    isLoggedIn = authorization != nil
    guard let authorization else { return }
    unsafe headers = curl_slist_append(nil, "Proxy-Authorization: \(authorization)")
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_PROXYHEADER, headers)
  }

  /// Forgets the request and the credentials.
  func finish() {
    _ = unsafe shim_curl_easy_setopt_pointer(handle, CURLOPT_PROXYHEADER, nil)
    unsafe curl_slist_free_all(headers)
    unsafe headers = nil
    (socket, answer, fault, bytesBefore) = (nil, ConnectAnswer(), nil, nil)
  }

  /// A connection to the proxy is being opened.
  func didOpen(_ socket: curl_socket_t) {
    (self.socket, answer, fault) = (socket, ConnectAnswer(), nil)
  }

  /// A header line was read. It is the proxy's until there is a connection to the server.
  func didReceive(_ line: UnsafeRawBufferPointer) {
    guard let socket, fault == nil else { return }
    do throws(ConnectAnswer.Fault) {
      try unsafe answer.receive(line)
    } catch {
      fault = error
      shutdown(socket, Int32(SHUT_RDWR))  // libcurl then reads the end of the connection
    }
  }

  /// The connection to the server is open.
  func didConnect() {
    socket = nil
    bytesBefore = bytesBefore ?? requestBytes
  }

  /// Number of bytes counted by libcurl that are not part of the request.
  var bytesOfConnect: Int { bytesBefore ?? .max }

  /// The failure, if there was no connection to the server yet; otherwise nil.
  func failure(of code: CURLcode) -> CurlFailure? {
    guard bytesBefore == nil else { return nil }
    let fault = self.fault ?? (endsConnect(code) ? .closed : nil)
    if let fault {
      let reason = fault.isAboutLogin ? CurlFailure.Reason.proxyAuthenticationRequired : .proxyFailed
      return CurlFailure(reason, detail: "the proxy \(proxy) \(fault.words(target: target, isLoggedIn: isLoggedIn))")
    }
    let words = unsafe String(cString: curl_easy_strerror(code))
    return CurlFailure(CurlFailure.Reason(code), detail: "\(words), through the proxy \(proxy)")
  }

  /// Whether the proxy closed the connection before there was a tunnel.
  private func endsConnect(_ code: CURLcode) -> Bool {
    !answer.isOpen
      && [CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_GOT_NOTHING, CURLE_PROXY].contains(code)
  }

  private var requestBytes: Int {
    var count = 0
    _ = unsafe shim_curl_easy_getinfo_long(handle, CURLINFO_REQUEST_SIZE, &count)
    return count
  }
}
