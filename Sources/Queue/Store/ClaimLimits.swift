// What a claim may bring from all lanes together.

/// The limits of one claim.
public struct ClaimLimits: Sendable, Equatable {
  /// Maximum number of rows of all lanes. Lanes are searched in the order of their allowances until that many rows are found.
  public var inAll: Int32
  /// Maximum number of these whose deadline is more than ten minutes away. No ring's is.
  public var background: Int32

  public init(inAll: Int32 = .max, background: Int32 = .max) {
    self.inAll = inAll
    self.background = background
  }
}
