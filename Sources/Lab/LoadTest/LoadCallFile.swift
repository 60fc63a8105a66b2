// The user's own calls: a file of JSON lines in the form of `push-gateway enqueue`.

import Console
import Runtime

/// Reads the file as a whole, and checks its form.
enum LoadCallFile {
  /// Maximum number of lines; a load repeats them.
  static let linesMax = 1_000_000
  /// Maximum number of faults that are named.
  static let faultsMax = 20

  /// - Throws: names the number of every malformed line, up to `faultsMax` of them.
  static func read(_ path: String) throws(CommandFailure) -> [CallLine] {
    var reader = try LineReader(path: path)
    var lines: [CallLine] = []
    var faults: [CallLine.Fault] = []
    var number = 0
    while let text = try reader.next() {
      number += 1
      if text.allSatisfy({ $0 == 0x20 || $0 == 0x09 }) { continue }
      do throws(CallLine.Fault) { lines.append(try CallLine(text, number: number)) } catch { faults.append(error) }
      guard lines.count + faults.count <= linesMax else { throw CommandFailure("\(path): more than \(linesMax) lines") }
    }
    if let failure = failure(path, faults) { throw failure }
    guard !lines.isEmpty else { throw CommandFailure("\(path): there is no call in this file") }
    return lines
  }

  /// An error that names these faults; nil without any.
  static func failure(_ path: String, _ faults: [CallLine.Fault]) -> CommandFailure? {
    guard !faults.isEmpty else { return nil }
    let more = faults.count - faultsMax
    return CommandFailure(
      "\(path): nothing was enqueued. " + faults.prefix(faultsMax).map(\.description).joined(separator: "; ")
        + (more > 0 ? "; and \(more) more lines" : ""))
  }

  /// A payload with another call id: that of the load, by which its pushes are found, and which differs at every repetition.
  static func payload(_ payload: [UInt8], callID: String) -> [UInt8] {
    let json = JSONScanner(trusting: payload)
    var writer = JSONWriter(reservingCapacity: payload.count + 64)
    writer.beginObject()
    writer.key("callId")
    writer.string(callID)
    for member in json.members(of: json.root) where !json.isKey(member, "callId") {
      writer.rawKey(payload, member.key)
      writer.raw(payload, member.value.range)
    }
    writer.endObject()
    return writer.bytes
  }
}
