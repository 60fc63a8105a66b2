// Tests JSONWriter with another parser.

import Foundation
import Runtime
import Testing

@Suite(.timeLimit(.minutes(10))) struct JSONWriterTests {
  private func text(_ write: (inout JSONWriter) -> Void) -> String {
    var writer = JSONWriter()
    write(&writer)
    return String(decoding: writer.bytes, as: UTF8.self)
  }

  @Test func `separators are written automatically`() {
    let json = text { writer in
      writer.beginObject()
      writer.key("a")
      writer.integer(-12)
      writer.key("b")
      writer.beginArray()
      writer.string("x")
      writer.null()
      writer.boolean(true)
      writer.beginObject()
      writer.endObject()
      writer.raw(#"{"c":1}"#)
      writer.string(Int64(7))
      writer.endArray()
      writer.key(Array("d\n".utf8))
      writer.string([])
      writer.endObject()
    }
    #expect(json == #"{"a":-12,"b":["x",null,true,{},{"c":1},"7"],"d\n":""}"#)
  }

  @Test func `a string that ends like the start of a container does not swallow a comma`() {
    let json = text { writer in
      writer.beginArray()
      for part in ["{", "[", ":", ","] { writer.string(part) }
      writer.endArray()
    }
    #expect(json == #"["{","[",":",","]"#)
  }

  @Test func `every scalar of the basic plane and beyond survives a round trip`() throws {
    var original = ""
    for value in UInt32(0)..<0x3000 { if let scalar = Unicode.Scalar(value) { original.unicodeScalars.append(scalar) } }
    original += "😀\u{10FFFF}\u{2028}"
    let json = text { $0.string(original) }
    let parsed = try JSONSerialization.jsonObject(with: Data(json.utf8), options: .fragmentsAllowed) as? String
    #expect(parsed.map { Array($0.unicodeScalars) } == Array(original.unicodeScalars))
    let scanner = try JSONScanner(Array(json.utf8))
    #expect(scanner.string(scanner.root) == Array(original.utf8))
  }

  @Test(arguments: [Int64.min, -1, 0, 9, 10, 1_700_000_000_000, .max])
  func `integers are written in full`(number: Int64) {
    #expect(text { $0.integer(number) } == String(number))
    #expect(text { $0.string(number) } == "\"\(number)\"")
  }

  @Test func `JSON can be a string inside JSON`() throws {
    let inner = #"{"from":"João \"1\"","n":{"a":[1]}}"#
    let json = text { $0.string(Array(inner.utf8)) }
    #expect(try JSONSerialization.jsonObject(with: Data(json.utf8), options: .fragmentsAllowed) as? String == inner)
  }
}
