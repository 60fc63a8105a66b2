// A compiled template: constant parts are bytes, and the rest is a list of instructions.

/// The body of one kind of push to one provider, ready to be rendered.
///
/// An instruction owns no memory (but one that is rare): literals and names are ranges of the two pools, so that rendering
/// runs down a flat list without counting references.
struct PushTemplate: Equatable, Sendable {
  typealias Literal = Range<Int>
  typealias Names = Range<Int>

  enum Instruction: Equatable, Sendable {
    /// JSON that stands where a name or a value begins: a comma may have to go before it.
    case literal(Literal)
    /// Bytes inside a string, or the end of a string or a container.
    case part(Literal)
    /// The text of the first name that has one, inside a string; else the fallback; else the payload cannot be rendered.
    case text(Names, fallback: Literal?)
    /// The first name that has a value, as it stands in the payload.
    case json(Names)
    /// A member that is left out when no name has a text. `key` is the member's name with quotes and colon.
    case optionalText(key: Literal, Names)
    /// A member that is left out when no name has a value.
    case optionalJSON(key: Literal, Names)
    /// A member that is left out when no name has a text that is a UUID.
    case optionalUUID(key: Literal, Names)
    /// One of two texts inside a string: for a yes to the question, and for a no.
    case choice(Placeholder.Question, yes: Literal, no: Literal)
    /// A member that is there only for a yes.
    case optionalChoice(Placeholder.Question, key: Literal, yes: Literal)
    /// Members of the payload, or of its metadata, that the template does not name.
    case otherMembers(OtherMembers)
    /// The JSON between these two is written as one string.
    case beginNested
    case endNested
  }

  /// Which other members of the payload are passed on.
  struct OtherMembers: Equatable, Sendable {
    /// Names with a meaning for the provider or the system, which a payload must not set.
    enum Reserved: Equatable, Sendable {
      case none
      /// In a payload's outermost object over APNs: `aps`, `gcm.…` and `google.…`.
      case apns
      /// In FCM data: its reserved keys, and `aps`, which reaches iPhones beside the real one.
      case fcm
    }

    /// Members of `metadata` instead of the payload.
    var ofMetadata = false
    /// Only names with this prefix.
    var prefix: [UInt8] = []
    var reserved = Reserved.none
    /// The names that the template sets itself.
    var named: [[UInt8]]
    /// Written as strings, without null members.
    var asText: Bool
    /// True when no member of baseCallData is left.
    var coversBaseCallData: Bool
  }

  var instructions: [Instruction] = []
  var literals: [UInt8] = []
  var names: [TemplateName] = []
}
