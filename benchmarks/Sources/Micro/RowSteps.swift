// Converts the answer to a claim, in Postgres' binary format, into deliveries and what is stored of each. The answer is
// a libpq result that no server has sent.

import LibPQ
import Queue
import Runtime

enum RowSteps {
  static var all: [Step] {
    let answer = answer()
    return [Step(name: "queue.claimed_row") { decode(answer, $0) }]
  }

  /// The stopwatch repeats a step sixteen times or a multiple of that.
  private static let rows = 16
  private static let now = Instant(nanoseconds: 1_000_000_000)
  private static let token = [UInt8](repeating: UInt8(ascii: "a"), count: 64)

  private static func decode(_ answer: PostgresResult, _ count: Int) {
    precondition(count % rows == 0, "\(count) rows are no whole number of answers")
    var floor = ClaimFloor()
    for _ in 0..<count / rows {
      floor.begin(now)
      let claimed = ClaimedRows(answer, number: 1, asked: now).claimed { delivery, _ in
        floor.didClaim(
          lane: delivery.lane, deadlineAtMicroseconds: delivery.deadlineAtMicroseconds,
          isBackground: delivery.isBackground(now))
      }
      floor.didFinish(cost: .milliseconds(1), now)
      keep(claimed)
    }
  }

  private static func answer() -> PostgresResult {
    let values = (0..<rows).map(row)
    guard let result = PQmakeEmptyPGresult(nil, PGRES_TUPLES_OK) else { preconditionFailure("out of memory") }
    var columns = [PGresAttDesc](repeating: PGresAttDesc(), count: values[0].count)
    for column in columns.indices { columns[column].format = 1 }
    precondition(PQsetResultAttrs(result, Int32(columns.count), &columns) != 0, "libpq takes no columns")
    for (number, row) in values.enumerated() {
      for (column, value) in row.enumerated() {
        var bytes = value?.map(CChar.init(bitPattern:)) ?? []
        let length = value.map { Int32($0.count) } ?? -1  // NULL
        precondition(PQsetvalue(result, Int32(number), Int32(column), &bytes, length) != 0, "libpq takes no value")
      }
    }
    let answer = PostgresResult(owning: result)
    let first = ClaimedRows(answer, number: 1, asked: now).claimed { _, _ in }.deliveries.first
    precondition(first?.token.elementsEqual(token) == true, "the columns are not those of a claim")
    return answer
  }

  /// The invite of an iPhone, one of three of its call, in the order of the claim's columns. The first has the call's texts.
  private static func row(_ number: Int) -> [[UInt8]?] {
    let createdAt: Int64 = 800_000_000_000_000  // microseconds since 2000
    let payload = """
      {"from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "callId": "1c9d6f6a-11d4-4a7e-8a8e-b2d2f0a7c001", \
      "fromName": "Portaria", "metadata": {"clientVersion": "1.4.2", "schemaVersion": 1}, "channelName": "call-4711", \
      "buildingName": "Torre Norte", "apartmentNumber": "101"}
      """
    let call: [[UInt8]?] = [
      [0],  // ended
      Array("incoming_call".utf8), Array("1c9d6f6a-11d4-4a7e-8a8e-b2d2f0a7c001".utf8),  // app_call_kind, call_id
      nil, nil,  // end_reason, traceparent
      [1] + Array(payload.utf8),  // jsonb, version 1
    ]
    let own: [[UInt8]?] = [
      binary(UInt32(17)) + binary(UInt16(number + 1)),  // place
      binary(Int16(1)), binary(Int64(4711 + number / 3)), binary(Int32(number % 3)),  // lane, outbox_id, n
      binary(Int32(1)), binary(Int16(0)), binary(Int16(0)),  // attempt, kind, crashes
      binary(Int16(0)), binary(Int16(1)),  // environment, platform
      binary(createdAt), binary(createdAt + 60_000_000),  // created_at, deadline_at
      binary(Int64(59_000_000)),  // remaining_us
      Array("3b8a7c7e-6c2d-4a39-a4a8-3f2d5a1e9f00".utf8), token, nil, nil,  // user_id, token, locale, data
    ]
    return own + (number % 3 == 0 ? call : call.map { _ in nil })
  }

  private static func binary(_ integer: some FixedWidthInteger) -> [UInt8] {
    withUnsafeBytes(of: integer.bigEndian, Array.init)
  }
}
