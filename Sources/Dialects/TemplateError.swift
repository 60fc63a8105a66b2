// Faults of templates. They are found at start-up, when templates are compiled, never at the first call.

internal import Providers
internal import Runtime

/// One fault of a template.
public struct TemplateError: Error, Equatable, CustomStringConvertible, Sendable {
  enum Reason: Error, Equatable, Sendable {
    case notJSON(JSONErrorText)
    case notAnObject
    case unknownProvider(String)
    case unknownKind(String)
    case unknownPlaceholder(String)
    case malformedPlaceholder(String)
    case unknownDirective(String)
    case repeatedKey(String)
    case notAString
    case reservedKey(String)
    case setByGateway(String)
    case payloadInMessage
    case cancelOverAPNs
    case noAlert
    case maybeEmpty
    case unknownPushMember(String, among: [String])
    case badPushValue(String)
    case backgroundWithAlert
    case apnsBlock(String)
    case visibleCall(String)
  }
  typealias JSONErrorText = String

  /// The place, such as `fcm.invite.from`; empty for the dialect as a whole.
  public let path: String
  let reason: Reason

  public var description: String { "\(path.isEmpty ? "the dialect" : path): \(message)" }

  /// What is wrong and what to do.
  public var message: String {
    switch reason {
    case .notJSON(let error): error
    case .notAnObject: "must be an object with keys"
    case .unknownProvider(let name):
      "no such provider: \(name)" + Self.hint(for: name, among: ProviderKind.allCases.map(\.rawValue))
    case .unknownKind(let name):
      "no such kind: \(name)" + Self.hint(for: name, among: PushTemplateKind.allCases.map(\.rawValue))
        + ", each also with the suffix .ios or .android"
    case .unknownPlaceholder(let name):
      "unknown placeholder ${\(name)}\(Suggestion.text(for: name, among: TemplateName.plainNames)); there are "
        + TemplateName.plainNames.joined(separator: ", ") + ", metadata.NAME and payload.NAME"
    case .malformedPlaceholder(let text):
      "malformed placeholder ${\(text)}; write ${name}, ${name?}, ${name|other|'literal'} or ${name:json}"
    case .unknownDirective(let name):
      "unknown directive \(name); there are $string, $payload with the value others or PREFIX*, $metadata with the value "
        + "others or texts, and in the outermost object $push"
    case .repeatedKey(let name): "the key \(name) occurs twice"
    case .notAString:
      "every value of an FCM data object is a string: put it in quotes; use $string for an object, and no :json"
    case .reservedKey(let name):
      "\(name) is a reserved FCM data key (so are from, message_type and all that begins with google or gcm)"
    case .setByGateway(let name):
      "\(name) is written by the gateway (so are to, priority, expiration, ttl and collapseId); $push says how"
    case .payloadInMessage: "must stand inside data: outside, a call's payload could set the message's own fields"
    case .cancelOverAPNs:
      "there is no cancel over APNs: every VoIP push must report a call, so none can end one; for phones that treat "
        + "a VoIP push as the end of a call, set $push: {type: voip}, and voip_cancel: true in the app's settings"
    case .noAlert: "must have aps with an alert: it is sent as an alert, because only an invite may be a VoIP push"
    case .unknownPushMember(let name, let known):
      "unknown: \(name)" + Suggestion.text(for: name, among: known) + "; there are " + known.joined(separator: ", ")
    case .badPushValue(let takes): "must be \(takes)"
    case .backgroundWithAlert:
      "the type background needs aps with content-available: 1 and without alert, sound and badge; an alert has the type alert"
    case .apnsBlock(let text): text
    case .visibleCall(let name):
      "\(name) makes an Android phone show a notification instead of running the app's code, which rings; put it into a "
        + "template for ios only, or set $push: {headless: false} if the app rings by that notification"
    case .maybeEmpty: "must have at least one member that is not optional"
    }
  }

  private static func hint(for name: String, among known: [String]) -> String {
    Suggestion.text(for: name, among: known) + "; there are " + known.joined(separator: ", ")
  }
}
