// What a phone knows of the pushes before: which calls ring, and which notifications stand there.

/// The memory of one phone, for pushes that come one after the other.
///
/// A push that comes twice rings once where the app, or CallKit, knows the call by its id, and twice where the app makes up an id for
/// each push. iOS shows a notification in the place of one with the same collapse id (Apple, “Sending notification requests
/// to APNs”, apns-collapse-id), Android in the place of one with the same tag (Firebase, AndroidNotification).
public struct PhoneMemory: Sendable {
  /// The ids by which calls ring, or rang.
  public private(set) var callIDs: Set<String> = []
  /// The collapse ids and tags of what the system has shown.
  private var shown: Set<String> = []

  public init() {}

  mutating func apply(
    _ outcome: PhoneOutcome, of push: PhonePush, on phone: Phone, by app: any PhoneApp
  ) -> PhoneOutcome {
    var outcome = outcome
    var isFirst = true
    outcome.reactions = outcome.reactions.map { reaction in
      switch reaction {
      case .rings(let ring):
        guard let id = app.id(of: ring, over: push.channel, phone.state) else { return reaction }
        if callIDs.insert(id).inserted { return reaction }
        outcome.rule += "; the call of this id rings already"
        return .ignores
      case .shows(let title, let body, let tap) where isFirst:
        // What the app shows beside it has neither.
        isFirst = false
        guard let id = push.place(on: phone), !shown.insert(id).inserted else { return reaction }
        return .replaces(title: title, body: body, tap: tap)
      default: return reaction
      }
    }
    return outcome
  }
}
