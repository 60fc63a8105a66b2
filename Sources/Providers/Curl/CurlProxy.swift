// How libcurl goes through a proxy, and what is made of the proxy's answers.
//
// libcurl has a reader of its own for the answer to CONNECT, which goes on as long as there are bytes, and so would stop the event
// loop. So each line that it reads is also given to `ConnectAnswer`, as for the other providers: what that refuses ends the connection
// at once, and says why.
//
// libcurl counts the bytes of CONNECT among those of the request. What counts here is the request: before there is a connection to the
// server none of it has left.

internal import CCurl
internal import CShims
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The proxy of one easy handle; touched by its transfer only.
@safe
final class CurlProxy {
  private let proxy: HTTPProxy
  private let handle: UnsafeMutableRawPointer
  /// For CURLOPT_PROXY.
  let url: String
  private var headers: UnsafeMutablePointer<curl_slist>?
  private var target = ""
  private var isLoggedIn = false
  /// The socket of the connection that is being made; nil when it is made, and on one that was there before.
  private var socket: curl_socket_t?
  /// Of the connection that is being made.
  private var answer = ConnectAnswer()
  private var fault: ConnectAnswer.Fault?
  /// How many bytes libcurl had counted when there was a connection to the server; nil before.
  private var bytesBefore: Int?

  /// - Parameter handle: must outlive this object's use.
  init(_ proxy: HTTPProxy, of handle: UnsafeMutableRawPointer) {
    self.proxy = proxy
    unsafe self.handle = handle
    url = "http://\(proxy)"
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_HTTPPROXYTUNNEL, 1)  // also to a server without TLS
    // They are no answer of the server.
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
    _ = unsafe shim_curl_easy_setopt_long(handle, CURLOPT_HEADEROPT, Int(CURLHEADER_SEPARATE))
  }

  deinit {
    unsafe curl_slist_free_all(headers)
  }

  /// A request begins.
  ///
  /// - Parameter target: host and port, as `HTTPProxy.authority` writes them.
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

  /// A connection to the proxy begins.
  func didOpen(_ socket: curl_socket_t) {
    (self.socket, answer, fault) = (socket, ConnectAnswer(), nil)
  }

  /// A line of a head was read: the proxy's as long as there is no connection to the server.
  func didReceive(_ line: UnsafeRawBufferPointer) {
    guard let socket, fault == nil else { return }
    do throws(ConnectAnswer.Fault) {
      try unsafe answer.receive(line)
    } catch {
      fault = error
      shutdown(socket, Int32(SHUT_RDWR))  // libcurl finds its end
    }
  }

  /// There is a connection to the server.
  func didConnect() {
    socket = nil
    bytesBefore = bytesBefore ?? requestBytes
  }

  /// How many of the bytes that libcurl counts are not the request's.
  var bytesOfConnect: Int { bytesBefore ?? .max }

  /// What has failed, if it was the way to the server.
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

  /// Whether the proxy hung up on us before there was a tunnel.
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
