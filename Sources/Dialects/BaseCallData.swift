// The positions of baseCallData's members in a payload, found in one pass.

internal import Runtime

struct BaseCallData {
  /// The names of baseCallData (docs/architecture.md).
  static let keys = [
    "callId", "from", "fromName", "apartmentNumber", "buildingName", "channelName", "metadata",
  ]

  private static let keyBytes = keys.map { Array($0.utf8) }

  /// Whether this is a name of baseCallData.
  static func holds(_ key: [UInt8]) -> Bool { keyBytes.contains(key) }

  private(set) var from: JSONScanner.Value?
  private(set) var fromName: JSONScanner.Value?
  private(set) var apartmentNumber: JSONScanner.Value?
  private(set) var buildingName: JSONScanner.Value?
  private(set) var channelName: JSONScanner.Value?
  private(set) var metadata: JSONScanner.Value?
  /// The other members of the payload, usually few.
  private(set) var others: [JSONScanner.Member] = []

  init(_ payload: JSONScanner) {
    for member in payload.members(of: payload.root) { note(member, in: payload) }
  }

  private mutating func note(_ member: JSONScanner.Member, in json: JSONScanner) {
    switch member.key.count {  // the length leaves at most two names to compare
    case 4 where json.isKey(member, "from"): from = member.value
    case 6 where json.isKey(member, "callId"): break
    case 8 where json.isKey(member, "fromName"): fromName = member.value
    case 8 where json.isKey(member, "metadata"): metadata = member.value
    case 11 where json.isKey(member, "channelName"): channelName = member.value
    case 12 where json.isKey(member, "buildingName"): buildingName = member.value
    case 15 where json.isKey(member, "apartmentNumber"): apartmentNumber = member.value
    default: others.append(member)
    }
  }
}
