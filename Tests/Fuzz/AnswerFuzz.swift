// Answers of APNs, FCM, Expo and Google's token endpoint. For any answer these rules hold: a token is dead only if the
// provider's own reason and status say so, every number is in its valid range, and only single words reach history, logs and
// labels.
//
// Input, so that seeds can be written by hand: a line with the status, a line for each header field, an empty line, the body.

enum AnswerFuzz {
  private static let now: Int64 = 1_700_000_000_000
  /// 1970 to 2200, in milliseconds.
  private static let times: ClosedRange<Int64> = 0...7_258_118_400_000

  private struct Answer {
    var status: UInt16 = 0
    var fields: [(name: [UInt8], value: [UInt8])] = []
    var body: [UInt8] = []

    init(_ input: FuzzInput) {
      var input = input
      status = UInt16(String(decoding: input.line(), as: UTF8.self)) ?? 0
      while true {
        let line = input.line()
        if line.isEmpty { break }
        let parts = line.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        fields.append((Array(parts[0]), parts.count > 1 ? Array(parts[1].drop { $0 == 0x20 }) : []))
      }
      body = input.rest()
    }

    var http2: HTTP2Message {
      var message = HTTP2Message()
      message.headers.add(":status", String(status))
      for field in fields { message.headers.add(name: field.name, value: field.value) }
      message.body = body
      return message
    }

    var curl: CurlResponse {
      func value(_ name: String) -> [UInt8]? { fields.last { $0.name.elementsEqual(name.utf8) }?.value }
      return CurlResponse(
        status: status, body: body, retryAfter: value("retry-after"), date: value("date"),
        sentAt: Instant(nanoseconds: 0))
    }

    func says(_ word: String) -> Bool { body.firstRange(of: Array(word.utf8)) != nil || body.contains(0x5C) }
  }

  // MARK: - HTTP/2

  static func apns(_ input: FuzzInput) {
    let answer = Answer(input)
    let message = answer.http2
    let (disposition, _) = APNsReasonTable.read(message)
    let status = message.status  // nothing that is not three digits
    guard case .settle(let outcome, _) = disposition else {
      return require([400, 403, 429].contains(status), "sent again under status \(status)")
    }
    check(outcome, status: status)
    if case .tokenInvalid(let reason, _) = outcome {
      require(status == 410 || status == 400 && reason == "BadDeviceToken", "a token died under status \(status)")
      require(answer.says(reason), "a token died of a word that APNs did not say")
    }
    if case .throttled(_, _, let isLaneWide) = outcome { require(!isLaneWide, "one device's rate stops the lane") }
  }

  static func fcm(_ input: FuzzInput) {
    let answer = Answer(input)
    let message = answer.http2
    let status = message.status
    guard case .settle(let outcome, _) = FCMReasonTable.read(message, wallMilliseconds: now) else {
      return require(status == 401, "another access token under status \(status)")
    }
    check(outcome, status: status)
    if case .tokenInvalid(let reason, let since) = outcome {
      let rows: [UInt16: String] = [400: "INVALID_ARGUMENT", 403: "SENDER_ID_MISMATCH", 404: "UNREGISTERED"]
      require(rows[status] == reason && since == nil, "a token died of \(reason) under status \(status)")
      require(answer.says(reason), "a token died of a word that FCM did not say")
      require(status == 400 || answer.says("FcmError"), "a token died of a word that is not FCM's own")
    }
  }

  // MARK: - libcurl

  /// The body selects the number of sent messages.
  static func expoTickets(_ input: FuzzInput) {
    let answer = Answer(input)
    let count = max(1, Int(answer.body.filter { $0 == UInt8(ascii: "{") }.count) - 1 - answer.body.count % 2)
    switch ExpoAnswer(answer.curl, count: count, wallMilliseconds: now) {
    case .tickets(let outcomes):
      require(answer.status == 200, "tickets under status \(answer.status)")
      require(outcomes.count == count, "another number of tickets than messages")
      for outcome in outcomes { checkExpo(outcome, answer) }
    case .all(let outcome):
      check(outcome, status: answer.status, isWhole: true)
      if case .accepted = outcome { fail("all accepted without a ticket") }
      if case .tokenInvalid = outcome { fail("all tokens died of one word") }
    case .splitByProject(let projects):
      require(count > 1, "one message is split")
      require(projects.allSatisfy { $0.count <= answer.body.count }, "more tokens than were named")
    case .sendFewer: require(count > 1, "one message is too many")
    case .halve: require(count > 1, "one message is halved")
    }
  }

  static func expoReceipts(_ input: FuzzInput) {
    let answer = Answer(input)
    let tickets = ["a", "b", "\u{FFFD}", "XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX"]
    switch ExpoReceiptsAnswer(answer.curl, tickets: tickets, wallMilliseconds: now) {
    case .receipts(let outcomes):
      require(answer.status == 200, "receipts under status \(answer.status)")
      for (ticket, outcome) in outcomes {
        require(tickets.contains(ticket), "a receipt nobody asked for")
        checkExpo(outcome, answer)
        if case .unknown = outcome { fail("a receipt that is unknown") }
      }
    case .failed(let outcome):
      check(outcome, status: answer.status, isWhole: true)
      switch outcome {
      case .accepted, .tokenInvalid, .unknown: fail("\(outcome) of a question that failed")
      default: break
      }
    }
  }

  static func oauth(_ input: FuzzInput) {
    let answer = Answer(input)
    do throws(ProviderTokenError) {
      let grant = try FCMTokenExchange.read(answer.curl)
      require(answer.status == 200, "a grant under status \(answer.status)")
      require(1...FCMTokenExchange.tokenLengthMax ~= grant.value.count, "a token that fits into no header")
      require(grant.value.allSatisfy { 0x21...0x7E ~= $0 }, "a token that breaks a header")
      require(1...86_400 ~= grant.lifetimeSeconds, "a lifetime of \(grant.lifetimeSeconds) s")
    } catch {
      require(error.description.utf8.count <= 256, "an error of \(error.description.utf8.count) bytes")
      require(error.description.utf8.allSatisfy { 0x20...0x7E ~= $0 }, "an error that breaks a log line")
    }
  }

  // MARK: - Rules of all

  private static func checkExpo(_ outcome: PushOutcome, _ answer: Answer) {
    check(outcome, status: answer.status, isWhole: false)
    if case .tokenInvalid(let reason, let since) = outcome {
      require(reason == "DeviceNotRegistered" && since == nil, "a token died of \(reason)")
      require(answer.says(reason), "a token died of a word that Expo did not say")
    }
    if outcome.reach == .lane, case .throttled = outcome { fail("one device's rate stops the lane") }
    if case .unauthorized = outcome { fail("one platform's credentials stop the lane") }
  }

  private static func check(_ outcome: PushOutcome, status: UInt16, isWhole: Bool = true) {
    var words: [String] = []
    var after: Nanoseconds?
    switch outcome {
    case .accepted(let id):
      require(status == 200, "accepted under status \(status)")
      require(id.map { 1...256 ~= $0.utf8.count && $0.utf8.allSatisfy { 0x20...0x7E ~= $0 } } ?? true, "no message id")
    case .tokenInvalid(let reason, let since):
      words.append(reason)
      require(since.map { times ~= $0 } ?? true, "a token that died at \(since ?? 0)")
    case .rejected(let reason), .unauthorized(let reason), .refused(let reason), .unknown(let reason):
      words.append(reason)
    case .throttled(let reason, let time, _), .unavailable(let reason, let time):
      words.append(reason)
      after = time
    case .deferred: fail("put off by an answer")
    case .expired: fail("expired by an answer")
    }
    if isWhole, 500...599 ~= status {
      if case .unavailable = outcome {} else { fail("\(outcome) of trouble at the provider") }
    }
    require(after.map { Nanoseconds.zero...Nanoseconds.seconds(86_400) ~= $0 } ?? true, "a wait of \(after!)")
    require(
      words.allSatisfy { 1...64 ~= $0.utf8.count && $0.utf8.allSatisfy { 0x20...0x7E ~= $0 } },
      "a reason that is no word: \(words)")
  }
}
