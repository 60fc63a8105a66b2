// The header fields that APNs defines, read in one pass over a request's fields.

internal import Runtime

struct APNsHeaders {
  private(set) var method: ArraySlice<UInt8> = []
  private(set) var path: ArraySlice<UInt8> = []
  private(set) var authorization: ArraySlice<UInt8>?
  private(set) var id: ArraySlice<UInt8>?
  private(set) var pushType: ArraySlice<UInt8>?
  private(set) var expiration: ArraySlice<UInt8>?
  private(set) var priority: ArraySlice<UInt8>?
  private(set) var topic: ArraySlice<UInt8>?
  private(set) var collapseID: ArraySlice<UInt8>?
  /// A field that may occur once occurred twice.
  private(set) var hasDuplicates = false
  private(set) var isVoIP = false

  init(_ headers: HTTP2HeaderBlock) {
    var found = APNsHeaders()
    headers.forEach { name, value in found.read(name, value) }
    found.isVoIP = found.pushType?.equals("voip") ?? false
    self = found
  }

  private init() {}

  private mutating func read(_ name: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>) {
    if name.equals(":path") {
      path = value
    } else if name.equals(":method") {
      method = value
    } else if name.equals("authorization") {
      hasDuplicates = Self.set(&authorization, value) || hasDuplicates
    } else if name.hasPrefix("apns-") {
      hasDuplicates = readOwn(name, value) || hasDuplicates
    }
  }

  /// Stores one of Apple's own fields. Returns true if the request already contained the field.
  private mutating func readOwn(_ name: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>) -> Bool {
    switch name.count {
    case 7 where name.equals("apns-id"): Self.set(&id, value)
    case 10 where name.equals("apns-topic"): Self.set(&topic, value)
    case 13 where name.equals("apns-priority"): Self.set(&priority, value)
    case 14 where name.equals("apns-push-type"): Self.set(&pushType, value)
    case 15 where name.equals("apns-expiration"): Self.set(&expiration, value)
    case 16 where name.equals("apns-collapse-id"): Self.set(&collapseID, value)
    default: false
    }
  }

  private static func set(_ field: inout ArraySlice<UInt8>?, _ value: ArraySlice<UInt8>) -> Bool {
    defer { field = value }
    return field != nil
  }
}
