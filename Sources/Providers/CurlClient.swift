// HTTP/1.1 over libcurl's multi interface, driven by an event loop: for what is batched or rare (Expo, OAuth,
// webhooks).
//
// libcurl owns its sockets. It tells which readiness and which timer it wants, the loop tells it when either is there,
// and finished transfers are picked up after each step. No callback of libcurl calls back into it: completions run
// afterwards.

internal import CCurl
internal import CShims
public import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// An HTTP client that lives on one event loop and belongs to an actor there.
///
/// Keeps connections open and uses them again, verifies certificates, follows no redirect, obeys no proxy of the
/// environment. `close()` it on its loop before letting go of it.
@safe
public final class CurlClient {
  public typealias Completion = (Result<CurlResponse, CurlFailure>) -> Void

  private let loop: EventLoop
  private let configuration: CurlConfiguration
  private let roots: CurlRoots
  private var multi: UnsafeMutableRawPointer?
  private var watches: [curl_socket_t: EventLoop.Watch] = [:]
  private var timer: EventLoop.Timer?
  /// By `CurlTransfer.id`.
  private var running: [UInt: CurlTransfer] = [:]
  private var idle: [CurlTransfer] = []
  private var requestCount = 0

  /// Transfers handed over and not finished.
  public var runningCount: Int { running.count }

  public init(loop: EventLoop, configuration: CurlConfiguration) {
    self.loop = loop
    self.configuration = configuration
    roots = CurlRoots.with(file: configuration.caFile)
    precondition(Self.isLibraryReady, "libcurl could not be set up")
    guard let multi = unsafe curl_multi_init() else { preconditionFailure("libcurl has no memory") }
    unsafe self.multi = multi
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    _ = unsafe shim_curl_multi_setopt_long(multi, CURLMOPT_MAX_HOST_CONNECTIONS, configuration.connectionsPerHostMax)
    _ = unsafe shim_curl_multi_setopt_pointer(multi, CURLMOPT_SOCKETDATA, context)
    _ = unsafe shim_curl_multi_setopt_pointer(multi, CURLMOPT_TIMERDATA, context)
    _ = unsafe shim_curl_multi_setopt_socket_callback(multi) { _, socket, what, context, _ in
      guard let context = unsafe context else { return 0 }
      unsafe Unmanaged<CurlClient>.fromOpaque(context).takeUnretainedValue().watch(socket, for: what)
      return 0
    }
    _ = unsafe shim_curl_multi_setopt_timer_callback(multi) { _, milliseconds, context in
      guard let context = unsafe context else { return 0 }
      unsafe Unmanaged<CurlClient>.fromOpaque(context).takeUnretainedValue().wake(after: milliseconds)
      return 0
    }
  }

  deinit {
    precondition(unsafe multi == nil, "close() a CurlClient before letting go of it")
  }

  /// Sends a request. `completion` is called exactly once, on the loop, never inside this call.
  public func perform(_ request: CurlRequest, completion: @escaping Completion) {
    loop.checkIsolated()
    let left = min(request.deadline - loop.now, configuration.totalTimeout)
    guard unsafe multi != nil else { return fail(.closed, completion) }
    let connectTimeout = min(configuration.connectTimeout, request.connectDeadline - loop.now)
    guard left > .zero, connectTimeout > .zero else { return fail(.deadlinePassed, completion) }
    guard let scheme = CurlAddress.allowedScheme(of: request.url) else { return fail(.addressNotAllowed, completion) }
    guard request.headers.allSatisfy({ Self.isPlain($0.name) && Self.isPlain($0.value) }) else {
      return fail(.malformedRequest, completion)
    }
    guard let transfer = idle.popLast() ?? CurlTransfer(configuration, roots: roots) else {
      return fail(.other, completion)
    }
    transfer.prepare(
      request, scheme: scheme, timeout: left, connectTimeout: connectTimeout, completion: completion)
    requestCount += 1
    transfer.isLastOfConnection = requestCount % configuration.requestsBeforeRenewal == 0
    running[transfer.id] = transfer
    unsafe curl_multi_add_handle(multi, transfer.handle)  // libcurl sets a timer of 0 and begins when it fires
  }

  /// Sends a request and waits for its result; for callers that live on the client's loop.
  public func perform(
    _ request: CurlRequest, isolation: isolated (any Actor)? = #isolation
  ) async -> Result<CurlResponse, CurlFailure> {
    await withCheckedContinuation { continuation in
      perform(request) { continuation.resume(returning: $0) }
    }
  }

  /// Closes every connection. What is under way fails with `closed`.
  public func close() {
    loop.checkIsolated()
    guard let multi = unsafe multi else { return }
    let now = loop.now
    for transfer in running.values {
      unsafe curl_multi_remove_handle(multi, transfer.handle)
      let sentAt = transfer.result(of: CURLE_ABORTED_BY_CALLBACK, now: now).failure?.sentAt
      let completion = transfer.finish()
      loop.atEndOfTurn { completion?(.failure(CurlFailure(.closed, sentAt: sentAt))) }
    }
    running.removeAll()
    idle.removeAll()
    unsafe curl_multi_cleanup(multi)
    unsafe self.multi = nil
    timer?.cancel()
    for watch in watches.values { loop.unwatch(watch) }
    watches.removeAll()
  }

  private func fail(_ reason: CurlFailure.Reason, _ completion: @escaping Completion) {
    loop.atEndOfTurn { completion(.failure(CurlFailure(reason))) }
  }

  /// Whether a text may go into a header: a line end would begin another one.
  private static func isPlain(_ text: String) -> Bool {
    text.utf8.allSatisfy { ($0 >= 0x20 && $0 != 0x7F) || $0 == 0x09 }
  }

  // MARK: - Called by libcurl

  private func watch(_ socket: curl_socket_t, for what: Int32) {
    guard what != CURL_POLL_REMOVE else {
      if let watch = watches.removeValue(forKey: socket) { loop.unwatch(watch) }
      return
    }
    var interest: EventLoop.Readiness = []
    if what == CURL_POLL_IN || what == CURL_POLL_INOUT { interest.insert(.readable) }
    if what == CURL_POLL_OUT || what == CURL_POLL_INOUT { interest.insert(.writable) }
    if let watch = watches[socket] {
      loop.update(watch, for: interest)
    } else {
      watches[socket] = loop.watch(socket, for: interest) { [unowned self] readiness in
        var events: Int32 = 0
        if readiness.contains(.readable) { events |= CURL_CSELECT_IN }
        if readiness.contains(.writable) { events |= CURL_CSELECT_OUT }
        if readiness.contains(.hangup) { events |= CURL_CSELECT_ERR }
        step(socket, events)
      }
    }
  }

  private func wake(after milliseconds: Int) {
    timer?.cancel()
    timer = nil
    guard milliseconds >= 0 else { return }
    timer = loop.schedule(at: loop.now + .milliseconds(Int64(milliseconds))) { [unowned self] in
      timer = nil
      step(CURL_SOCKET_TIMEOUT, 0)
    }
  }

  // MARK: - Driving libcurl

  private func step(_ socket: curl_socket_t, _ events: Int32) {
    guard let multi = unsafe multi else { return }
    var stillRunning: Int32 = 0
    unsafe curl_multi_socket_action(multi, socket, events, &stillRunning)
    collectFinished()
  }

  private func collectFinished() {
    var left: Int32 = 0
    // A completion may close the client, so the handle is looked up each time.
    while let multi = unsafe multi, let message = unsafe curl_multi_info_read(multi, &left) {
      guard unsafe message.pointee.msg == CURLMSG_DONE, let handle = unsafe message.pointee.easy_handle,
        let transfer = running.removeValue(forKey: UInt(bitPattern: handle))
      else { continue }
      let code = unsafe message.pointee.data.result  // the message goes away with the next call
      unsafe curl_multi_remove_handle(multi, handle)
      let result = transfer.result(of: code, now: loop.now)
      let completion = transfer.finish()
      idle.append(transfer)
      completion?(result)
    }
  }

  /// libcurl is set up once, before the first handle. Writing to a connection whose peer has gone must be an error
  /// here, not a signal that ends the process; libcurl leaves that to us when it is told to use no signals.
  private static let isLibraryReady: Bool = {
    _ = signal(SIGPIPE, SIG_IGN)
    return curl_global_init(Int(CURL_GLOBAL_ALL)) == CURLE_OK
  }()
}

extension Result {
  fileprivate var failure: Failure? {
    if case .failure(let failure) = self { failure } else { nil }
  }
}
