// A part of the answer to a scan.

/// One page of the rows that are claimed in our name.
public struct ClaimedPage: Sendable {
  public var leases: [DeliveryLease]
  /// Where the next page begins; nil after the last page.
  public var next: Int64?

  public init(leases: [DeliveryLease], next: Int64?) {
    self.leases = leases
    self.next = next
  }
}
