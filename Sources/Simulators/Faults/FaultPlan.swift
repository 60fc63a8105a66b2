// A list of rules for faults, of which the first match applies. It is read from a JSON file or built in a test.

internal import Runtime

/// A rule: the requests that get a fault.
public struct FaultRule: Sendable, Equatable {
  public var provider: SimulatedProvider
  /// APNs: only on this listener, `production` or `sandbox`; nil for both.
  public var environment: String?
  /// Only for tokens with this prefix; nil for all. Never matches a request without a token (OAuth).
  public var tokenPrefix: String?
  public var fault: Fault
  /// The share of matching requests that get the fault, 0 to 1, evenly spread: with 0.1, every tenth.
  public var share: Double
  /// Number of matching requests that pass before the first fault.
  public var after: Int
  /// Maximum number of requests that meet the fault; nil for no limit.
  public var count: Int?

  public init(
    provider: SimulatedProvider, environment: String? = nil, tokenPrefix: String? = nil, fault: Fault,
    share: Double = 1, after: Int = 0, count: Int? = nil
  ) {
    self.provider = provider
    self.environment = environment
    self.tokenPrefix = tokenPrefix
    self.fault = fault
    self.share = share
    self.after = after
    self.count = count
  }
}

/// An error in a fault plan, with its position.
public struct FaultPlanError: Error, Equatable, CustomStringConvertible, Sendable {
  public let description: String
}

/// The rules of a run.
///
/// The file is a JSON array; each rule is an object with `provider` (apns, fcm, oauth, expo, webpush) and any of
/// `environment` (production, sandbox: apns only), `token_prefix`, `reason` (the provider's own code), `status`,
/// `body`, `receipt` (an Expo receipt's error), `action` (hang, deafen, lose, reset, refuse, close, malformed, html,
/// slow, goaway, cutoff), `timestamp` (ms since 1970, for APNs 410), `retry_after` (s), `delay_ms`, `share` (0 to 1), `count`,
/// `after`, `goaway_every` (a GOAWAY with every n-th matching request).
public struct FaultPlan: Sendable, Equatable {
  public var rules: [FaultRule]

  public init(_ rules: [FaultRule] = []) {
    self.rules = rules
  }

  /// Reads a plan's JSON text.
  public init(json: [UInt8]) throws(FaultPlanError) {
    let scanner: JSONScanner
    do {
      scanner = try JSONScanner(json)
    } catch {
      throw FaultPlanError(description: "the fault plan is \(error)")
    }
    guard scanner.root.kind == .array else {
      throw FaultPlanError(description: "the fault plan must be a JSON array of rules")
    }
    var rules: [FaultRule] = []
    for (index, element) in scanner.elements(of: scanner.root).enumerated() {
      do throws(FaultPlanError) {
        var reader = FaultRuleReader(scanner)
        rules.append(try reader.rule(element))
      } catch {
        throw FaultPlanError(description: "rule \(index + 1) of the fault plan: \(error.description)")
      }
    }
    self.rules = rules
  }
}

/// Reads one rule.
private struct FaultRuleReader {
  let scanner: JSONScanner
  var provider: SimulatedProvider?
  var environment: String?
  var tokenPrefix: String?
  var status: Int?
  var reason: String?
  var body: String?
  var receipt: String?
  var action: String?
  var timestamp: Int64?
  var retryAfter: Int?
  var delay: Nanoseconds?
  var share: Double = 1
  var count: Int?
  var after = 0
  var goAwayEvery: Int?

  init(_ scanner: JSONScanner) {
    self.scanner = scanner
  }

  mutating func rule(_ value: JSONScanner.Value) throws(FaultPlanError) -> FaultRule {
    guard value.kind == .object else { throw FaultPlanError(description: "must be an object") }
    for member in scanner.members(of: value) {
      let key = String(decoding: scanner.key(member), as: UTF8.self)
      try read(key, member.value)
    }
    guard let provider else { throw FaultPlanError(description: "needs a provider: apns, fcm, oauth, expo or webpush") }
    return FaultRule(
      provider: provider, environment: environment, tokenPrefix: tokenPrefix, fault: try fault(), share: share,
      after: after, count: count)
  }

  private mutating func read(_ key: String, _ value: JSONScanner.Value) throws(FaultPlanError) {
    switch key {
    case "provider":
      provider = SimulatedProvider(rawValue: try text(key, value))
      if provider == nil { throw FaultPlanError(description: "provider must be apns, fcm, oauth, expo or webpush") }
    case "environment":
      environment = try text(key, value)
      guard environment == "production" || environment == "sandbox" else {
        throw FaultPlanError(description: "environment must be production or sandbox")
      }
    case "token_prefix": tokenPrefix = try text(key, value)
    case "reason": reason = try text(key, value)
    case "receipt": receipt = try text(key, value)
    case "action": action = try text(key, value)
    case "body": body = value.kind == .string ? scanner.text(value) : scanner.raw(value).text
    case "status": status = Int(try number(key, value, 100...599))
    case "timestamp": timestamp = try number(key, value, 0...Int64.max)
    case "retry_after": retryAfter = Int(try number(key, value, 0...86_400))
    case "delay_ms": delay = .milliseconds(try number(key, value, 0...3_600_000))
    case "count": count = Int(try number(key, value, 0...Int64.max))
    case "after": after = Int(try number(key, value, 0...Int64.max))
    case "goaway_every": goAwayEvery = Int(try number(key, value, 1...Int64.max))
    case "share":
      guard value.kind == .number, let share = Double(scanner.raw(value).text), (0...1).contains(share) else {
        throw FaultPlanError(description: "share must be a number from 0 to 1")
      }
      self.share = share
    default: throw FaultPlanError(description: "knows no key “\(key)”")
    }
  }

  private mutating func fault() throws(FaultPlanError) -> Fault {
    var fault = Fault(.accept)
    if let action {
      guard let named = Fault.named(action) else {
        throw FaultPlanError(
          description: "action must be one of \(Fault.names.map(\.name).joined(separator: ", "))")
      }
      fault = named
    } else if let receipt {
      fault.effect = .receipt(receipt)
    } else if status != nil || reason != nil || body != nil {
      guard reason != nil || status != nil else {
        throw FaultPlanError(description: "a body needs a status or a reason")
      }
      fault.effect = .answer(status: status, reason: reason ?? "HTTP\(status ?? 0)", body: body)
    }
    if let delay { fault.delay = delay }
    fault.retryAfter = retryAfter
    fault.timestamp = timestamp
    if let goAwayEvery {
      fault.goesAway = true
      share /= Double(goAwayEvery)
    }
    return fault
  }

  private func text(_ key: String, _ value: JSONScanner.Value) throws(FaultPlanError) -> String {
    guard let text = scanner.text(value) else { throw FaultPlanError(description: "\(key) must be a string") }
    return text
  }

  private func number(
    _ key: String, _ value: JSONScanner.Value, _ range: ClosedRange<Int64>
  ) throws(FaultPlanError) -> Int64 {
    guard let number = scanner.integer(value), range.contains(number) else {
      throw FaultPlanError(
        description: "\(key) must be a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return number
  }
}
