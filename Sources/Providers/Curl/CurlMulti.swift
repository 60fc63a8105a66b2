// One multi handle of libcurl: a set of connections and their transfers.
//
// libcurl owns its sockets. It requests readiness events and a timer, and the loop reports them to it. Finished transfers are
// collected after each step. No callback of libcurl calls a function of libcurl.

internal import CCurl
internal import CShims
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// A multi handle driven by an event loop. The owner must call `close()` before it releases the object.
@safe
final class CurlMulti {
  /// Called when a transfer has ended; its object may then be used for another request. Called outside libcurl, so it may call
  /// functions of libcurl.
  private let didFinish: (CurlTransfer, CURLcode, CurlMulti) -> Void
  private let loop: EventLoop
  private var handle: UnsafeMutableRawPointer?
  private var watches: [curl_socket_t: EventLoop.Watch] = [:]
  private var timer: EventLoop.Timer?
  /// The transfers under way, by `CurlTransfer.id`.
  private var running: [UInt: CurlTransfer] = [:]
  /// Number of started transfers.
  private(set) var requestCount = 0
  /// When a part of an answer was last received over any connection.
  private(set) var lastReceivedAt = Instant(nanoseconds: .min)
  let beganAt: Instant
  /// When a whole answer was last received.
  var answeredAt = Instant(nanoseconds: .min)
  /// Processor time that libcurl used in earlier steps since the last part of an answer or the last end of a transfer.
  private var wasted = Nanoseconds.zero
  private let wasteMax: Nanoseconds
  /// The thread's processor time at the start of the current step, and the number of TLS records read in this step.
  private var stepBegan = Nanoseconds.zero
  private var recordCount = 0
  /// Whether `wasteMax` was exceeded. All connections have then been shut down, and the handle must get no more requests.
  private(set) var isCut = false

  init(
    connectionsPerHostMax: Int, wasteMax: Nanoseconds, loop: EventLoop,
    didFinish: @escaping (CurlTransfer, CURLcode, CurlMulti) -> Void
  ) {
    self.loop = loop
    beganAt = loop.now
    self.didFinish = didFinish
    self.wasteMax = wasteMax
    guard let handle = unsafe curl_multi_init() else { preconditionFailure("libcurl has no memory") }
    unsafe self.handle = handle
    let context = unsafe Unmanaged.passUnretained(self).toOpaque()
    _ = unsafe shim_curl_multi_setopt_long(handle, CURLMOPT_MAX_HOST_CONNECTIONS, connectionsPerHostMax)
    _ = unsafe shim_curl_multi_setopt_pointer(handle, CURLMOPT_SOCKETDATA, context)
    _ = unsafe shim_curl_multi_setopt_pointer(handle, CURLMOPT_TIMERDATA, context)
    _ = unsafe shim_curl_multi_setopt_socket_callback(handle) { _, socket, what, context, _ in
      guard let context = unsafe context else { return 0 }
      unsafe Unmanaged<CurlMulti>.fromOpaque(context).takeUnretainedValue().watch(socket, for: what)
      return 0
    }
    _ = unsafe shim_curl_multi_setopt_timer_callback(handle) { _, milliseconds, context in
      guard let context = unsafe context else { return 0 }
      unsafe Unmanaged<CurlMulti>.fromOpaque(context).takeUnretainedValue().wake(after: milliseconds)
      return 0
    }
  }

  deinit {
    precondition(unsafe handle == nil, "a CurlMulti was released before close()")
  }

  /// Number of transfers under way.
  var runningCount: Int { running.count }

  /// Starts a transfer, at the earliest in the loop's next turn.
  func start(_ transfer: CurlTransfer) {
    guard let handle = unsafe handle else { preconditionFailure("a transfer was started on a closed multi handle") }
    requestCount += 1
    running[transfer.id] = transfer
    transfer.didReceive = { [unowned self] in lastReceivedAt = loop.now }
    transfer.didReceiveRecord = { [unowned self] in noteRecord() }
    unsafe curl_multi_add_handle(handle, transfer.handle)  // libcurl sets a timer of 0 and starts when it fires
  }

  /// The hosts to which it connects.
  var hops: Set<CurlAddress.Origin> { Set(running.values.compactMap(\.hop)) }

  /// Removes and returns the transfers with this tag. Their connections are closed; if others use a connection, only the stream is.
  func abandon(_ tag: ObjectIdentifier) -> [CurlTransfer] {
    guard let handle = unsafe handle else { return [] }
    let abandoned = running.values.filter { $0.tag == tag }
    for transfer in abandoned {
      running[transfer.id] = nil
      unsafe curl_multi_remove_handle(handle, transfer.handle)
    }
    return abandoned
  }

  /// Closes every connection. Returns the transfers that were under way; they are removed from the handle.
  func close() -> [CurlTransfer] {
    guard let handle = unsafe handle else { return [] }
    let transfers = Array(running.values)
    for transfer in transfers { unsafe curl_multi_remove_handle(handle, transfer.handle) }
    running.removeAll()
    unsafe curl_multi_cleanup(handle)
    unsafe self.handle = nil
    timer?.cancel()
    for watch in watches.values { loop.unwatch(watch) }
    watches.removeAll()
    return transfers
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
    guard let handle = unsafe handle else { return }
    let (begin, runningBefore) = (loop.now, running.count)
    (stepBegan, recordCount) = (SystemClock.threadProcessorTime, 0)
    var stillRunning: Int32 = 0
    unsafe curl_multi_socket_action(handle, socket, events, &stillRunning)
    let isOfUse = lastReceivedAt >= begin || Int(stillRunning) < runningBefore
    wasted = isOfUse ? .zero : wasted + (SystemClock.threadProcessorTime - stepBegan)
    collectFinished()
  }

  /// Enforces `wasteMax` inside libcurl, which reads as long as bytes arrive. Shuts its sockets down, so that it reads their end.
  private func noteRecord() {
    recordCount += 1
    guard recordCount % 16 == 0, !isCut, wasted + (SystemClock.threadProcessorTime - stepBegan) > wasteMax else {
      return
    }
    isCut = true
    for socket in watches.keys { shutdown(socket, Int32(SHUT_RDWR)) }
  }

  private func collectFinished() {
    var left: Int32 = 0
    // `didFinish` may call `close()`, so the handle is read each time.
    while let handle = unsafe handle, let message = unsafe curl_multi_info_read(handle, &left) {
      guard unsafe message.pointee.msg == CURLMSG_DONE, let easy = unsafe message.pointee.easy_handle,
        let transfer = running.removeValue(forKey: UInt(bitPattern: easy))
      else { continue }
      let code = unsafe message.pointee.data.result  // the next call invalidates the message
      unsafe curl_multi_remove_handle(handle, easy)
      didFinish(transfer, code, self)
    }
  }
}
