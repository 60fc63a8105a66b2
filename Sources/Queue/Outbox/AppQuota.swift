// How much an app may enqueue in a minute, as the configuration says.

/// The quota of an app. A limit that is nil does not exist.
public struct AppQuota: Sendable, Equatable {
  /// Maximum number of calls a minute.
  public var calls: Int?
  /// Maximum number of notifications a minute.
  public var notifications: Int?
  /// Maximum number of entries of `recipients` a minute, of calls and notifications together.
  public var recipients: Int?

  public init(calls: Int? = nil, notifications: Int? = nil, recipients: Int? = nil) {
    self.calls = calls
    self.notifications = notifications
    self.recipients = recipients
  }

  /// The three limits as an array of Postgres, as `push.register_app` takes them.
  var arrayText: String {
    "{\([calls, notifications, recipients].map { $0.map(String.init) ?? "NULL" }.joined(separator: ","))}"
  }
}
