// Follows the simulators' log, here or on another machine, and extracts the requests of one run.

import Console
import Foundation
import Providers
import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Reads the lines appended to the file of `push-gateway-lab simulate --log`.
struct SimulatorLogReader: Sendable {
  /// A request that a simulator accepted.
  struct Request: Equatable, Sendable {
    enum Target: Equatable, Sendable {
      /// The number of a delivery.
      case delivery(Int)
      /// The number of a call of the user's own, and the masked token.
      case call(Int, device: String)
    }

    var target: Target
    /// Microseconds since 1970.
    var at: Int64
  }

  /// What is extracted.
  struct Filter: Sendable {
    /// `LoadShape.run`.
    var run: [UInt8]
    /// `LoadShape.prefix`, if requests are found by their call: those of the user's own calls have no mark in their tokens.
    var callPrefix: [UInt8]?
    /// Whether to skip pushes that follow the end of a call.
    var skipsFollowUps: Bool

    init(_ shape: LoadShape) {
      run = Array(shape.run.utf8)
      callPrefix = shape.hasOwnCalls ? Array(shape.prefix.utf8) : nil
      skipsFollowUps = shape.kind.rings
    }
  }

  private enum Source: Sendable {
    case file(FileDescriptor)
    /// The URL of the log that the simulators serve.
    case server(LoadHTTP, url: String)
  }

  private let name: String
  private let source: Source
  private let filter: Filter
  private var offset: Int64
  /// Why the last reading failed; nil if it did not.
  private(set) var trouble: String?
  /// The time of the last request in the log, whichever run it is of, in microseconds since 1970; 0 if none was read.
  private var lastAt: Int64 = 0
  /// The start of a line that is not yet complete.
  private var rest: [UInt8] = []

  private static let chunkSize = 1 << 20

  /// Opens a log. Its existing content is skipped.
  ///
  /// - Parameters:
  ///   - name: a file that exists, or the URL of a server.
  ///   - http: for a URL.
  /// - Throws: if the log does not exist or cannot be read.
  init(_ name: String, filter: Filter, http: LoadHTTP) async throws(CommandFailure) {
    self.name = name
    self.filter = filter
    if Self.isURL(name) {
      let url = name.hasSuffix("/") ? String(name.dropLast()) : name
      source = .server(http, url: url)
      offset = 0
      guard let size = Int64(String(decoding: try await Self.get("\(url)/size", http), as: UTF8.self)) else {
        throw Self.failure(name, "this is not the log of push-gateway-lab simulate --log-port: its path is /log")
      }
      offset = size
    } else {
      let descriptor = unsafe open(name, O_RDONLY | O_CLOEXEC)
      guard descriptor >= 0 else { throw Self.failure(name) }
      let file = FileDescriptor(owning: descriptor)
      source = .file(file)
      offset = Int64(lseek(file.rawValue, 0, SEEK_END))
    }
  }

  static func isURL(_ name: String) -> Bool { name.hasPrefix("https://") || name.hasPrefix("http://") }

  /// The time, in microseconds since 1970, until which the lines read so far are complete. Simulators that serve their log are not frozen,
  /// so theirs is complete until now.
  var end: Int64 {
    if case .server = source, trouble == nil { return .max }
    return lastAt - LoadLogWait.disorderMax
  }

  /// The requests that arrived since the last call. A log that cannot be read is a `trouble`, and is read again at the next call.
  mutating func read() async -> [Request] {
    var requests: [Request] = []
    while true {
      let chunk: [UInt8]
      do throws(CommandFailure) {
        switch source {
        case .file(let file): chunk = try self.chunk(of: file)
        case .server(let http, let url): chunk = try await Self.get("\(url)?offset=\(offset)", http)
        }
        trouble = nil
      } catch {
        trouble = error.description
        return requests
      }
      guard !chunk.isEmpty else { return requests }
      offset += Int64(chunk.count)
      rest.append(contentsOf: chunk)
      var start = 0
      var last = 0..<0
      while let end = rest[start...].firstIndex(of: 0x0A) {
        last = start..<end
        if let request = Self.request(rest[last], filter) { requests.append(request) }
        start = end + 1
      }
      lastAt = max(lastAt, Self.time(of: rest[last]) ?? 0)
      rest.removeFirst(start)
    }
  }

  private func chunk(of file: FileDescriptor) throws(CommandFailure) -> [UInt8] {
    var chunk = [UInt8](repeating: 0, count: Self.chunkSize)
    var count: Int
    repeat { count = unsafe pread(file.rawValue, &chunk, chunk.count, off_t(offset)) } while count < 0 && errno == EINTR
    guard count >= 0 else { throw Self.failure(name) }
    return Array(chunk[..<count])
  }

  private static func get(_ url: String, _ http: LoadHTTP) async throws(CommandFailure) -> [UInt8] {
    switch await http.send(CurlRequest(method: .get, url: url)) {
    case .success(let response) where response.status == 200: return response.body
    case .success(let response): throw failure(url, "the answer is \(response.status)")
    case .failure(let error) where error.reason == .untrusted:
      throw failure(url, "its certificate is not trusted: give the simulators' ca.pem with --ca-file")
    case .failure(let error): throw failure(url, error.description)
    }
  }

  private static func failure(_ name: String, _ reason: String? = nil) -> CommandFailure {
    let systemError = unsafe String(cString: strerror(errno))
    return CommandFailure("--simulator-log \(name): \(reason ?? systemError)")
  }

  /// The time of a line of the log.
  private static func time(of line: ArraySlice<UInt8>) -> Int64? {
    let json = JSONScanner(trusting: Array(line))
    for member in json.members(of: json.root) where json.isKey(member, "at") {
      return microseconds(json.raw(member.value))
    }
    return nil
  }

  /// A line of the log; nil unless it is an accepted request of the run.
  ///
  /// A ringing call that ends is followed by pushes to the same tokens: a cancel says `call_cancelled`, a missed call
  /// `missed_call`, in every shipped dialect.
  static func request(_ line: ArraySlice<UInt8>, _ filter: Filter) -> Request? {
    let json = JSONScanner(trusting: Array(line))
    var at: Int64?
    var provider = ""
    for member in json.members(of: json.root) {
      if json.isKey(member, "at") {
        at = microseconds(json.raw(member.value))
      } else if json.isKey(member, "outcome") {
        guard json.raw(member.value).elementsEqual(#""accepted""#.utf8) else { return nil }
      } else if json.isKey(member, "provider") {
        provider = json.text(member.value) ?? ""
      } else if json.isKey(member, "token") {
        guard let at, let token = json.contents(member.value),
          let target = Self.target(of: token, at: provider, line, filter)
        else { return nil }
        if filter.skipsFollowUps && (line.holds("call_cancelled") || line.holds("missed_call")) { return nil }
        return Request(target: target, at: at)
      }
    }
    return nil
  }

  private static func target(
    of token: ArraySlice<UInt8>, at provider: String, _ line: ArraySlice<UInt8>, _ filter: Filter
  ) -> Request.Target? {
    guard let prefix = filter.callPrefix else {
      return LoadToken.delivery(in: token, run: filter.run).map { .delivery($0) }
    }
    guard let mark = line.firstRange(of: prefix),
      let call = Int(String(decoding: line[mark.upperBound...].prefix { 0x30...0x39 ~= $0 }, as: UTF8.self))
    else { return nil }
    let text = String(decoding: token, as: UTF8.self)
    return .call(call, device: LoadDatabase.device("\(text.prefix(4))…\(text.suffix(4))", at: provider))
  }

  /// `1790000000000.123`, milliseconds with a fraction of three digits, as microseconds.
  private static func microseconds(_ text: ArraySlice<UInt8>) -> Int64? {
    Int64(String(decoding: text.filter { $0 != UInt8(ascii: ".") }, as: UTF8.self))
  }
}

extension ArraySlice<UInt8> {
  fileprivate func holds(_ word: StaticString) -> Bool {
    word.withUTF8Buffer { wanted in
      unsafe withUnsafeBufferPointer { own in
        guard let first = unsafe wanted.first, own.count >= wanted.count else { return false }
        for start in 0...(own.count - wanted.count) where unsafe own[start] == first {
          if unsafe own[start..<start + wanted.count].elementsEqual(wanted) { return true }
        }
        return false
      }
    }
  }
}
