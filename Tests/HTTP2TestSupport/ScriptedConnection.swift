// One connection of a scripted peer: parses the frames that arrive, and writes what the script says.

import Runtime

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A client's connection. Confined to the peer's loop.
public final class ScriptedConnection: TLSStreamDelegate {
  private static let prefaceLength = 24
  private static let headLength = 9

  public var script: PeerScript
  public var provider: ScriptedPeer.Provider { peer?.provider ?? .apns }
  public var loop: EventLoop { stream.loop }
  public var isClosed: Bool { stream.isClosed }
  /// Reads everything and sends nothing.
  public var isMute = false
  /// The number of requests that arrived whole.
  public private(set) var requestCount = 0

  private weak var peer: ScriptedPeer?
  private let stream: TLSStream
  private let socket: FileDescriptor
  private var input: [UInt8] = []
  private var preface = prefaceLength
  private var isHTTP2 = true

  init(_ stream: TLSStream, _ socket: FileDescriptor, _ script: PeerScript, peer: ScriptedPeer) {
    self.stream = stream
    self.socket = socket
    self.script = script
    self.peer = peer
  }

  // MARK: - What a script can do

  public func send(_ bytes: [UInt8]) {
    guard !isMute, stream.isOpen else { return }
    stream.output += bytes
    stream.flush()
  }

  /// The provider's acceptance.
  public func answer(_ stream: UInt32, fields: [(String, String)] = []) {
    peer?.noteAccepted()
    let body = Self.yes(provider)
    let type = body.isEmpty ? [] : [("content-type", "application/json")]
    send(RawFrame.headers(stream, [(":status", "200")] + type + fields, ends: body.isEmpty))
    if !body.isEmpty { send(RawFrame.data(stream, body, ends: true)) }
  }

  /// An answer of any status, in the provider's format.
  public func answer(_ stream: UInt32, status: Int, _ fields: [(String, String)] = [], body: String = "") {
    send(RawFrame.headers(stream, [(":status", String(status))] + fields, ends: body.isEmpty))
    if !body.isEmpty { send(RawFrame.data(stream, Array(body.utf8), ends: true)) }
  }

  /// Sends one byte at a time.
  public func drip(_ bytes: [UInt8], every pause: Nanoseconds = .seconds(1)) {
    guard let first = bytes.first, !isClosed else { return }
    send([first])
    loop.schedule(at: loop.now + pause) { [weak self] in self?.drip(Array(bytes.dropFirst()), every: pause) }
  }

  /// Sends as fast as the client reads, until the client closes or the time is over.
  public func flood(for time: Nanoseconds = .seconds(8), _ bytes: [UInt8]) {
    flood(until: loop.now + time, bytes)
  }

  private func flood(until end: Instant, _ bytes: [UInt8]) {
    guard !isClosed, loop.now < end else { return }
    if stream.bytesPending < 256 * 1024 {
      peer?.noteFlood(bytes.count)
      send(bytes)
    }
    // Only the flood uses this loop: arriving bytes are read between two turns.
    loop.schedule(at: loop.now + .milliseconds(stream.bytesPending == 0 ? 0 : 1)) { [weak self] in
      self?.flood(until: end, bytes)
    }
  }

  /// Sends TLS' close_notify, and closes.
  public func close() {
    stream.close()
    peer?.forget(self)
  }

  /// Sends FIN without close_notify.
  public func abort() { shutdown(socket.rawValue, Int32(SHUT_RDWR)) }

  /// Sends RST.
  public func reset() { socket.resetConnection() }

  /// The client's port; IPv4 only.
  public var clientPort: UInt16? {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let status = withUnsafeMutableBytes(of: &address) {
      getpeername(socket.rawValue, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), &length)
    }
    return status == 0 ? UInt16(bigEndian: address.sin_port) : nil
  }

  /// The answer to an accepted push.
  public static func yes(_ provider: ScriptedPeer.Provider) -> [UInt8] {
    switch provider {
    case .apns: []
    case .fcm: Array(#"{"name":"projects/p/messages/1"}"#.utf8)
    case .expo: Array(#"{"data":[{"status":"ok","id":"00000000-0000-4000-8000-000000000001"}]}"#.utf8)
    }
  }

  // MARK: - TLSStreamDelegate

  public func streamDidOpen(_ stream: TLSStream) {
    isHTTP2 = stream.negotiatedProtocol == "h2"
    if isHTTP2 { script.onOpen(self) }
  }

  public func stream(_ stream: TLSStream, didReceive bytes: UnsafeRawBufferPointer) {
    if !isMute { input += bytes }
  }

  public func streamDidProgress(_ stream: TLSStream) {
    if isHTTP2 { readFrames() } else { readHTTP1() }
  }

  public func stream(_ stream: TLSStream, didCloseWith error: TLSError?) { peer?.forget(self) }

  // MARK: - Reading

  private func readFrames() {
    var rest = input[...]
    while !isMute {
      let skipped = min(preface, rest.count)
      rest = rest.dropFirst(skipped)
      preface -= skipped
      let head = Array(rest.prefix(Self.headLength))
      guard head.count == Self.headLength else { break }
      let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
      guard rest.count >= Self.headLength + length else { break }
      let payload = Array(rest.dropFirst(Self.headLength).prefix(length))
      rest = rest.dropFirst(Self.headLength + length)
      let stream = head[5...].reduce(UInt32(0)) { $0 << 8 | UInt32($1) } & 0x7FFF_FFFF
      take(head[3], flags: head[4], stream, payload)
    }
    input = Array(rest)
  }

  private func take(_ type: UInt8, flags: UInt8, _ stream: UInt32, _ payload: [UInt8]) {
    switch type {
    case RawFrame.settings where flags & RawFrame.ack == 0: script.onSettings(self)
    case RawFrame.ping where flags & RawFrame.ack == 0: script.onPing(self, payload)
    case RawFrame.headers, RawFrame.data:
      if flags & RawFrame.endsStream != 0 { takeRequest(stream) }
    default: break
    }
  }

  private func takeRequest(_ stream: UInt32) {
    requestCount += 1
    peer?.noteRequest()
    if peer?.takesHostileRequest() ?? false { script.onRequest(self, stream) } else { answer(stream) }
  }

  /// A POST of HTTP/1.1 with its content-length.
  private func readHTTP1() {
    guard let end = input.firstRange(of: Array("\r\n\r\n".utf8)) else { return }
    let head = String(decoding: input[..<end.lowerBound], as: UTF8.self).lowercased()
    let length = head.split(separator: "\r\n").first { $0.hasPrefix("content-length:") }
      .flatMap { Int($0.dropFirst(15).filter(\.isNumber)) }
    guard let length, input.count >= end.upperBound + length else { return }
    input.removeFirst(end.upperBound + length)
    requestCount += 1
    peer?.noteRequest()
    peer?.noteAccepted()
    let body = Self.yes(provider)
    send(
      Array("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \(body.count)\r\n\r\n".utf8) + body)
  }
}
