// What a phone remembers of earlier pushes: ringing calls and shown notifications.

/// The memory of one phone.
///
/// A push that arrives twice rings once if the app or CallKit recognizes the call by its id, and twice if the app makes a new id for
/// each push. On iOS a notification replaces one with the same collapse id (Apple, “Sending notification requests
/// to APNs”, apns-collapse-id), on Android one with the same tag (Firebase, AndroidNotification).
public struct PhoneMemory: Sendable {
  /// The ids of calls that ring or rang.
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
        // A notification that the app itself shows has neither.
        isFirst = false
        guard let id = push.place(on: phone), !shown.insert(id).inserted else { return reaction }
        return .replaces(title: title, body: body, tap: tap)
      default: return reaction
      }
    }
    return outcome
  }
}
