// What a provider says to its pool about an answer.

extension HTTP2ConnectionPool {
  /// What an answer says about the connection it came on, and whether the request is to be sent again.
  public struct ExchangeEffect: Sendable, Equatable {
    public enum Connection: Sendable {
      /// Our credentials are accepted there.
      case proven
      /// Nothing new.
      case unproven
      /// To be replaced: it finishes what is in flight and takes nothing new.
      case worn
    }

    public var connection: Connection
    /// Only for answers, and only where the request was certainly not carried out. The owner bounds how often.
    public var resends: Bool

    public init(_ connection: Connection, resends: Bool = false) {
      self.connection = connection
      self.resends = resends
    }

    /// The usual answer.
    public static let done = ExchangeEffect(.proven)
  }
}
