// How a push travels, beside what it says: what an app's templates may choose.

public import PushModel

/// Push type, urgency and how long a provider keeps a push.
public struct PushManner: Equatable, Sendable {
  /// `apns-push-type`.
  public enum APNsType: UInt8, CaseIterable, Sendable {
    /// Rings through PushKit, and must end in a reported call.
    case voip
    /// Is shown by iOS.
    case alert
    /// Wakes the app, perhaps, and shows nothing.
    case background
  }

  /// How soon a provider hands a push on.
  public enum Priority: UInt8, CaseIterable, Sendable {
    /// At once: APNs 10, FCM `HIGH`, Expo `high`.
    case high
    /// When it suits the device's battery: APNs 5, FCM `NORMAL`, Expo `normal`.
    case normal
    /// Without waking the device: APNs 1; elsewhere as `normal`.
    case low
  }

  public var apnsType: APNsType
  public var priority: Priority
  /// APNs: whether Apple keeps the push until its deadline for a device it cannot reach; otherwise it tries once.
  public var isStored: Bool
  /// FCM and Expo: the longest time to live in seconds, never beyond the deadline; nil for the deadline alone.
  public var timeToLiveMax: Int64?

  public init(
    apnsType: APNsType, priority: Priority = .high, isStored: Bool = true, timeToLiveMax: Int64? = nil
  ) {
    self.apnsType = apnsType
    self.priority = priority
    self.isStored = isStored
    self.timeToLiveMax = timeToLiveMax
  }

  /// Where nobody chose: an invite rings once or never, everything else is shown until its deadline; all of it at once.
  public static func standard(for kind: PushKind) -> PushManner {
    kind == .invite ? PushManner(apnsType: .voip, isStored: false) : PushManner(apnsType: .alert)
  }

  /// Seconds a provider may keep the push: what is left until the deadline, or less.
  func timeToLive(secondsLeft: Int64) -> Int64 {
    max(0, min(secondsLeft, timeToLiveMax ?? .max))
  }
}

/// What an FCM message has beside `data`: each of them a rendered JSON object, or empty for none.
public struct FCMMessageMembers: Equatable, Sendable {
  /// `apns`: what an iPhone gets.
  public var apns: [UInt8]
  /// `notification`: what both systems show by themselves.
  public var notification: [UInt8]
  /// Members of `android` beside those that the gateway writes.
  public var android: [UInt8]

  /// Bytes of all of them together.
  public var count: Int { apns.count + notification.count + android.count }

  public init(apns: [UInt8] = [], notification: [UInt8] = [], android: [UInt8] = []) {
    self.apns = apns
    self.notification = notification
    self.android = android
  }
}
