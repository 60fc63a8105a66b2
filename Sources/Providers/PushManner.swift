// The delivery settings of a push that an app's templates may choose.

public import PushModel

/// Push type, priority, and how long a provider keeps a push.
public struct PushManner: Equatable, Sendable {
  /// `apns-push-type`.
  public enum APNsType: UInt8, CaseIterable, Sendable {
    /// Delivered through PushKit. Must lead to a reported call.
    case voip
    /// Shown by iOS.
    case alert
    /// Shows nothing and may wake the app.
    case background
  }

  /// How soon a provider delivers a push.
  public enum Priority: UInt8, CaseIterable, Sendable {
    /// At once: APNs 10, FCM `HIGH`, Expo and web push `high`.
    case high
    /// At a time that saves the device's battery: APNs 5, FCM `NORMAL`, Expo and web push `normal`.
    case normal
    /// Without waking the device: APNs 1, web push `low`. FCM and Expo treat it as `normal`.
    case low
  }

  public var apnsType: APNsType
  public var priority: Priority
  /// APNs: whether Apple stores the push until its deadline while the device cannot be reached. Otherwise Apple tries once.
  public var isStored: Bool
  /// FCM, Expo and web push: maximum time to live in seconds. The deadline limits it in any case; nil: only the deadline does.
  public var timeToLiveMax: Int64?

  public init(
    apnsType: APNsType, priority: Priority = .high, isStored: Bool = true, timeToLiveMax: Int64? = nil
  ) {
    self.apnsType = apnsType
    self.priority = priority
    self.isStored = isStored
    self.timeToLiveMax = timeToLiveMax
  }

  /// The default of a kind, all with priority `high`. An invite is tried once and not stored. All other pushes are stored until
  /// their deadline.
  public static func standard(for kind: PushKind) -> PushManner {
    kind == .invite ? PushManner(apnsType: .voip, isStored: false) : PushManner(apnsType: .alert)
  }

  /// Maximum time in seconds that a provider may keep the push: the time left until the deadline, or less.
  func timeToLive(secondsLeft: Int64) -> Int64 {
    max(0, min(secondsLeft, timeToLiveMax ?? .max))
  }
}

/// The members of an FCM message other than `data`. Each is a rendered JSON object, or empty if it is missing.
public struct FCMMessageMembers: Equatable, Sendable {
  /// `apns`: the content for iPhones.
  public var apns: [UInt8]
  /// `notification`: the content that iOS and Android show without the app.
  public var notification: [UInt8]
  /// Members of `android` in addition to those that the gateway writes.
  public var android: [UInt8]

  /// Total number of bytes.
  public var count: Int { apns.count + notification.count + android.count }

  public init(apns: [UInt8] = [], notification: [UInt8] = [], android: [UInt8] = []) {
    self.apns = apns
    self.notification = notification
    self.android = android
  }
}
