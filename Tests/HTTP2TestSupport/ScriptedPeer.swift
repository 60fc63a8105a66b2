// A provider on 127.0.0.1 that follows a script with raw frames. It answers correctly until it is armed.

import Runtime

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A TLS listener whose connections follow a `PeerScript`.
// @unchecked: everything except `port`, `provider` and `loop` is used only on the loop.
public final class ScriptedPeer: @unchecked Sendable {
  /// The provider whose correct answers it gives.
  public enum Provider: String, Sendable, CaseIterable {
    case apns, fcm, expo
  }

  /// How long a script is followed; afterwards the peer answers correctly again.
  public enum Scope: Sendable {
    /// For this number of connections: the one that is open when the peer is armed, and later ones.
    case connections(Int)
    /// For this number of requests, on any connection.
    case requests(Int)
    case always
  }

  /// Counts since the peer was armed.
  public struct Counts: Sendable {
    /// When it was armed.
    public var since = Instant(nanoseconds: .min)
    public var connections = 0
    /// Requests that arrived whole.
    public var requests = 0
    /// The number of these that were accepted.
    public var accepted = 0
    /// Bytes written by `ScriptedConnection.flood`.
    public var floodBytes = 0
  }

  public let provider: Provider
  public let loop: EventLoop
  public let port: UInt16
  public private(set) var counts = Counts()
  private let ownsLoop: Bool
  private let contexts: Contexts
  private var listener: TCPListener?
  private var connections: [ScriptedConnection] = []
  private var script = PeerScript()
  private var scope = Scope.connections(0)
  /// Sockets that a script keeps open.
  private var held: [FileDescriptor] = []

  /// The certificates of peers, made once for many of them.
  public struct Contexts: Sendable {
    let good: TLSContext
    let stranger: TLSContext
    let withoutALPN: TLSContext

    /// - Parameters:
    ///   - certificateFile: the chain that the clients trust, PEM.
    ///   - keyFile: its key.
    public init(certificateFile: String, keyFile: String) throws {
      good = try TLSContext.server(
        certificateFile: certificateFile, keyFile: keyFile, protocols: ["h2"])
      withoutALPN = try TLSContext.server(certificateFile: certificateFile, keyFile: keyFile, protocols: [])
      let stranger = TestCertificates.stranger
      self.stranger = try TLSContext.server(certificateFile: stranger.certificateFile, keyFile: stranger.keyFile)
    }
  }

  /// - Parameters:
  ///   - address: numeric.
  ///   - loop: nil for a loop of its own.
  public init(_ provider: Provider, _ contexts: Contexts, address: String = "127.0.0.1", loop: EventLoop? = nil) throws
  {
    self.provider = provider
    self.contexts = contexts
    ownsLoop = loop == nil
    self.loop = loop ?? EventLoop(name: "hostile-peer")
    let listener = try TCPListener(on: SocketAddress(numericHost: address, port: 0)!, loop: self.loop)
    port = listener.port
    self.listener = listener
    self.loop.execute { [self] in start() }
  }

  deinit {
    if ownsLoop { loop.stop() }
  }

  /// Runs `body` on the loop.
  public func perform<Result: Sendable>(_ body: @escaping @Sendable (ScriptedPeer) -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      loop.execute { [self] in continuation.resume(returning: body(self)) }
    }
  }

  /// Starts a script, also on the open connections.
  public func arm(_ script: PeerScript, _ scope: Scope) {
    self.script = script
    self.scope = scope
    counts = Counts(since: loop.now)
    for connection in connections {
      let script = scriptOfNextConnection()
      connection.script = script
      script.onArm(connection)
    }
  }

  /// The clients' ports of the connections that are open.
  public var clientPorts: [UInt16] { connections.compactMap(\.clientPort) }

  /// Listens no more: the system refuses new connections.
  public func stopListening() {
    listener?.close()
    listener = nil
  }

  public func listenAgain() {
    // Another process may have the port for a moment: then it is tried again.
    guard let listener = try? TCPListener(on: SocketAddress(numericHost: "127.0.0.1", port: port)!, loop: loop) else {
      loop.schedule(at: loop.now + .milliseconds(50)) { [weak self] in self?.listenAgain() }
      return
    }
    self.listener = listener
    start()
  }

  /// Keeps a socket open without sending anything.
  public func hold(_ socket: FileDescriptor) { held.append(socket) }

  /// Ends everything.
  public func close() {
    stopListening()
    held = []
    for connection in connections { connection.abort() }
  }

  // MARK: - For its connections

  func noteRequest() { counts.requests += 1 }
  func noteAccepted() { counts.accepted += 1 }
  func noteFlood(_ bytes: Int) { counts.floodBytes += bytes }
  func forget(_ connection: ScriptedConnection) { connections.removeAll { $0 === connection } }

  /// Whether the next request meets the script's answer.
  func takesHostileRequest() -> Bool {
    guard case .requests(let left) = scope else { return true }
    scope = .requests(max(left - 1, 0))
    return left > 0
  }

  // MARK: - Accepting

  private func scriptOfNextConnection() -> PeerScript {
    guard case .connections(let left) = scope else { return script }
    scope = .connections(max(left - 1, 0))
    return left > 0 ? script : PeerScript()
  }

  private func start() {
    listener?.start { [weak self] socket in self?.accept(socket) }
  }

  private func accept(_ socket: FileDescriptor) {
    counts.connections += 1
    let script = scriptOfNextConnection()
    let context: TLSContext
    switch script.transport {
    case .tls: context = contexts.good
    case .strangersTLS: context = contexts.stranger
    case .tlsWithoutALPN: context = contexts.withoutALPN
    case .socket(let step): return step(self, socket)
    }
    guard let stream = try? TLSStream(socket, context: context, loop: loop) else { return }
    let connection = ScriptedConnection(stream, socket, script, peer: self)
    connections.append(connection)
    stream.delegate = connection
    stream.start()
  }
}

extension FileDescriptor {
  /// Writes bytes to a socket and ignores errors.
  public func push(_ bytes: [UInt8]) { _ = send(rawValue, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

  /// Ends a TCP connection by RST instead of FIN.
  public func resetConnection() {
    var nobody = sockaddr()
    nobody.sa_family = sa_family_t(AF_UNSPEC)
    _ = connect(rawValue, &nobody, socklen_t(MemoryLayout<sockaddr>.size))
  }
}
