// Reads a proxy's answer to CONNECT. No socket, no clock.
//
// Only the status and the end of the head matter (RFC 9110 §9.3.6): in an answer that makes a tunnel the fields about a body do not
// apply. No bytes may follow the head before the gateway has sent something, because no provider speaks first: such bytes are the
// proxy's own, for example a login page. Interim answers (1xx) are skipped. The size of everything together is limited.

/// The answer to one CONNECT.
public struct ConnectAnswer: Sendable {
  /// Why there is no tunnel.
  public enum Fault: Error, Equatable, Sendable {
    /// An answer with a status other than 2xx.
    case refused(status: Int)
    case isNotHTTP
    /// More than `bytesMax`.
    case tooLong
    /// Bytes behind the head of a 2xx answer.
    case bytesBehindHead
    /// The connection was closed or lost before the answer was complete.
    case closed
    /// The answer was not complete in time.
    case silent(seconds: Double)
    /// The name cannot be written into a request.
    case targetNotASCII

    /// Another user and password may help. tinyproxy answers wrong ones with 401, which a proxy should not use.
    public var isAboutLogin: Bool { self == .refused(status: 407) || self == .refused(status: 401) }

    /// Whether another address of the same proxy would give the same answer.
    public var isOfEveryAddress: Bool {
      switch self {
      case .refused(let status): (400...499).contains(status)
      case .targetNotASCII: true
      case .isNotHTTP, .tooLong, .bytesBehindHead, .closed, .silent: false
      }
    }
  }

  /// Maximum bytes of an answer, including interim answers before it.
  public static let bytesMax = 16 * 1024

  private static let version = Array("HTTP/1.".utf8)

  /// Whether there is a tunnel.
  public private(set) var isOpen = false
  /// The status of the head being read; nil before its first line is complete.
  private var status: Int?
  private var line: [UInt8] = []
  private var count = 0

  public init() {}

  /// Reads the next bytes of the answer.
  public mutating func receive(_ bytes: UnsafeRawBufferPointer) throws(Fault) {
    for index in bytes.indices { try receive(unsafe bytes[index]) }
  }

  mutating func receive(_ byte: UInt8) throws(Fault) {
    guard !isOpen else { throw .bytesBehindHead }
    count += 1
    guard count <= Self.bytesMax else { throw .tooLong }
    guard byte != UInt8(ascii: "\n") else { return try endLine() }
    line.append(byte)
    // A server of another protocol may never end a line.
    if status == nil, line.count <= Self.version.count, byte != Self.version[line.count - 1] { throw .isNotHTTP }
  }

  private mutating func endLine() throws(Fault) {
    if line.last == UInt8(ascii: "\r") { line.removeLast() }
    defer { line.removeAll(keepingCapacity: true) }
    guard let status else {
      guard let status = Self.status(of: line) else { throw .isNotHTTP }
      guard (100...299).contains(status), status != 101 else { throw .refused(status: status) }
      self.status = status
      return
    }
    guard line.isEmpty else { return }
    if status >= 200 {
      isOpen = true
    } else {
      self.status = nil  // the final answer follows
    }
  }

  /// `HTTP/1.x NNN`, with or without a reason.
  private static func status(of line: [UInt8]) -> Int? {
    guard line.count >= 12, line.starts(with: version), isDigit(line[7]), line[8] == UInt8(ascii: " "),
      line[9...11].allSatisfy(isDigit), line.count == 12 || line[12] == UInt8(ascii: " ")
    else { return nil }
    let status = line[9...11].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
    return (100...599).contains(status) ? status : nil
  }

  private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}

extension ConnectAnswer.Fault {
  /// The rest of a sentence that begins with "the proxy NAME": what it did, and what to do about it.
  ///
  /// - Parameters:
  ///   - target: host and port of the tunnel.
  ///   - isLoggedIn: whether the proxy was sent a user and password.
  public func words(target: String, isLoggedIn: Bool) -> String {
    switch self {
    case .refused(let status) where isAboutLogin && isLoggedIn:
      "answers \(status) to our user and password: check proxy.credentials_file"
    case .refused(let status) where isAboutLogin:
      "answers \(status), it asks for a user and password: set proxy.credentials_file"
    case .refused(403): "answers 403: let it allow CONNECT to \(target)"
    case .refused(let status) where (500...599).contains(status):
      "answers \(status): it has no connection to \(target)"
    case .refused(let status): "answers \(status) to CONNECT: check that proxy.url names a proxy that takes CONNECT"
    case .isNotHTTP: "does not answer in HTTP/1: check that proxy.url names an HTTP proxy"
    case .tooLong: "answers CONNECT with more than \(ConnectAnswer.bytesMax) bytes"
    case .bytesBehindHead: "sends bytes of its own behind its answer to CONNECT: it makes no tunnel to \(target)"
    case .closed: "closed the connection before it had answered CONNECT"
    case .silent(let seconds): "did not answer CONNECT within \(seconds) s"
    case .targetNotASCII: "cannot be asked for a name that is not ASCII: write it in its ASCII form (xn--…)"
    }
  }
}
