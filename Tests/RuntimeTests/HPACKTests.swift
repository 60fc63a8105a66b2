// Tests of encoded header blocks, decoded by nghttp2: which fields are indexed, and which never are.

import Testing

@testable import Runtime

/// An encoder and a peer that decodes.
private struct Heads: ~Copyable {
  var encoder = HPACKEncoder()
  let decoder = HPACKDecoder()

  /// The length of the block, and its fields as the peer sees them.
  mutating func pass(_ head: HTTP2RequestHead) -> (count: Int, fields: [String]) {
    var bytes: [UInt8] = []
    encoder.append(head, to: &bytes)
    var fields: [String] = []
    let outcome = bytes.withUnsafeBytes { bytes in
      decoder.decode(bytes) { name, value in
        fields.append("\(String(decoding: name, as: UTF8.self)): \(String(decoding: value, as: UTF8.self))")
      }
    }
    #expect(outcome != .malformed && outcome != .tooLong)
    return (bytes.count, fields)
  }
}

private let id = HTTP2FieldName("apns-id")
private let voip: HTTP2SharedFields = [
  ":method": "POST", ":scheme": "https", ":authority": "api.push.apple.com", "apns-topic": "com.example.app.voip",
]
private let alert: HTTP2SharedFields = [
  ":method": "POST", ":scheme": "https", ":authority": "api.push.apple.com", "apns-topic": "com.example.app",
]

private func head(_ shared: HTTP2SharedFields, _ number: Int = 0) -> HTTP2RequestHead {
  var head = HTTP2RequestHead(shared)
  head.add(.path, "/3/device/\(number)")
  head.add(.authorization, "bearer a.b.c")
  head.add(id, "id-\(number)")
  return head
}

private func fields(_ topic: String, _ number: Int) -> [String] {
  [
    ":path: /3/device/\(number)", ":method: POST", ":scheme: https", ":authority: api.push.apple.com",
    "apns-topic: \(topic)", "authorization: bearer a.b.c", "apns-id: id-\(number)",
  ]
}

@Suite struct HPACKTests {
  @Test func `shared fields are sent once, and later as an index of one byte each`() {
    var heads = Heads()
    let first = heads.pass(head(voip, 1))
    let second = heads.pass(head(voip, 2))
    #expect(first.fields == fields("com.example.app.voip", 1))
    #expect(second.fields == fields("com.example.app.voip", 2))
    #expect(first.count - second.count > "api.push.apple.com".count + "apns-topic: com.example.app.voip".count)
    #expect(heads.pass(head(voip, 3)).count == second.count)
  }

  @Test func `shared fields stay indexed when kinds of requests alternate`() {
    var heads = Heads()
    for number in 0..<6 {
      #expect(heads.pass(head(voip, number)).fields == fields("com.example.app.voip", number))
      #expect(heads.pass(head(alert, number)).fields == fields("com.example.app", number))
    }
  }

  @Test func `fields that do not fit into the peer's table are sent every time`() {
    var heads = Heads()
    var kinds: [HTTP2SharedFields] = []
    for number in 0..<80 {
      kinds.append([":method": "POST", "apns-topic": "com.example.app.\(number).\(String(repeating: "x", count: 50))"])
    }
    for round in 0..<3 {
      for (number, kind) in kinds.enumerated() {
        var head = HTTP2RequestHead(kind)
        head.add(id, "\(round)")
        let passed = heads.pass(head)
        #expect(passed.fields[1].hasPrefix("apns-topic: com.example.app.\(number).x"))
        #expect(passed.fields[2] == "apns-id: \(round)")
      }
    }
  }

  @Test(arguments: [0, 60, 200, 4096, 65_536])
  func `the encoder uses no larger table than the peer allows`(bytes: Int) {
    var heads = Heads()
    #expect(heads.pass(head(voip, 1)).fields == fields("com.example.app.voip", 1))
    heads.encoder.limitTable(to: bytes)
    for number in 2..<6 {
      #expect(heads.pass(head(voip, number)).fields == fields("com.example.app.voip", number))
      #expect(heads.pass(head(alert, number)).fields == fields("com.example.app", number))
    }
  }

  @Test func `tokens and keys are never indexed`() {
    let bytes = head(voip).literals
    #expect(bytes[0] == 0x14)  // never indexed, name 4 of the static table: :path
    #expect(head(voip).decoded().count == 7)
    var heads = Heads()
    _ = heads.pass(head(voip))
    #expect(heads.pass(head(voip)).count > bytes.count)
  }

  @Test(arguments: [0, 1, 126, 127, 128, 254, 255, 16_383, 70_000])
  func `values of any length are decoded as they were encoded`(count: Int) {
    var head = HTTP2RequestHead([":method": "POST"])
    let value = String(repeating: "v", count: count)
    head.add(id, value)
    head.add(HTTP2FieldName(String(repeating: "n", count: 130)), "x")
    // nghttp2's decoder takes strings of 64 KiB.
    if count > 65_536 {
      #expect(outcome(head) == .malformed)
    } else {
      #expect(head.decoded().text("apns-id") == value)
      #expect(head.decoded().count == 3)
    }
  }

  @Test func `the size of a header list includes 32 bytes for each field`() {
    var head = HTTP2RequestHead([":method": "POST"])
    for _ in 0..<10 { head.add(id, "12345") }
    let bytes = 7 + 4 + 32 + 10 * (7 + 5 + 32)
    #expect(outcome(head) == .decoded(listBytes: bytes))
    #expect(outcome(head, listBytesMax: bytes) == .decoded(listBytes: bytes))
    #expect(outcome(head, listBytesMax: bytes - 1) == .tooLong)
  }

  private func outcome(_ head: HTTP2RequestHead, listBytesMax: Int = .max) -> HPACKDecoder.Outcome {
    var encoder = HPACKEncoder()
    var bytes: [UInt8] = []
    encoder.append(head, to: &bytes)
    let decoder = HPACKDecoder()
    return bytes.withUnsafeBytes { decoder.decode($0, listBytesMax: listBytesMax) { _, _ in } }
  }

  @Test func `a head that is filled again contains nothing of the previous one`() {
    var head = head(voip, 1)
    head.begin(with: alert)
    head.add(.path, "/other")
    #expect(head.decoded().count == 5)
    #expect(head.decoded().text(":path") == "/other")
    #expect(head.decoded().text("apns-topic") == "com.example.app")
    head.begin(with: alert)
    #expect(head.decoded().count == 4)
  }
}
