// CONNECT over a socket that is connected to a proxy.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Asks a proxy for a tunnel, once. Confined to its event loop. The owner limits its time.
final class ProxyTunnel {
  typealias Outcome = Result<Void, ConnectAnswer.Fault>

  private let socket: FileDescriptor
  private let loop: EventLoop
  private var watch: EventLoop.Watch?
  private var completion: ((Outcome) -> Void)?
  private var answer = ConnectAnswer()
  private var request: [UInt8]

  /// - Parameters:
  ///   - socket: connected to the proxy, and not used yet.
  ///   - target: host and port, as `HTTPProxy.authority` writes them.
  ///   - completion: called once on the loop, never inside `start`, unless `cancel` comes first.
  init(
    _ socket: FileDescriptor, through proxy: HTTPProxy, to target: String, loop: EventLoop,
    completion: @escaping (Outcome) -> Void
  ) {
    self.socket = socket
    self.loop = loop
    self.completion = completion
    // Other bytes could be read as another line of the head.
    request = target.utf8.allSatisfy { (0x21...0x7E).contains($0) } ? proxy.request(for: target) : []
  }

  func start() {
    guard completion != nil else { return }
    guard !request.isEmpty else {
      return loop.atEndOfTurn { [self] in finish(.failure(.targetNotASCII)) }
    }
    watch = loop.watch(socket.rawValue, for: .writable) { [weak self] _ in self?.advance() }
  }

  /// Gives up without calling `completion`.
  func cancel() {
    completion = nil
    if let watch { loop.unwatch(watch) }
    watch = nil
  }

  private func advance() {
    guard !request.isEmpty else { return read() }
    #if canImport(Glibc)
    let count = unsafe send(socket.rawValue, request, request.count, Int32(MSG_NOSIGNAL))
    #else
    let count = unsafe send(socket.rawValue, request, request.count, 0)
    #endif
    guard count >= 0 else {
      if errno != EAGAIN, errno != EINTR { finish(.failure(.closed)) }
      return
    }
    request.removeFirst(count)
    if request.isEmpty, let watch { loop.update(watch, for: .readable) }
  }

  /// Reads at most the maximum size of an answer, so a proxy cannot keep the loop busy.
  private func read() {
    unsafe withUnsafeTemporaryAllocation(byteCount: ConnectAnswer.bytesMax + 1, alignment: 1) { input in
      let count = unsafe recv(socket.rawValue, input.baseAddress, input.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { return finish(.failure(.closed)) }
      do throws(ConnectAnswer.Fault) {
        try unsafe answer.receive(UnsafeRawBufferPointer(rebasing: input[..<count]))
        if answer.isOpen { finish(.success(())) }
      } catch {
        finish(.failure(error))
      }
    }
  }

  private func finish(_ outcome: Outcome) {
    let completion = self.completion
    cancel()
    completion?(outcome)
  }
}
