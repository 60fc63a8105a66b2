// Tests of the scanner with valid texts, invalid texts, and noise.

import Foundation
import TestProcess
import TestSeed
import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct JSONScannerTests {
  // Texts of RFC 8259 in the manner of JSONTestSuite: y_ must be taken.
  static let valid: [String] = [
    "[]", "{}", "[ ]", " { } ", "[[]   ]", "[\"\"]", "[false]", "[null, 1, \"1\", {}]", "[null]", "[1\n]", " [1]",
    "[1,null,null,null,2]", "[2] ", "[123e65]", "[0e+1]", "[0e1]", "[ 4]", "[-0.000000001]", "[20e1]", "[-0]", "[-123]",
    "[-1]", "[1E22]", "[1E-2]", "[1E+2]", "[123e45]", "[123.456e78]", "[1e-2]", "[1e+2]", "[123]", "[123.456789]",
    "{\"asd\":\"sdf\", \"dfg\":\"fgh\"}", "{\"a\":\"b\",\"a\":\"c\"}", "{\"\":0}", "{\"foo\\u0000bar\": 42}",
    "{\n\"a\": \"b\"\n}", "{\"a\":[]}", "{\"min\": -1.0e+28, \"max\": 1.0e+28}", "[\"\\u0060\\u012a\\u12AB\"]",
    "[\"\\uD801\\udc37\"]", "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", "[\"\\\\u0000\"]", "[\"\\\"\"]", "[\"a/*b*/c/*d//e\"]",
    "[\"\u{7f}\"]", "[\"\u{2028}\u{2029}\"]", "[\"⍂㈴⍂\"]", "[\"\u{10FFFF}\"]", "[\"\\uFFFF\"]", "[\"\\uD800\"]",
    "\"\"", "\" \"", "42", "-0.1", "null", "true", "false", "\t[\r\n]\n",
  ]

  // n_ must be refused.
  static let invalid: [String] = [
    "", " ", "[", "]", "{", "}", "[1 true]", "[\"\": 1]", "[\"\"],", "[,1]", "[1,,2]", "[\"x\",,]", "[\"x\"]]",
    "[\"\",]",
    "[\"x\"", "[x", "[3[4]]", "[1:2]", "[,]", "[-]", "[   , \"\"]", "[\"a\",\n4\n,1,", "[1,]", "[1,\n1\n,1", "[*]",
    "[fals]", "[nul]", "[tru]", "[truth]", "[True]", "123\u{0}", "[++1234]", "[+1]", "[+Inf]", "[-01]", "[-1.0.]",
    "[-2.]",
    "[-NaN]", "[.-1]", "[.2e-3]", "[0.1.2]", "[0.3e+]", "[0.3e]", "[0.e1]", "[0E+]", "[0e]", "[1.0e+]", "[1.0e-]",
    "[1.0e]",
    "[1 000.0]", "[1eE2]", "[2.e+3]", "[2.e3]", "[9.e+]", "[Inf]", "[NaN]", "[１]", "[1+2]", "[0x1]", "[0x42]",
    "[Infinity]", "[0e+-1]", "[-foo]", "[- 1]", "[-012]", "[-.123]", "[1.]", "[.123]", "[1ea]",
    "[1.8011670033376514H-308]",
    "[012]", "{[: \"x\"}", "{\"x\", null}", "{\"x\"::\"b\"}", "{\"a\":\"a\" 123}", "{key: 'value'}", "{\"a\" b}",
    "{:\"b\"}", "{\"a\" \"b\"}", "{\"a\":", "{\"a\"", "{1:1}", "{9999E9999:1}", "{null:null,null:null}",
    "{\"id\":0,,,,,}",
    "{'a':0}", "{\"id\":0,}", "{\"a\":\"b\"}/**/", "{\"a\":\"b\"}#", "{\"a\":\"b\",,\"c\":\"d\"}", "{a: \"b\"}",
    "{\"a\":\"a", "{ \"foo\" : \"bar\", \"a\" }", "{\"a\":\"b\"}#{}", "[\"\\uD800\\\"]", "[\"\\uD800\\u\"]",
    "[\"\\uD800\\u1\"]",
    "[\"\\u00A\"]", "[\"\\", "[\"\\\\\\\"]", "[\"\\\t\"]", "[\"\\🌀\"]", "[\"\\a\"]", "[\"\\uqqqq\"]",
    "[\\u0020\"asd\"]",
    "[\\n]", "\"", "['single quote']", "abc", "[\"new\nline\"]", "[\"\t\"]", "[\"\u{0}\"]", "\"\\UA66D\"", "\"\"x",
    "<.>", "[<null>]", "[1]x", "[1}", "{\"x\": true,", "[][]", "[{}", "{}}", "2@", "{'a'", "[\"a\"b]", "\u{FEFF}[]",
    "\u{A0}[]", "[\u{2060}]", "[\u{0C}]", "*", "{\"a\":/*comment*/\"b\"}", "[false, nul", "{]", "[\"asd]", "ï»¿", "nul",
  ]

  @Test(arguments: valid) func `a valid text is accepted`(text: String) throws {
    _ = try JSONScanner(Array(text.utf8))
  }

  @Test(arguments: invalid) func `an invalid text is refused`(text: String) {
    #expect(throws: JSONError.self) { try JSONScanner(Array(text.utf8)) }
  }

  @Test(
    arguments: [
      [0x22, 0x80, 0x22], [0x22, 0xC0, 0xAF, 0x22], [0x22, 0xC1, 0xBF, 0x22], [0x22, 0xE0, 0x9F, 0xBF, 0x22],
      [0x22, 0xED, 0xA0, 0x80, 0x22], [0x22, 0xF0, 0x8F, 0xBF, 0xBF, 0x22], [0x22, 0xF4, 0x90, 0x80, 0x80, 0x22],
      [0x22, 0xF5, 0x80, 0x80, 0x80, 0x22], [0x22, 0xFF, 0x22], [0x22, 0xE2, 0x82, 0x22], [0x22, 0xE2], [0xFE, 0xFF],
      [0x5B, 0x00, 0x5D],
    ] as [[UInt8]])
  func `ill-formed UTF-8 is refused`(bytes: [UInt8]) {
    #expect(throws: JSONError.self) { try JSONScanner(bytes) }
  }

  @Test func `nesting beyond the limit is refused, however deep`() throws {
    func nested(_ depth: Int) -> [UInt8] {
      Array(repeating: UInt8(ascii: "["), count: depth) + Array(repeating: UInt8(ascii: "]"), count: depth)
    }
    _ = try JSONScanner(nested(JSONScanner.maxDepth))
    #expect(throws: JSONError(reason: .tooDeep, offset: 64)) { try JSONScanner(nested(JSONScanner.maxDepth + 1)) }
    #expect(throws: JSONError(reason: .tooDeep, offset: 64)) { try JSONScanner(nested(100_000)) }
    let objects = Array(String(repeating: #"{"a":"#, count: 50_000).utf8)
    #expect(throws: JSONError.self) { try JSONScanner(objects) }
  }

  @Test func `members, elements and scalars are found at their positions`() throws {
    let json = try JSONScanner(
      Array(
        #" { "reason" : "Bad\u0044evice" , "at":-17, "ok":true,"no":false,"x":null,"list":[1, "a\n", {"b":[]} ] } "#
          .utf8))
    #expect(json.root.kind == .object)
    #expect(
      json.members(of: json.root).map { String(decoding: json.key($0), as: UTF8.self) } == [
        "reason", "at", "ok", "no", "x", "list",
      ])
    #expect(json.member("reason").flatMap(json.text) == "BadDevice")
    #expect(json.member("at").flatMap(json.integer) == -17)
    #expect(json.member("ok").flatMap(json.boolean) == true)
    #expect(json.member("no").flatMap(json.boolean) == false)
    #expect(json.member("x")?.kind == .null)
    #expect(json.member("missing") == nil)
    let list = try #require(json.member("list"))
    let elements = Array(json.elements(of: list))
    #expect(elements.map(\.kind) == [.number, .string, .object])
    #expect(json.text(elements[1]) == "a\n")
    #expect(String(decoding: json.raw(elements[2]), as: UTF8.self) == #"{"b":[]}"#)
    #expect(json.members(of: list).map(\.value).isEmpty)
    #expect(Array(json.elements(of: json.root)).isEmpty)
    #expect(json.string(list) == nil)
  }

  @Test func `an escaped name equals the plain one, and of two equal names the last counts`() throws {
    let json = try JSONScanner(Array(#"{"from":"a","\u0066rom":"b","fromm":"c","fro":"d"}"#.utf8))
    #expect(json.member("from").flatMap(json.text) == "b")
    #expect(json.member(Array("from".utf8), of: json.root).flatMap(json.text) == "b")
    #expect(json.member(Array("fromm".utf8), of: json.root).flatMap(json.text) == "c")
    #expect(json.member(Array("f".utf8), of: json.root) == nil)
  }

  @Test(
    arguments: [
      ("9223372036854775807", Int64.max), ("-9223372036854775808", Int64.min), ("9223372036854775808", nil),
      ("-9223372036854775809", nil), ("1.0", nil), ("1e2", nil), ("-0", 0), ("100000000000000000000", nil),
    ] as [(String, Int64?)])
  func `integers are exact or absent`(text: String, expected: Int64?) throws {
    let json = try JSONScanner(Array(text.utf8))
    #expect(json.integer(json.root) == expected)
  }

  @Test(arguments: [
    (#""\ud83d\ude00""#, "😀"), (#""\ud83d""#, "\u{FFFD}"), (#""\ude00x""#, "\u{FFFD}x"),
    (#""\ud83d\ud83d\ude00""#, "\u{FFFD}😀"), (#""\ud83d\n""#, "\u{FFFD}\n"), (#""\u00e9\u20AC\/""#, "é€/"),
  ])
  func `surrogates are paired, and half a pair is replaced`(text: String, expected: String) throws {
    let json = try JSONScanner(Array(text.utf8))
    #expect(json.text(json.root) == expected)
  }

  @Test func `noise never crashes, and Python accepts the same texts with the same values`() throws {
    var random = TestSeed.generator(1)
    let alphabet = Array(#"{}[]",:\u0019tfnadDe.-+E "#.utf8) + [0xC3, 0xA9, 0x80, 0x00, 0x0A]
    let known = (Self.valid + Self.invalid).map { Array($0.utf8) }
    let texts =
      known
      + (0..<20_000).map { number in
        guard number % 2 == 0 else {
          return (0..<Int.random(in: 0...24, using: &random)).map { _ in alphabet.randomElement(using: &random)! }
        }
        var text = known.randomElement(using: &random)!
        for _ in 0..<Int.random(in: 1...3, using: &random) {
          let start = Int.random(in: 0...text.count, using: &random)
          let end = min(start + Int.random(in: 0...1, using: &random), text.count)
          text.replaceSubrange(
            start..<end, with: Bool.random(using: &random) ? [alphabet.randomElement(using: &random)!] : [])
        }
        return text
      }
    let expected = try Self.valuesByPython(texts)
    try #require(expected.count == texts.count)
    for (text, expected) in zip(texts, expected) {
      walk(JSONScanner(trusting: text))
      let json = try? JSONScanner(text)
      if let json { walk(json) }
      let found = json.map { Self.value($0.root, in: $0) } ?? "-"
      #expect(found == expected, "\(String(decoding: text, as: UTF8.self)) \(text), \(TestSeed.comment)")
    }
    #expect(expected.count { $0 != "-" } > 500, "\(TestSeed.comment)")
  }

  /// The output of Tests/json/read.py for each text.
  private static func valuesByPython(_ texts: [[UInt8]]) throws -> [String] {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    let process = Process()
    process.executableURL = tests.appending(path: "json/read.py")
    let (input, output) = (Pipe(), Pipe())
    (process.standardInput, process.standardOutput) = (input, output)
    try process.start()
    let lines = texts.map { hexadecimal($0) + "\n" }.joined()
    try input.fileHandleForWriting.write(contentsOf: Data(lines.utf8))
    try input.fileHandleForWriting.close()
    let answer = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    return answer.split(separator: "\n").map(String.init)
  }

  private static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }

  /// A value as Tests/json/read.py writes it.
  private static func value(_ value: JSONScanner.Value, in json: JSONScanner) -> String {
    switch value.kind {
    case .object:
      let members = json.members(of: value).map { "'\(hexadecimal(json.key($0)))':\(Self.value($0.value, in: json))" }
      return "{" + members.joined(separator: ",") + "}"
    case .array: return "[" + json.elements(of: value).map { Self.value($0, in: json) }.joined(separator: ",") + "]"
    case .string: return "'\(json.string(value).map { hexadecimal($0) } ?? "no string")'"
    case .number: return String(decoding: json.raw(value), as: UTF8.self)
    case .boolean: return json.boolean(value).map { "\($0)" } ?? "no boolean"
    case .null: return "null"
    }
  }

  @Test func `a text cut or changed anywhere never crashes`() throws {
    let text = Array(#"{"a":["\ud83d\ude00",{"b":-1.5e+3,"c":[true,null]}],"d\n":"é"}"#.utf8)
    for cut in 0..<text.count {
      #expect(throws: JSONError.self) { try JSONScanner(Array(text[..<cut])) }
      walk(JSONScanner(trusting: Array(text[..<cut])))
      for byte in UInt8.min...UInt8.max {
        var changed = text
        changed[cut] = byte
        walk(JSONScanner(trusting: changed))
        if let json = try? JSONScanner(changed) { walk(json) }
      }
    }
  }

  private func walk(_ json: JSONScanner) {
    func visit(_ value: JSONScanner.Value, _ depth: Int) {
      guard depth < 100 else { return }
      _ = (json.string(value), json.integer(value), json.boolean(value), json.raw(value))
      for member in json.members(of: value) {
        _ = (json.key(member), json.isKey(member, "a"))
        visit(member.value, depth + 1)
      }
      for element in json.elements(of: value) { visit(element, depth + 1) }
    }
    visit(json.root, 0)
  }
}
