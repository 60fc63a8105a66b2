// The format of log lines, for every content.

import Foundation
import Logging
import Testing

@testable import Console
@testable import Settings

@Suite struct LogLineTests {
  private static func line(
    _ metadata: Logger.Metadata, _ format: LogFormat, _ message: String = "A message"
  ) -> String {
    String(
      decoding: LogLine(microseconds: 1_763_715_907_000_123, .info, message, metadata).bytes(as: format), as: UTF8.self)
  }

  private static func object(_ line: String) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
  }

  @Test func `JSON: time with microseconds, level, message, then metadata by name`() {
    #expect(
      Self.line(["b": "x", "a": .stringConvertible(7)], .json)
        == #"{"time":"2025-11-21T09:05:07.000123Z","level":"info","message":"A message","a":7,"b":"x"}"# + "\n")
  }

  @Test func `text: the same for people, in one line`() {
    #expect(
      Self.line(["reason": "too slow", "app": "porteiro", "ms": .stringConvertible(4.5)], .text)
        == #"2025-11-21T09:05:07.000123Z info A message app=porteiro ms=4.5 reason="too slow""# + "\n")
  }

  @Test func `numbers and flags keep their kind, nested names are joined, lists stay lists`() throws {
    let object = try Self.object(
      Self.line(
        [
          "n": .stringConvertible(Int32(-3)), "big": .stringConvertible(UInt64.max), "ratio": .stringConvertible(0.5),
          "nan": .stringConvertible(Double.nan), "flag": .stringConvertible(true),
          "lane": ["app": "a", "provider": ["name": "apns"]], "list": ["x", ["k": "v"]],
        ], .json))
    #expect(object["n"] as? Int == -3)
    #expect(object["big"] as? String == "18446744073709551615")
    #expect(object["ratio"] as? Double == 0.5)
    #expect(object["nan"] as? String == "nan")
    #expect(object["flag"] as? Bool == true)
    #expect(object["lane.app"] as? String == "a")
    #expect(object["lane.provider.name"] as? String == "apns")
    #expect((object["list"] as? [Any])?.count == 2)
  }

  @Test func `metadata never replaces time, level or message, and no name occurs twice`() {
    let line = Self.line(["time": "x", "level": "y", "message": "z", "a.b": "1", "a": ["b": "2"]], .json)
    #expect(line.contains(#""_level":"y","_message":"z","_time":"x""#))
    #expect(line.components(separatedBy: #""a.b":"#).count == 2)
    #expect(line.components(separatedBy: #""time":"#).count == 2)
  }

  static let hostile = [
    "\" , \"level\":\"critical", "line\nbreak", "carriage\rreturn", "nul\0nul", "\u{1B}[31mred", "\u{202E}evil",
    "\u{2028}separator\u{2029}", "back\\slash", "tab\tbed", "é 📞 中", "", " ", "a=b", "\u{FFFF}",
  ]

  @Test(arguments: hostile)
  func `every value and name gives one valid JSON object with the same content`(_ text: String) throws {
    let line = Self.line(["key": "\(text)", text: "value"], .json, text)
    #expect(line.split(separator: "\n", omittingEmptySubsequences: false).count == 2)
    let object = try Self.object(line)
    #expect(object["key"] as? String == text)
    #expect(object[text] as? String == "value")
    #expect(object["message"] as? String == text)
  }

  @Test(arguments: hostile)
  func `in text, no value can imitate another line or member`(_ text: String) {
    let line = Self.line(["key": "\(text)", "next": "x"], .text)
    #expect(line.hasPrefix("2025-11-21T09:05:07.000123Z info A message key="))
    #expect(line.hasSuffix(" next=x\n"))
    let controls = line.dropLast().unicodeScalars.filter {
      [.control, .format, .lineSeparator, .paragraphSeparator].contains($0.properties.generalCategory)
    }
    #expect(controls.isEmpty)
    if text.contains(where: { " =\"\\".contains($0) }) || text.isEmpty { #expect(line.contains("key=\"")) }
  }
}
