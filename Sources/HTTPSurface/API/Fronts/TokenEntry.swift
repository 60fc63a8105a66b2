// A phone that is known by its token alone, as an entry of a call's recipients.

internal import Runtime
internal import Settings

/// An entry of `recipients` with one token.
struct TokenEntry: Equatable {
  enum Kind: Equatable {
    case voip, apns, fcm

    init(_ kind: MatrixAppIDs.TokenKind) {
      switch kind {
      case .voip: self = .voip
      case .apns: self = .apns
      case .fcm: self = .fcm
      }
    }

    var provider: String { self == .fcm ? "fcm" : "apns" }
    fileprivate var member: StaticString {
      switch self {
      case .voip: "voipPushToken"
      case .apns: "apnsToken"
      case .fcm: "fcmToken"
      }
    }
  }

  var token: String
  var kind: Kind
  var isSandbox = false

  /// The same for an APNs token in upper and in lower case, which are one token.
  var userID: String { TokenIdentity.userID(of: kind == .fcm ? token : token.lowercased()) }

  func write(to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("userId")
    writer.string(userID)
    writer.key(kind.member)
    writer.string(token)
    writer.key("platform")
    writer.string(kind == .fcm ? "android" : "ios")
    if isSandbox {
      writer.key("environment")
      writer.string("sandbox")
    }
    // Neither homeservers nor clients of gorush reliably say that a call was answered, so the gateway cannot know
    // whether it was missed.
    writer.key("missedCall")
    writer.boolean(false)
    writer.endObject()
  }
}
