// Tests of each error of Expo's push service: of requests, tickets and receipts.

import Foundation
import Runtime
import Testing

@testable import Simulators

@Suite("Expo simulator")
struct ExpoSimulatorTests {
  private func code(_ answer: SimulatedAnswer) -> String {
    ((object(answer.body)["errors"] as? [[String: Any]])?.first?["code"] as? String) ?? ""
  }

  private func tickets(_ answer: SimulatedAnswer) -> [[String: Any]] {
    object(answer.body)["data"] as? [[String: Any]] ?? []
  }

  private func error(_ ticket: [String: Any]?) -> String? {
    (ticket?["details"] as? [String: Any])?["error"] as? String
  }

  @Test("tickets come in the order of the messages, good and bad mixed")
  func tickets() {
    var bench = ExpoBench()
    let tokens = [
      "ExponentPushToken[a]", "ExpoPushToken[fault-DeviceNotRegistered-b]", "123e4567-e89b-12d3-a456-426614174000",
    ]
    let answer = bench.send("[\(tokens.map { ExpoBench.message($0) }.joined(separator: ","))]")
    #expect(answer.status == 200)
    #expect(tickets(answer).map { $0["status"] as? String } == ["ok", "error", "ok"])
    #expect(error(tickets(answer)[1]) == "DeviceNotRegistered")
    #expect(bench.journal.accepted.map(\.token) == [tokens[0], tokens[2]])
    #expect(bench.journal.accepted.map(\.id) == [0, 2].map { tickets(answer)[$0]["id"] as? String })
  }

  @Test("a single message gets a single ticket")
  func single() throws {
    var bench = ExpoBench()
    let answer = bench.send(ExpoBench.message())
    let ticket = try #require(object(answer.body)["data"] as? [String: Any])
    #expect(ticket["status"] as? String == "ok")
    let push = try #require(bench.journal.accepted.first)
    #expect(push.kind == "high")
    #expect(push.detail("ttl") == "30")
  }

  @Test("a hundred messages are accepted, one more is PUSH_TOO_MANY_NOTIFICATIONS")
  func limitsMessages() {
    func messages(_ count: Int) -> String {
      "[\((0..<count).map { ExpoBench.message("ExpoPushToken[\($0)]") }.joined(separator: ","))]"
    }
    var bench = ExpoBench()
    #expect(tickets(bench.send(messages(100))).count == 100)
    #expect(code(bench.send(messages(101))) == "PUSH_TOO_MANY_NOTIFICATIONS")
    #expect(bench.journal.counters.accepted == 100)
  }

  @Test(
    "an undocumented message refuses the request",
    arguments: [
      #"[]"#, #"5"#, #"{"to":"ExpoPushToken[a]"}"#, #"{"ttl":1}"#, #"{"to":"abc","ttl":1}"#,
      #"{"to":"ExpoPushToken[]","ttl":1}"#,
      #"{"to":"ExpoPushToken[a]","ttl":-1}"#, #"{"to":"ExpoPushToken[a]","ttl":"1"}"#,
      #"{"to":"ExpoPushToken[a]","expiration":1.5}"#, #"{"to":"ExpoPushToken[a]","ttl":1,"priority":"urgent"}"#,
      #"{"to":"ExpoPushToken[a]","ttl":1,"data":"text"}"#,
      #"{"to":"ExpoPushToken[a]","ttl":1,"contentAvailable":true}"#,
      #"{"to":"ExpoPushToken[a]","ttl":1,"title":1}"#, #"{"to":"ExpoPushToken[a]","ttl":1,"mutableContent":1}"#,
      #"{"to":"ExpoPushToken[a]","ttl":1,"interruptionLevel":"loud"}"#, #"{"#,
    ])
  func validates(_ body: String) {
    var bench = ExpoBench()
    let answer = bench.send(body)
    #expect(answer.status == 400)
    #expect(code(answer) == "VALIDATION_ERROR")
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("every documented field is accepted")
  func fields() {
    var bench = ExpoBench()
    let answer = bench.send(
      #"""
      [{"to":["ExpoPushToken[a]","ExpoPushToken[b]"],"title":"t","subtitle":"s","body":"b","data":{"a":1},"sound":null,"badge":1,
      "ttl":0,"expiration":1800000030,"priority":"normal","interruptionLevel":"time-sensitive","channelId":"c","categoryId":"c",
      "mutableContent":true,"collapseId":"c","_contentAvailable":true}]
      """#)
    #expect(tickets(answer).count == 2)
    #expect(bench.journal.pendingLines.count { $0 == 0x0A } == 2)
  }

  @Test("more than 4096 bytes are MessageTooBig, in that message's ticket alone")
  func limitsSize() {
    var bench = ExpoBench()
    let big = ExpoBench.message(more: #","ttl":1,"body":"\#(String(repeating: "x", count: 4096))""#)
    let answer = bench.send("[\(big),\(ExpoBench.message())]")
    #expect(error(tickets(answer)[0]) == "MessageTooBig")
    #expect(tickets(answer)[1]["status"] as? String == "ok")
  }

  @Test("tokens of two projects are PUSH_TOO_MANY_EXPERIENCE_IDS, with the tokens by project")
  func projects() throws {
    var bench = ExpoBench()
    let body = "[\(ExpoBench.message("ExpoPushToken[project-b-1]")),\(ExpoBench.message("ExpoPushToken[2]"))]"
    let answer = bench.send(body)
    #expect(code(answer) == "PUSH_TOO_MANY_EXPERIENCE_IDS")
    let details = (object(answer.body)["errors"] as? [[String: Any]])?.first?["details"] as? [String: [String]]
    #expect(details == ["@simulator/b": ["ExpoPushToken[project-b-1]"], "@simulator/default": ["ExpoPushToken[2]"]])
  }

  @Test("a request without the required access token is UNAUTHORIZED")
  func authorises() {
    var bench = ExpoBench(.init(accessToken: "secret"))
    #expect(bench.send(ExpoBench.message()).status == 401)
    #expect(bench.send(ExpoBench.message(), headers: [("authorization", "Bearer secreT")]).status == 401)
    #expect(bench.send(ExpoBench.message(), headers: [("authorization", "Bearer secret")]).status == 200)
  }

  @Test("more notifications a second than allowed are TOO_MANY_REQUESTS until the next second")
  func limitsRate() {
    var bench = ExpoBench(.init(notificationsPerSecond: 2))
    #expect(bench.send(ExpoBench.message()).status == 200)
    #expect(bench.send(ExpoBench.message()).status == 200)
    #expect(bench.send(ExpoBench.message()).status == 429)
    bench.now += 1
    #expect(bench.send(ExpoBench.message()).status == 200)
  }

  @Test("method, path and content type must be right")
  func envelope() {
    var bench = ExpoBench()
    #expect(bench.send(ExpoBench.message(), method: "GET").status == 405)
    #expect(bench.send(ExpoBench.message(), path: "/--/api/v2/push/sent").status == 404)
    #expect(bench.send(ExpoBench.message(), path: ExpoSimulator.sendPath + "?useFcmV1=true").status == 200)
  }

  @Test("a gzip body is decompressed; other data is refused")
  func gzip() throws {
    var bench = ExpoBench()
    let header = [("content-encoding", "gzip")]
    let body = try run("/usr/bin/gzip", ["-c"], input: Array(ExpoBench.message().utf8))
    #expect(bench.send(bytes: body, headers: header).status == 200)
    #expect(bench.send(bytes: Array(body.dropLast(4)), headers: header).status == 400)
    #expect(bench.send(ExpoBench.message(), headers: header).status == 400)
    #expect(bench.send(ExpoBench.message(), headers: [("content-encoding", "br")]).status == 400)
  }

  @Test("a token causes each error of a ticket", arguments: ExpoPushError.allCases)
  func ticketFaults(_ expected: ExpoPushError) {
    var bench = ExpoBench()
    let answer = bench.send("[\(ExpoBench.message("ExpoPushToken[fault-\(expected.rawValue)-1]"))]")
    #expect(error(tickets(answer).first) == expected.rawValue)
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("a token causes each error of a receipt", arguments: ExpoPushError.allCases)
  func receiptFaults(_ expected: ExpoPushError) throws {
    var bench = ExpoBench()
    let answer = bench.send("[\(ExpoBench.message("ExpoPushToken[fault-receipt_\(expected.rawValue)-1]"))]")
    let id = try #require(tickets(answer).first?["id"] as? String)
    let receipts = object(bench.receipts([id]).body)["data"] as? [String: [String: Any]]
    #expect(receipts?[id]?["status"] as? String == "error")
    #expect(error(receipts?[id]) == expected.rawValue)
  }

  @Test(
    "a token causes each error of a request",
    arguments: [
      ("TOO_MANY_REQUESTS", 429), ("PUSH_TOO_MANY_EXPERIENCE_IDS", 400), ("PUSH_TOO_MANY_NOTIFICATIONS", 400),
      ("PUSH_TOO_MANY_RECEIPTS", 400), ("UNAUTHORIZED", 401), ("INTERNAL_SERVER_ERROR", 500),
      ("SERVICE_UNAVAILABLE", 503),
    ])
  func requestFaults(_ name: String, _ status: Int) {
    var bench = ExpoBench()
    let answer = bench.send("[\(ExpoBench.message()),\(ExpoBench.message("ExpoPushToken[fault-\(name)-3-x]"))]")
    #expect(answer.status == status)
    #expect(code(answer) == name)
    #expect(answer.retryAfter == 3)
    #expect(bench.journal.accepted.isEmpty)
  }

  @Test("a ticket id causes the errors of a whole request for receipts")
  func receiptRequestFaults() {
    var bench = ExpoBench()
    let busy = bench.receipts(["a", "fault-TOO_MANY_REQUESTS-7"])
    #expect(busy.status == 429)
    #expect(code(busy) == "TOO_MANY_REQUESTS")
    #expect(busy.retryAfter == 7)
    #expect(bench.receipts(["fault-html"]).status == 502)
    #expect(bench.journal.counters.refused == ["TOO_MANY_REQUESTS": 1, "html": 1])
  }

  @Test("receipts are available after the delay and for a day; unknown ids are left out")
  func receiptTimes() throws {
    var bench = ExpoBench(.init(receiptDelay: 900))
    let id = try #require(tickets(bench.send("[\(ExpoBench.message())]")).first?["id"] as? String)
    func found() -> Int {
      (object(bench.receipts([id, UUID().uuidString]).body)["data"] as? [String: Any])?.count ?? -1
    }
    bench.now += 899
    #expect(found() == 0)
    bench.now += 1
    #expect(found() == 1)
    bench.now = Fixture.now + 24 * 3600
    #expect(found() == 0)
  }

  @Test("a request can ask for a thousand receipts, not one more")
  func limitsReceipts() {
    var bench = ExpoBench()
    #expect(bench.receipts((0..<1000).map { "\($0)" }).status == 200)
    #expect(bench.receipts((0..<1001).map { "\($0)" }).status == 400)
    #expect(bench.send("{}", path: ExpoSimulator.receiptsPath).status == 400)
  }
}
