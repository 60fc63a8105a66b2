// One libcurl easy handle and its current request. Handles are reused and keep the options that all requests share.
//
// If a reused connection ends before the answer, libcurl sends the request again by itself. A push would then arrive twice and be
// counted as one try. Bodies are therefore read from a callback that cannot rewind. If any part of the body has been sent, the
// request is never sent again, and its loss is reported.

internal import CCurl
internal import CShims
internal import Runtime

/// The owner of an easy handle. Confined to its client's loop.
@safe
final class CurlTransfer {
  let handle: UnsafeMutableRawPointer
  /// Identifies the transfer among those of its client.
  var id: UInt { unsafe UInt(bitPattern: handle) }
  private let responseSizeMax: Int
  private let keepalive: TCPKeepalive
  private let proxy: CurlProxy?
  /// The body to send, and the number of bytes that libcurl has read of it.
  private var upload: [UInt8] = []
  private var uploadedCount = 0
  /// Called for every received part of an answer.
  var didReceive: (() -> Void)?
  /// Called for each TLS record, inside libcurl.
  var didReceiveRecord: (() -> Void)?
  private(set) var tag: ObjectIdentifier?
  /// The host to which libcurl connects: the proxy or the server.
  private(set) var hop: CurlAddress.Origin?
  private var requestHeaders: UnsafeMutablePointer<curl_slist>?
  private var route: UnsafeMutablePointer<curl_slist>?
  private var body: [UInt8] = []
  private var fields = AnswerFields()
  private var isTooLarge = false
  private var mayLeave: (@Sendable () -> Bool)?
  private var isWithheld = false
  private(set) var completion: ((Result<CurlResponse, CurlFailure>) -> Void)?

  /// Nil if libcurl has no memory.
  init?(_ configuration: CurlConfiguration, roots: CurlRoots) {
    guard let handle = unsafe curl_easy_init() else { return nil }
    unsafe self.handle = handle
    responseSizeMax = configuration.responseSizeMax
    keepalive = configuration.keepalive
    proxy = configuration.proxy.map { unsafe CurlProxy($0, of: handle) }
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    unsafe set(CURLOPT_PRIVATE, context)
    unsafe set(CURLOPT_WRITEDATA, context)
    unsafe set(CURLOPT_HEADERDATA, context)
    _ = unsafe shim_curl_easy_setopt_data_callback(handle, CURLOPT_WRITEFUNCTION) { data, size, count, context in
      guard let data = unsafe data, let context = unsafe context else { return 0 }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      return unsafe transfer.receive(UnsafeRawBufferPointer(start: data, count: size * count)) ? size * count : 0
    }
    _ = unsafe shim_curl_easy_setopt_data_callback(handle, CURLOPT_HEADERFUNCTION) { data, size, count, context in
      guard let data = unsafe data, let context = unsafe context else { return 0 }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      unsafe transfer.receive(header: UnsafeRawBufferPointer(start: data, count: size * count))
      return size * count
    }
    unsafe set(CURLOPT_PREREQDATA, context)
    _ = unsafe shim_curl_easy_setopt_prereq_callback(handle) { context, _, _, _, _ in
      guard let context = unsafe context else { return CURL_PREREQFUNC_OK }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      return transfer.isAllowedToLeave() ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
    }
    unsafe set(CURLOPT_READDATA, context)
    _ = unsafe shim_curl_easy_setopt_data_callback(handle, CURLOPT_READFUNCTION) { space, size, count, context in
      guard let space = unsafe space, let context = unsafe context else { return 0 }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      return unsafe transfer.copyUpload(to: UnsafeMutableRawBufferPointer(start: space, count: size * count))
    }
    _ = unsafe shim_curl_easy_setopt_seek_callback(handle) { _, _, _ in CURL_SEEKFUNC_FAIL }
    unsafe set(CURLOPT_SOCKOPTDATA, context)
    _ = unsafe shim_curl_easy_setopt_sockopt_callback(handle) { context, socket, _ in
      guard let context = unsafe context else { return CURL_SOCKOPT_ERROR }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      transfer.proxy?.didOpen(socket)
      transfer.keepalive.apply(to: socket)
      return CURL_SOCKOPT_OK
    }
    // The debug callback is called for each TLS record. It is the only callback of libcurl while a server keeps it busy. Its
    // data are ignored, except the answer of a proxy.
    unsafe set(CURLOPT_DEBUGDATA, context)
    set(CURLOPT_VERBOSE, 1)
    _ = unsafe shim_curl_easy_setopt_debug_callback(handle) { _, type, data, count, context in
      guard let context = unsafe context else { return 0 }
      let transfer = unsafe Unmanaged<CurlTransfer>.fromOpaque(context).takeUnretainedValue()
      if type == CURLINFO_SSL_DATA_IN {
        transfer.didReceiveRecord?()
      } else if type == CURLINFO_HEADER_IN, let proxy = transfer.proxy {
        unsafe proxy.didReceive(UnsafeRawBufferPointer(start: data, count: count))
      }
      return 0
    }
    set(CURLOPT_NOSIGNAL, 1)
    set(CURLOPT_FOLLOWLOCATION, 0)
    set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
    set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))  // or later
    set(CURLOPT_MAXAGE_CONN, Int(clamping: configuration.idleConnectionTimeMax.milliseconds / 1000))
    // Only our configuration sets a proxy. HTTPS_PROXY and NO_PROXY of the environment are ignored.
    set(CURLOPT_PROXY, proxy?.url ?? "")
    set(CURLOPT_NOPROXY, "")
    set(CURLOPT_ACCEPT_ENCODING, "gzip, deflate")
    set(CURLOPT_USERAGENT, "push-gateway")
    unsafe roots.install(in: handle)
  }

  deinit {
    unsafe curl_easy_cleanup(handle)
    unsafe curl_slist_free_all(requestHeaders)
    unsafe curl_slist_free_all(route)
  }

  /// Sets the handle up for `request`.
  ///
  /// - Parameter hop: the host of `route`: the proxy if there is one, otherwise `origin`.
  func prepare(
    _ request: CurlRequest, to origin: CurlAddress.Origin, by hop: CurlAddress.Origin, over route: CurlRoutes.Route,
    timeout: Nanoseconds, connectTimeout: Nanoseconds,
    completion: @escaping (Result<CurlResponse, CurlFailure>) -> Void
  ) {
    self.completion = completion
    (mayLeave, tag) = (request.mayLeave, request.tag)
    self.hop = hop
    proxy?.begin(HTTPProxy.authority(origin.host, origin.port))
    if let entry = route.entry { unsafe self.route = curl_slist_append(nil, entry) }
    unsafe set(CURLOPT_RESOLVE, self.route)
    set(CURLOPT_URL, request.url)
    set(CURLOPT_PROTOCOLS_STR, origin.scheme.rawValue)
    set(CURLOPT_TIMEOUT_MS, Int(clamping: max(1, timeout.milliseconds)))
    set(CURLOPT_CONNECTTIMEOUT_MS, Int(clamping: max(1, min(timeout, connectTimeout).milliseconds)))
    var encoding: String?
    switch request.method {
    case .get: set(CURLOPT_HTTPGET, 1)
    case .post:
      upload = request.body
      if request.isCompressible, upload.count > Gzip.threshold, let compressed = Gzip.compress(upload) {
        upload = compressed
        encoding = "Content-Encoding: gzip"
      }
      set(CURLOPT_POST, 1)
      _ = unsafe shim_curl_easy_setopt_offset(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(upload.count))
    }
    append(header: "Expect:")  // no waiting for "100 Continue"
    if let encoding { append(header: encoding) }
    for (name, value) in request.headers { append(header: "\(name): \(value)") }
    unsafe set(CURLOPT_HTTPHEADER, requestHeaders)
  }

  /// The result of the request. Called once for each request, after the transfer was removed from the multi handle.
  func result(of code: CURLcode, now: Instant) -> Result<CurlResponse, CurlFailure> {
    let sentAt = sentAt(now: now)
    guard code == CURLE_OK else {
      if isWithheld { return .failure(CurlFailure(.withheld)) }
      if let failure = proxy?.failure(of: code) { return .failure(failure) }
      let reason = isTooLarge ? .responseTooLarge : CurlFailure.Reason(code)
      return .failure(CurlFailure(reason, detail: detail(of: code), sentAt: sentAt))
    }
    var status = 0
    _ = unsafe shim_curl_easy_getinfo_long(handle, CURLINFO_RESPONSE_CODE, &status)
    return .success(
      CurlResponse(
        status: UInt16(clamping: status), body: body, retryAfter: fields.retryAfter, date: fields.date,
        sentAt: sentAt ?? now))
  }

  /// Clears the request, its secrets and its answer. Returns the completion of the request.
  func finish() -> ((Result<CurlResponse, CurlFailure>) -> Void)? {
    unsafe set(CURLOPT_HTTPHEADER, nil)
    unsafe curl_slist_free_all(requestHeaders)
    unsafe requestHeaders = nil
    unsafe set(CURLOPT_RESOLVE, nil)
    unsafe curl_slist_free_all(route)
    unsafe route = nil
    hop = nil
    proxy?.finish()
    (didReceive, didReceiveRecord, tag) = (nil, nil, nil)
    (upload, uploadedCount, body) = ([], 0, [])
    (fields, isTooLarge) = (AnswerFields(), false)
    (mayLeave, isWithheld) = (nil, false)
    defer { completion = nil }
    return completion
  }

  /// Whether the request may be written. Called when there is a connection.
  private func isAllowedToLeave() -> Bool {
    isWithheld = mayLeave.map { !$0() } ?? false
    proxy?.didConnect()
    return !isWithheld
  }

  // MARK: - Sending

  private func copyUpload(to space: UnsafeMutableRawBufferPointer) -> Int {
    let part = upload[uploadedCount...].prefix(space.count)
    unsafe space.copyBytes(from: part)
    uploadedCount += part.count
    return part.count
  }

  // MARK: - Receiving

  private func receive(_ data: UnsafeRawBufferPointer) -> Bool {
    didReceive?()
    guard body.count + data.count <= responseSizeMax else {
      isTooLarge = true
      return false
    }
    unsafe body.append(contentsOf: data)
    return true
  }

  private func receive(header line: UnsafeRawBufferPointer) {
    didReceive?()
    unsafe fields.read(line)
  }

  // MARK: - libcurl's information about the request

  /// The address of the last connection, without brackets; empty before there is one.
  var peer: String {
    var text: UnsafeMutableRawPointer?
    _ = unsafe shim_curl_easy_getinfo_pointer(handle, CURLINFO_PRIMARY_IP, &text)
    return unsafe text.map { unsafe String(cString: $0.assumingMemoryBound(to: CChar.self)) } ?? ""
  }

  /// When sending the request began; nil if no byte was sent.
  private func sentAt(now: Instant) -> Instant? {
    var requestBytes = 0
    var (untilSending, total): (curl_off_t, curl_off_t) = (0, 0)
    _ = unsafe shim_curl_easy_getinfo_long(handle, CURLINFO_REQUEST_SIZE, &requestBytes)
    _ = unsafe shim_curl_easy_getinfo_offset(handle, CURLINFO_PRETRANSFER_TIME_T, &untilSending)
    _ = unsafe shim_curl_easy_getinfo_offset(handle, CURLINFO_TOTAL_TIME_T, &total)
    guard requestBytes > proxy?.bytesOfConnect ?? 0 else { return nil }
    return now - .microseconds(max(0, Int64(total - untilSending)))
  }

  private func detail(of code: CURLcode) -> String {
    var verification = 0
    if code == CURLE_PEER_FAILED_VERIFICATION {
      _ = unsafe shim_curl_easy_getinfo_long(handle, CURLINFO_SSL_VERIFYRESULT, &verification)
    }
    if verification != X509_V_OK { return unsafe String(cString: X509_verify_cert_error_string(verification)) }
    return unsafe String(cString: curl_easy_strerror(code))
  }

  // MARK: - Options. They fail only if there is no memory, and then the transfer fails, too.

  private func set(_ option: CURLoption, _ value: Int) {
    _ = unsafe shim_curl_easy_setopt_long(handle, option, value)
  }

  private func set(_ option: CURLoption, _ value: String) {
    _ = unsafe shim_curl_easy_setopt_string(handle, option, value)
  }

  private func set(_ option: CURLoption, _ value: UnsafeMutableRawPointer?) {
    _ = unsafe shim_curl_easy_setopt_pointer(handle, option, value)
  }

  private func append(header line: String) {
    guard let extended = unsafe curl_slist_append(requestHeaders, line) else { return }
    unsafe requestHeaders = extended
  }
}

extension CurlFailure.Reason {
  /// The reason for a code of libcurl.
  init(_ code: CURLcode) {
    switch code {
    case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: self = .nameNotResolved
    case CURLE_COULDNT_CONNECT: self = .notConnected
    case CURLE_PROXY: self = .proxyFailed
    case CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CIPHER: self = .tlsFailed
    case CURLE_PEER_FAILED_VERIFICATION: self = .untrusted
    case CURLE_SSL_CACERT_BADFILE: self = .rootsUnusable
    case CURLE_OPERATION_TIMEDOUT: self = .timedOut
    case CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE, CURLE_HTTP2, CURLE_HTTP2_STREAM,
      CURLE_SEND_FAIL_REWIND:  // libcurl would have sent it again
      self = .connectionLost
    case CURLE_WEIRD_SERVER_REPLY, CURLE_UNSUPPORTED_PROTOCOL, CURLE_BAD_CONTENT_ENCODING: self = .malformedResponse
    default: self = .other
    }
  }
}
