// Follows the simulators' log and extracts the requests of one run.

internal import Console
internal import Foundation
internal import Runtime

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Reads the lines appended to the file of `push-gateway-lab simulate --log`.
struct SimulatorLogReader {
  /// A request that a simulator accepted.
  struct Request: Equatable, Sendable {
    var delivery: Int
    /// Microseconds since 1970.
    var at: Int64
  }

  private let path: String
  private let run: [UInt8]
  /// Whether to skip pushes that follow the end of a call.
  private let skipsFollowUps: Bool
  private var file: FileDescriptor?
  private var offset: off_t
  /// The start of a line that is not yet complete.
  private var rest: [UInt8] = []

  private static let chunk = 1 << 20

  /// - Parameters:
  ///   - path: need not exist yet. Its existing content is skipped.
  ///   - run: `LoadShape.run`.
  ///   - skipsFollowUps: `LoadKind.rings`.
  init(path: String, run: String, skipsFollowUps: Bool) {
    self.path = path
    self.run = Array(run.utf8)
    self.skipsFollowUps = skipsFollowUps
    let attributes = try? FileManager.default.attributesOfItem(atPath: path)
    offset = ((attributes?[.size] as? NSNumber)?.int64Value).map { off_t($0) } ?? 0
  }

  /// Returns the requests that arrived since the last call.
  /// - Throws: if the file exists and cannot be read.
  mutating func read(_ deliver: (Request) -> Void) throws(CommandFailure) {
    guard let file = try opened() else { return }
    var chunk = [UInt8](repeating: 0, count: Self.chunk)
    while true {
      let count = unsafe pread(file.rawValue, &chunk, chunk.count, offset)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw failure() }
      guard count > 0 else { return }
      offset += off_t(count)
      rest.append(contentsOf: chunk[..<count])
      var start = 0
      while let end = rest[start...].firstIndex(of: 0x0A) {
        if let request = Self.request(rest[start..<end], run: run, skipsFollowUps: skipsFollowUps) { deliver(request) }
        start = end + 1
      }
      rest.removeFirst(start)
    }
  }

  private mutating func opened() throws(CommandFailure) -> FileDescriptor? {
    if let file { return file }
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    if descriptor < 0, errno == ENOENT { return nil }
    guard descriptor >= 0 else { throw failure() }
    file = FileDescriptor(owning: descriptor)
    return file
  }

  private func failure() -> CommandFailure {
    CommandFailure("--simulator-log \(path): \(unsafe String(cString: strerror(errno)))")
  }

  /// A line of the log; nil unless it is an accepted request of the run.
  ///
  /// A ringing call that ends is followed by pushes to the same tokens: a cancel says `call_cancelled`, a missed call
  /// `missed_call`, in every shipped dialect.
  static func request(_ line: ArraySlice<UInt8>, run: [UInt8], skipsFollowUps: Bool) -> Request? {
    let json = JSONScanner(trusting: Array(line))
    var at: Int64?
    for member in json.members(of: json.root) {
      if json.isKey(member, "at") {
        at = microseconds(json.raw(member.value))
      } else if json.isKey(member, "outcome") {
        guard json.raw(member.value).elementsEqual(#""accepted""#.utf8) else { return nil }
      } else if json.isKey(member, "token") {
        guard let at, let token = json.contents(member.value), let delivery = LoadToken.delivery(in: token, run: run)
        else { return nil }
        if skipsFollowUps && (line.holds("call_cancelled") || line.holds("missed_call")) { return nil }
        return Request(delivery: delivery, at: at)
      }
    }
    return nil
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
