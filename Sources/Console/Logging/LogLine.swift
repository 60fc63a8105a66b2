// Formats one log line.

import Logging
import Runtime
import Settings

/// Level, message and flattened metadata of a line.
struct LogLine {
  private typealias Member = (key: String, value: Logger.MetadataValue)

  /// The keys of a JSON line that are not metadata. Metadata with such a name gets a leading underscore.
  private static let reserved: Set<String> = ["time", "level", "message"]

  private let time: UTCTime
  private let level: Logger.Level
  private let message: String
  /// The metadata, sorted by name. Names are unique.
  private let members: [Member]

  /// - Parameters:
  ///   - microseconds: the time, in microseconds since 1970.
  ///   - metadata: the members of a dictionary are named `key.name`.
  init(microseconds: Int64, _ level: Logger.Level, _ message: String, _ metadata: Logger.Metadata) {
    time = UTCTime(microseconds: microseconds)
    self.level = level
    self.message = message
    var members: [Member] = []
    members.reserveCapacity(metadata.count)
    for (key, value) in metadata { Self.flatten(Self.reserved.contains(key) ? "_" + key : key, value, into: &members) }
    members.sort { $0.key < $1.key }
    for index in members.indices.dropFirst().reversed() where members[index].key == members[index - 1].key {
      members.remove(at: index)
    }
    self.members = members
  }

  private static func flatten(_ key: String, _ value: Logger.MetadataValue, into members: inout [Member]) {
    guard case .dictionary(let dictionary) = value else { return members.append((key, value)) }
    for (name, value) in dictionary { flatten("\(key).\(name)", value, into: &members) }
  }

  /// The line, including its line break.
  func bytes(as format: LogFormat) -> [UInt8] {
    switch format {
    case .json: json
    case .text: text
    }
  }

  // MARK: - JSON

  /// One JSON object, valid for every content of the values.
  private var json: [UInt8] {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("time")
    writer.string(time.iso8601)
    writer.key("level")
    writer.string(level.rawValue)
    writer.key("message")
    writer.string(message)
    for member in members {
      writer.string(member.key)
      writer.bytes.append(UInt8(ascii: ":"))
      Self.write(member.value, to: &writer)
    }
    writer.endObject()
    writer.bytes.append(UInt8(ascii: "\n"))
    return writer.bytes
  }

  private static func write(_ value: Logger.MetadataValue, to writer: inout JSONWriter) {
    switch value {
    case .string(let text): writer.string(text)
    // Casts to a type are fast, casts to a protocol are not. These are the types in the lines about deliveries.
    case .stringConvertible(let number as Int64): writer.integer(number)
    case .stringConvertible(let number as Int32): writer.integer(Int64(number))
    case .stringConvertible(let number as UInt16): writer.integer(Int64(number))
    case .stringConvertible(let number as Int): writer.integer(Int64(number))
    case .stringConvertible(let number as Double) where number.isFinite: writer.raw(Array("\(number)".utf8))
    case .stringConvertible(let number as any FixedWidthInteger & Sendable):
      if let number = Int64(exactly: number) { writer.integer(number) } else { writer.string("\(number)") }
    case .stringConvertible(let flag as Bool): writer.boolean(flag)
    case .stringConvertible(let other): writer.string(other.description)
    case .array(let values):
      writer.beginArray()
      for value in values { write(value, to: &writer) }
      writer.endArray()
    case .dictionary(let dictionary):
      writer.beginObject()
      for (key, value) in dictionary.sorted(by: { $0.key < $1.key }) {
        writer.key(Array(key.utf8))
        write(value, to: &writer)
      }
      writer.endObject()
    }
  }

  // MARK: - Text

  /// `2026-11-21T09:05:07.000123Z info A delivery has ended app=porteiro attempts=1`. A value that is not one plain
  /// word is quoted, so that no value can imitate other metadata or another line.
  private var text: [UInt8] {
    var line = "\(time.iso8601) \(level.rawValue) \(Self.quoted(message, isPlain: Self.isPrintable))"
    for member in members {
      line += " \(Self.quoted(member.key, isPlain: Self.isWord))=\(Self.word(member.value))"
    }
    return Array(line.utf8) + [UInt8(ascii: "\n")]
  }

  private static func word(_ value: Logger.MetadataValue) -> String {
    switch value {
    case .string(let text): quoted(text, isPlain: isWord)
    case .stringConvertible(let other): quoted(other.description, isPlain: isWord)
    case .array(let values): "[" + values.map(word).joined(separator: ",") + "]"
    case .dictionary(let dictionary):
      "{"
        + dictionary.sorted { $0.key < $1.key }.map { "\(quoted($0.key, isPlain: isWord)):\(word($0.value))" }
        .joined(separator: ",") + "}"
    }
  }

  private static func quoted(_ text: String, isPlain: (Unicode.Scalar) -> Bool) -> String {
    if !text.isEmpty, text.unicodeScalars.allSatisfy(isPlain) { return text }
    var quoted = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": quoted += "\\\(scalar)"
      case "\n": quoted += "\\n"
      case _ where isPrintable(scalar): quoted.unicodeScalars.append(scalar)
      default: quoted += "\\u{\(String(scalar.value, radix: 16))}"
      }
    }
    return quoted + "\""
  }

  private static func isWord(_ scalar: Unicode.Scalar) -> Bool {
    isPrintable(scalar) && scalar != "\"" && scalar != "=" && scalar != "\\" && !scalar.properties.isWhitespace
  }

  /// Whether a character is neither a control character nor one that changes the direction of text or ends a line.
  private static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .unassigned, .privateUse: false
    default: true
    }
  }
}
