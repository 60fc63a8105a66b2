// The TLS handler in a channel without a socket: every byte and every event of a connection, in the order of the test.

import COpenSSL
import Foundation
import HTTP2TestSupport
import HTTPSurfaceTestSupport
import NIOCore
import NIOEmbedded
import Runtime
import Testing

@testable import HTTPSurface

/// Stands where the socket is, and keeps what the channel does to it.
private final class SocketEnd: ChannelOutboundHandler {
  typealias OutboundIn = ByteBuffer

  private(set) var hasOutputEnded = false
  private(set) var outputEndPromise: EventLoopPromise<Void>?

  func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    guard mode == .output else { return context.close(mode: mode, promise: promise) }
    hasOutputEnded = true
    outputEndPromise = promise
  }
}

/// Stands where the server is, and keeps what it gets.
private final class ServerEnd: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer

  private(set) var received: [UInt8] = []
  private(set) var errors: [any Error] = []
  private(set) var hasInputEnded = false
  private(set) var isInactive = false

  func channelRead(context: ChannelHandlerContext, data: NIOAny) { received += unwrapInboundIn(data).readableBytesView }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { errors.append(error) }
  func channelInactive(context: ChannelHandlerContext) { isInactive = true }
  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if event as? ChannelEvent == .inputClosed { hasInputEnded = true }
  }
}

/// What became of a promise.
private final class Outcome {
  private(set) var result: Result<Void, any Error>?
  var isSuccess: Bool { if case .success? = result { true } else { false } }
  var error: ChannelError? { if case .failure(let error)? = result { error as? ChannelError } else { nil } }

  static func of(_ channel: EmbeddedChannel, _ act: (EventLoopPromise<Void>) -> Void) -> Outcome {
    let outcome = Outcome()
    let promise = channel.eventLoop.makePromise(of: Void.self)
    promise.futureResult.assumeIsolated().whenComplete { outcome.result = $0 }
    act(promise)
    return outcome
  }
}

/// A connection between a client and the handler.
private final class Connection {
  let channel: EmbeddedChannel
  let client: TLSTestPeer
  let socket = SocketEnd()
  let server = ServerEnd()
  private(set) weak var session: TLSSession?

  init(version: Int32 = 0, protocols: String = "\u{8}http/1.1") throws {
    let certificates = TestCertificates.shared
    let context = try TLSContext.listener(
      chain: Array(Data(contentsOf: URL(filePath: certificates.certificateFile))),
      key: Array(Data(contentsOf: URL(filePath: certificates.keyFile))), protocols: ["http/1.1"])
    let session = try TLSSession(context)
    self.session = session
    client = TLSTestPeer(caFile: certificates.caFile, version: version, protocols: protocols)
    channel = EmbeddedChannel(handlers: [socket, TLSServerHandler(session), server])
    try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
  }

  /// A connection whose handshake is complete.
  static func opened(version: Int32 = 0) throws -> Connection {
    let connection = try Connection(version: version)
    try connection.exchange()
    return connection
  }

  func toServer(_ bytes: [UInt8], piece: Int = .max) throws {
    for start in stride(from: 0, to: bytes.count, by: piece) {
      try channel.writeInbound(ByteBuffer(bytes: bytes[start..<(start + min(piece, bytes.count - start))]))
    }
  }

  func fromServer() throws -> [UInt8] {
    var bytes: [UInt8] = []
    while let buffer = try channel.readOutbound(as: ByteBuffer.self) { bytes += buffer.readableBytesView }
    return bytes
  }

  /// Lets both sides send until neither has anything to say.
  func exchange(piece: Int = .max) throws {
    var toServer = client.take()
    repeat {
      try self.toServer(toServer, piece: piece)
      let toClient = try fromServer()
      toServer = []
      for start in stride(from: 0, to: toClient.count, by: piece) {
        toServer += client.take(Array(toClient[start..<(start + min(piece, toClient.count - start))]))
      }
    } while !toServer.isEmpty
  }

  @discardableResult
  func write(_ bytes: [UInt8], flush: Bool = true) -> Outcome {
    Outcome.of(channel) { promise in
      channel.write(ByteBuffer(bytes: bytes), promise: promise)
      if flush { channel.flush() }
    }
  }

  func close(_ mode: CloseMode = .all) -> Outcome {
    Outcome.of(channel) { channel.close(mode: mode, promise: $0) }
  }

  /// The end of the client's bytes (FIN).
  func clientHangsUp() { channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }

  var handshakeFailure: TLSError.Code? {
    server.errors.count == 1 ? (server.errors[0] as? TLSHandshakeFailure)?.cause.code : nil
  }
  var failure: TLSError.Code? { server.errors.count == 1 ? (server.errors[0] as? TLSError)?.code : nil }
}

private let versions = [TLS1_2_VERSION, TLS1_3_VERSION]
/// Bytes that differ from their neighbours in every record.
private func bytes(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) } }

struct TLSServerHandlerTests {
  // MARK: - The handshake

  @Test(arguments: versions)
  func `a handshake and data arrive byte by byte`(version: Int32) throws {
    let connection = try Connection(version: version)
    try connection.exchange(piece: 1)
    #expect(connection.client.isOpen && connection.client.chosenProtocol == "http/1.1")
    #expect(connection.server.received == [])
    try connection.toServer(connection.client.send(bytes(100)), piece: 1)
    #expect(connection.server.received == bytes(100))
    connection.write(bytes(200))
    try connection.exchange(piece: 1)
    #expect(connection.client.received == bytes(200))
    #expect(connection.server.errors.isEmpty && connection.client.failure == nil)
  }

  @Test func `a request in the same bytes as the end of the handshake is not lost`() throws {
    let connection = try Connection(version: TLS1_3_VERSION)
    try connection.toServer(connection.client.take())
    let finished = connection.client.take(try connection.fromServer())
    try connection.toServer(finished + connection.client.send(bytes(10)))
    #expect(connection.server.received == bytes(10))
  }

  @Test func `a client that offers only other protocols gets no answer to its offer`() throws {
    let connection = try Connection(protocols: "\u{2}h2")
    try connection.exchange()
    #expect(connection.client.isOpen && connection.client.chosenProtocol == nil)
  }

  @Test(arguments: [TLS1_VERSION, TLS1_1_VERSION])
  func `older versions are refused with an alert`(version: Int32) throws {
    let connection = try Connection(version: version)
    try connection.exchange()
    #expect(connection.client.failure?.contains("alert protocol version") == true)
    #expect(connection.handshakeFailure == .handshake && connection.server.isInactive)
  }

  @Test(arguments: [
    "GET / HTTP/1.1\r\nHost: api\r\n\r\n", "SSH-2.0-x\r\n", "\0\0\0\0\0\0\0\0", "\u{16}\u{3}\u{1}\0\u{4}\u{1}\0\0\0",
  ])
  func `what is not TLS fails the handshake, once`(text: String) throws {
    let connection = try Connection()
    try connection.toServer(Array(text.utf8), piece: 3)
    #expect(connection.handshakeFailure == .handshake && connection.server.isInactive)
    #expect(connection.server.received == [])
  }

  @Test func `a client that refuses the certificate is told apart`() throws {
    let connection = try Connection()
    let stranger = TLSTestPeer(caFile: TestCertificates.stranger.caFile)
    try connection.toServer(stranger.take())
    try connection.toServer(stranger.take(connection.fromServer()))
    #expect(stranger.failure == "certificate verify failed")
    #expect(connection.handshakeFailure == .refused && connection.server.isInactive)
  }

  @Test(arguments: [false, true])
  func `a client that goes away during the handshake is told apart`(hasHalfClosed: Bool) throws {
    let connection = try Connection()
    try connection.toServer(Array(connection.client.take().prefix(50)))
    if hasHalfClosed {
      connection.clientHangsUp()
    } else {
      connection.channel.pipeline.fireChannelInactive()
    }
    #expect(connection.server.isInactive)
    #expect(connection.handshakeFailure == .connection)
  }

  // MARK: - Writing

  @Test func `what is written during the handshake is sent after it, in order`() throws {
    let connection = try Connection()
    let outcomes = [connection.write(bytes(10)), connection.write([]), connection.write(bytes(20))]
    #expect(try connection.fromServer() == [])
    #expect(outcomes.allSatisfy { $0.result == nil })
    try connection.exchange()
    #expect(connection.client.received == bytes(10) + bytes(20))
    #expect(outcomes.allSatisfy { $0.isSuccess })
  }

  @Test(arguments: [false, true])
  func `a promise is kept when the ciphertext is written, not before`(isOpen: Bool) throws {
    let connection = isOpen ? try .opened() : try Connection()
    let outcome = connection.write(bytes(10), flush: false)
    try connection.exchange()
    #expect(outcome.result == nil && connection.client.received == [])
    connection.channel.flush()
    #expect(outcome.isSuccess)
    try connection.exchange()
    #expect(connection.client.received == bytes(10))
  }

  @Test func `writes that wait for the handshake fail if the connection is closed`() throws {
    let connection = try Connection()
    let written = connection.write(bytes(10))
    #expect(connection.close().isSuccess)
    #expect(written.error == .ioOnClosedChannel && connection.server.isInactive)
    #expect(connection.write([1]).error == .ioOnClosedChannel)
    #expect(connection.server.errors.isEmpty)
  }

  @Test(arguments: versions)
  func `a megabyte arrives whole in both directions, in pieces that fit no record`(version: Int32) throws {
    let connection = try Connection.opened(version: version)
    let body = bytes(1 << 20)
    try connection.toServer(connection.client.send(body), piece: 1_447)
    #expect(connection.server.received == body)
    #expect(connection.write(body).isSuccess)
    try connection.exchange(piece: 1_447)
    #expect(connection.client.received == body)
  }

  // MARK: - The end

  @Test func `a client that ends its direction still gets its answer`() throws {
    let connection = try Connection.opened()
    try connection.toServer(connection.client.send(bytes(5)) + connection.client.end())
    #expect(connection.server.received == bytes(5) && connection.server.hasInputEnded)
    #expect(connection.channel.isActive && connection.server.errors.isEmpty)
    // The end of TCP says nothing new.
    connection.clientHangsUp()
    #expect(connection.server.errors.isEmpty && connection.channel.isActive)
    connection.write(bytes(50))
    let closed = connection.close()
    #expect(closed.isSuccess && connection.server.isInactive)
    _ = connection.client.take(try connection.fromServer())
    #expect(connection.client.received == bytes(50) && connection.client.hasServerEnded)
  }

  @Test func `bytes that end without close_notify are reported, and the client still gets its answer`() throws {
    let connection = try Connection.opened()
    try connection.toServer(connection.client.send(bytes(5)))
    connection.clientHangsUp()
    #expect(connection.failure == .connection && connection.server.hasInputEnded && connection.channel.isActive)
    connection.write(bytes(50))
    try connection.exchange()
    #expect(connection.client.received == bytes(50))
  }

  @Test func `a connection that breaks is reported`() throws {
    let connection = try Connection.opened()
    connection.channel.pipeline.fireChannelInactive()
    #expect(connection.failure == .connection && connection.server.isInactive)
    #expect(connection.write([1]).error == .ioOnClosedChannel)
  }

  @Test func `half a close sends close_notify, and what the client still sends arrives`() throws {
    let connection = try Connection.opened()
    let written = connection.write(bytes(50))
    let ended = connection.close(.output)
    try connection.exchange()
    #expect(connection.client.received == bytes(50) && connection.client.hasServerEnded && written.isSuccess)
    #expect(connection.write([1]).error == .outputClosed)
    #expect(connection.close(.output).error == .outputClosed)
    try connection.toServer(connection.client.send(bytes(5)))
    #expect(connection.server.received == bytes(5))
    // The client ends its direction too, but the system has not sent all of ours yet.
    try connection.toServer(connection.client.end())
    #expect(connection.channel.isActive && ended.result == nil)
    connection.socket.outputEndPromise?.succeed()
    #expect(ended.isSuccess && connection.server.isInactive && connection.server.errors.isEmpty)
  }

  @Test func `half a close during the handshake waits for it, and for what was written before`() throws {
    let connection = try Connection()
    connection.write(bytes(50))
    let ended = connection.close(.output)
    #expect(connection.write([1]).error == .outputClosed)
    #expect(!connection.socket.hasOutputEnded)
    try connection.exchange()
    #expect(connection.client.received == bytes(50) && connection.client.hasServerEnded)
    connection.socket.outputEndPromise?.succeed()
    #expect(ended.isSuccess && connection.channel.isActive)
  }

  @Test(arguments: [false, true])
  func `a close waits for the client's close_notify, for a second`(isAnswered: Bool) throws {
    let connection = try Connection.opened()
    let written = connection.write(bytes(50))
    let closed = [connection.close(), connection.close(), connection.close(.output)]
    #expect(connection.write([1]).error == .ioOnClosedChannel)
    _ = connection.client.take(try connection.fromServer())
    #expect(connection.client.received == bytes(50) && connection.client.hasServerEnded && written.isSuccess)
    connection.channel.embeddedEventLoop.advanceTime(by: TLSServerHandler.closing - .nanoseconds(1))
    #expect(closed[0].result == nil && connection.channel.isActive)
    if isAnswered {
      try connection.toServer(connection.client.end())
    } else {
      connection.channel.embeddedEventLoop.advanceTime(by: .nanoseconds(1))
    }
    #expect(closed[0].isSuccess && closed[1].isSuccess && connection.server.isInactive)
    #expect(connection.server.errors.isEmpty)
  }

  @Test func `our input cannot be closed alone`() throws {
    #expect(try Connection.opened().close(.input).error == .operationUnsupported)
  }

  // MARK: - Hostile clients

  @Test func `a damaged record ends the connection with one error and an alert`() throws {
    let connection = try Connection.opened()
    var record = connection.client.send(bytes(100))
    record[50] ^= 1
    try connection.toServer(connection.client.send(bytes(5)) + record)
    try connection.toServer(connection.client.send(bytes(5)))
    #expect(connection.failure == .connection && connection.server.isInactive)
    _ = connection.client.take(try connection.fromServer())
    #expect(connection.client.failure?.contains("alert bad record mac") == true)
  }

  @Test func `another handshake on an open connection is refused`() throws {
    let connection = try Connection.opened(version: TLS1_2_VERSION)
    try connection.toServer(connection.client.renegotiate())
    let answer = try connection.fromServer()
    // One record: an alert (21). A handshake would be 22.
    #expect(answer.first == 21 && answer.count < 60)
    _ = connection.client.take(answer)
    #expect(connection.client.failure == "no renegotiation")
  }

  @Test func `a client that changes its keys now and then is served, and one that does nothing else is not`() throws {
    let connection = try Connection.opened(version: TLS1_3_VERSION)
    for _ in 0..<60 { try connection.toServer(connection.client.changeKeys()) }
    try connection.toServer(connection.client.send(bytes(5)))
    connection.write(bytes(6))
    try connection.exchange()
    #expect(connection.server.received == bytes(5) && connection.client.received == bytes(6))
    var changes: [UInt8] = []
    for _ in 0..<1_000 { changes += connection.client.changeKeys() }
    try connection.toServer(changes)
    #expect(connection.failure == .connection && connection.server.isInactive)
    #expect("\(connection.server.errors[0])".contains("more TLS messages"))
  }

  @Test func `what comes after close_notify is ignored`() throws {
    let connection = try Connection.opened()
    try connection.toServer(connection.client.end() + bytes(100))
    try connection.toServer(bytes(100))
    #expect(connection.server.hasInputEnded && connection.server.received == [] && connection.server.errors.isEmpty)
  }

  // MARK: - Memory

  @Test(arguments: ["closed", "broken", "refused", "hung up", "half closed"])
  func `a connection's session is freed however it ends`(end: String) throws {
    func session() throws -> () -> TLSSession? {
      let connection = try Connection.opened()
      let session = connection.session
      switch end {
      case "broken": connection.channel.pipeline.fireChannelInactive()
      case "refused": try connection.toServer(bytes(100))
      case "hung up": connection.clientHangsUp()
      case "half closed": _ = connection.close(.output)
      default: break
      }
      connection.socket.outputEndPromise?.succeed()
      connection.channel.close(mode: .all, promise: nil)
      connection.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
      _ = try? connection.channel.finish()
      return { [weak session] in session }
    }
    #expect(try session()() == nil)
  }
}
