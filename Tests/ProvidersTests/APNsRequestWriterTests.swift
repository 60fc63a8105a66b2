// Tests of the head of an APNs request, field by field.

import PushModel
import Runtime
import Testing

@testable import Providers

private func request(
  _ kind: PushKind, token: String = "00fcAB12", body: Int = 2, collapseID: String? = nil,
  deliveryID: DeliveryID = DeliveryID(high: 0x0123_4567_89AB_CDEF, low: 0xFEDC_BA98_7654_3210),
  manner: PushManner? = nil
) -> PushRequest {
  PushRequest(
    tag: 1, deliveryID: deliveryID, kind: kind, environment: .production, token: Array(token.utf8),
    body: [UInt8](repeating: 0x20, count: body), collapseID: collapseID.map { Array($0.utf8) },
    deadline: Instant(nanoseconds: 0), expiresAtMilliseconds: 1_700_000_000_999, manner: manner)
}

private func written(_ request: PushRequest) -> [String] {
  var head = HTTP2RequestHead()
  APNsRequestWriter(authority: "api.push.apple.com", topic: "com.example.app")
    .write(request, bearer: Array("bearer a.b.c".utf8), into: &head)
  var lines: [String] = []
  head.decoded().forEach { name, value in
    lines.append("\(String(decoding: name, as: UTF8.self)): \(String(decoding: value, as: UTF8.self))")
  }
  return lines
}

@Suite(.timeLimit(.minutes(10))) struct APNsRequestWriterTests {
  @Test func `an invite is a VoIP push that APNs does not store`() {
    #expect(
      written(request(.invite, collapseID: "call-1")) == [
        ":path: /3/device/00fcAB12",
        ":method: POST",
        ":scheme: https",
        ":authority: api.push.apple.com",
        "apns-topic: com.example.app.voip",
        "apns-push-type: voip",
        "apns-priority: 10",
        "apns-expiration: 0",
        "authorization: bearer a.b.c",
        "apns-id: 01234567-89ab-cdef-fedc-ba9876543210",
      ])
  }

  @Test func `a cancel is a VoIP push if its template says so`() {
    let cancel = request(.cancel, collapseID: "call-1", manner: PushManner(apnsType: .voip, isStored: false))
    #expect(APNsRequestWriter.objection(to: cancel) == nil)
    #expect(written(cancel) == written(request(.invite)))
  }

  @Test(arguments: [PushKind.missedCall, .notification])
  func `any other kind is an alert with expiration and collapse id`(kind: PushKind) {
    #expect(
      written(request(kind, collapseID: "call-1")) == [
        ":path: /3/device/00fcAB12",
        ":method: POST",
        ":scheme: https",
        ":authority: api.push.apple.com",
        "apns-topic: com.example.app",
        "apns-push-type: alert",
        "apns-priority: 10",
        "authorization: bearer a.b.c",
        "apns-id: 01234567-89ab-cdef-fedc-ba9876543210",
        "apns-expiration: 1700000000",
        "apns-collapse-id: call-1",
      ])
  }

  @Test(arguments: PushManner.APNsType.allCases.filter { $0 != .voip }, PushManner.Priority.allCases)
  func `a template can choose type, priority and expiration`(
    type: PushManner.APNsType, priority: PushManner.Priority
  ) {
    for isStored in [true, false] {
      let manner = PushManner(apnsType: type, priority: priority, isStored: isStored)
      let lines = written(request(.notification, manner: manner))
      #expect(lines.contains("apns-push-type: \(type)"))
      #expect(lines.contains("apns-priority: \([10, 5, 1][Int(priority.rawValue)])"))
      #expect(lines.contains("apns-expiration: \(isStored ? "1700000000" : "0")"))
      #expect(lines.contains("apns-topic: com.example.app"))
      #expect(!lines.contains { $0.hasPrefix("apns-collapse-id") })
    }
  }

  @Test func `a collapse id has at most 64 bytes`() {
    let line = written(request(.missedCall, collapseID: String(repeating: "x", count: 65))).last
    #expect(line == "apns-collapse-id: " + String(repeating: "x", count: 64))
  }

  @Test func `a small UUID keeps its leading zeros`() {
    let id = DeliveryID(high: 1, low: 2)
    #expect(written(request(.invite, deliveryID: id)).last == "apns-id: 00000000-0000-0001-0000-000000000002")
  }

  @Test func `a request that must not be sent is refused before it is sent`() {
    #expect(APNsRequestWriter.objection(to: request(.invite)) == nil)
    #expect(APNsRequestWriter.objection(to: request(.cancel)) == .cancelNotAllowed)
    #expect(
      APNsRequestWriter.objection(to: request(.cancel, manner: PushManner(apnsType: .background))) == .cancelNotAllowed)
    #expect(APNsRequestWriter.objection(to: request(.invite, token: "")) == .malformedDeviceToken)
    #expect(APNsRequestWriter.objection(to: request(.invite, token: "00/../x")) == .malformedDeviceToken)
    #expect(
      APNsRequestWriter.objection(to: request(.invite, token: String(repeating: "a", count: 201)))
        == .malformedDeviceToken)
    #expect(APNsRequestWriter.objection(to: request(.invite, body: 5120)) == nil)
    #expect(APNsRequestWriter.objection(to: request(.invite, body: 5121)) == .payloadTooLarge)
    #expect(APNsRequestWriter.objection(to: request(.missedCall, body: 4096)) == nil)
    #expect(APNsRequestWriter.objection(to: request(.missedCall, body: 4097)) == .payloadTooLarge)
  }
}
