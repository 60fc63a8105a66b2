// The systems of devices.

/// The system of a device. The raw values are the codes of `push.delivery.platform`.
public enum DevicePlatform: UInt8, CaseIterable, Sendable {
  case unknown = 0
  case ios = 1
  case android = 2
  /// A browser. Only web push reaches it.
  case web = 3
}
