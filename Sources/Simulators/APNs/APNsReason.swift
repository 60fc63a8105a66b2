// Every reason of APNs, its status, and the device token that requests it from a simulator.

/// The `reason` of an APNs error body (Apple, “Handling notification responses from APNs”).
///
/// A device token that begins with `faultPrefix` gets this answer although its request is valid. The prefix is `dead`,
/// the three digits of the status, and the index of the reason among those of the same status as a hexadecimal digit.
public enum APNsReason: String, Sendable, CaseIterable {
  case badCollapseId = "BadCollapseId"
  case badDeviceToken = "BadDeviceToken"
  case badExpirationDate = "BadExpirationDate"
  case badMessageId = "BadMessageId"
  case badPriority = "BadPriority"
  case badTopic = "BadTopic"
  case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
  case duplicateHeaders = "DuplicateHeaders"
  case idleTimeout = "IdleTimeout"
  case invalidPushType = "InvalidPushType"
  case missingDeviceToken = "MissingDeviceToken"
  case missingTopic = "MissingTopic"
  case payloadEmpty = "PayloadEmpty"
  case topicDisallowed = "TopicDisallowed"
  case badCertificate = "BadCertificate"
  case badCertificateEnvironment = "BadCertificateEnvironment"
  case expiredProviderToken = "ExpiredProviderToken"
  case forbidden = "Forbidden"
  case invalidProviderToken = "InvalidProviderToken"
  case missingProviderToken = "MissingProviderToken"
  case unrelatedKeyIdInToken = "UnrelatedKeyIdInToken"
  case badEnvironmentKeyIdInToken = "BadEnvironmentKeyIdInToken"
  case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
  case badPath = "BadPath"
  case methodNotAllowed = "MethodNotAllowed"
  case unregistered = "Unregistered"
  case expiredToken = "ExpiredToken"
  case payloadTooLarge = "PayloadTooLarge"
  case tooManyRequests = "TooManyRequests"
  case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
  case internalServerError = "InternalServerError"
  case serviceUnavailable = "ServiceUnavailable"
  case shutdown = "Shutdown"

  public var status: Int {
    switch self {
    case .badCollapseId, .badDeviceToken, .badExpirationDate, .badMessageId, .badPriority, .badTopic,
      .deviceTokenNotForTopic, .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken, .missingTopic,
      .payloadEmpty, .topicDisallowed:
      400
    case .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .forbidden, .invalidProviderToken,
      .missingProviderToken, .unrelatedKeyIdInToken, .badEnvironmentKeyIdInToken, .badEnvironmentKeyInToken:
      403
    case .badPath: 404
    case .methodNotAllowed: 405
    case .unregistered, .expiredToken: 410
    case .payloadTooLarge: 413
    case .tooManyRequests, .tooManyProviderTokenUpdates: 429
    case .internalServerError: 500
    case .serviceUnavailable, .shutdown: 503
    }
  }

  /// The eight hexadecimal digits that request this reason in a token: `dead4001` for BadDeviceToken.
  public var faultPrefix: String {
    let place = Self.allCases.prefix { $0 != self }.count { $0.status == status }
    return "dead\(status)\(String(place, radix: 16))"
  }
}

/// Device tokens that request a fault. They begin with `dead`, because APNs tokens contain only hexadecimal digits.
enum APNsTokenFault {
  /// 410 with a time long before any registration: the token must not be invalidated.
  static let longDead = "dead410f"
  /// The time from which the tokens of `longDead` are dead: 2017-07-14, in milliseconds since 1970.
  static let longDeadSince: Int64 = 1_500_000_000_000

  /// Prefix and fault; the faults of `Fault.names` are `dead0001`, `dead0002`… in their order.
  static let table: [(prefix: String, meaning: String, fault: Fault)] = {
    var table: [(prefix: String, meaning: String, fault: Fault)] = []
    for reason in APNsReason.allCases {
      table.append((reason.faultPrefix, "\(reason.status) \(reason.rawValue)", .reason(reason.rawValue)))
    }
    table.append(
      (longDead, "410 Unregistered since July 2017", .reason("Unregistered", timestamp: longDeadSince)))
    table.append(("deadbeef", "410 Unregistered", .reason("Unregistered")))
    for (index, name) in Fault.names.enumerated() {
      guard let fault = Fault.named(name.name) else { continue }
      let digits = String(index + 1, radix: 16)
      table.append(("dead" + String(repeating: "0", count: 4 - digits.count) + digits, name.meaning, fault))
    }
    return table
  }()

  private static let faults = Dictionary(uniqueKeysWithValues: table.map { (Array($0.prefix.utf8), $0.fault) })

  static func fault(in token: ArraySlice<UInt8>) -> Fault? {
    guard token.hasPrefixIgnoringCase("dead") else { return nil }
    return faults[token.prefix(8).map { $0 | 0x20 }]  // digits have that bit set already
  }
}
