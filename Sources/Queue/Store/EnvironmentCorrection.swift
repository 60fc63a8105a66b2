// The environment in which an APNs token really works.

public import PushModel

/// An APNs token that was registered for the wrong environment.
public struct EnvironmentCorrection: Sendable {
  /// `push.lane.id`.
  public var lane: Int16
  public var token: ArraySlice<UInt8>
  /// The environment it works in.
  public var environment: PushEnvironment

  public init(lane: Int16, token: ArraySlice<UInt8>, environment: PushEnvironment) {
    self.lane = lane
    self.token = token
    self.environment = environment
  }
}
