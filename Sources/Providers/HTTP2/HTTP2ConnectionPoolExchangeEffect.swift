// What an answer means for its connection and its request, as the provider tells its pool.

extension HTTP2ConnectionPool {
  /// What an answer says about its connection, and whether the request is to be sent again.
  public struct ExchangeEffect: Sendable, Equatable {
    public enum Connection: Sendable {
      /// The server accepts our credentials on it.
      case proven
      /// Nothing new.
      case unproven
      /// To be replaced: it finishes its requests in flight and takes no new ones.
      case worn
    }

    public var connection: Connection
    /// Whether the request is sent again. Only for answers to requests that were certainly not carried out. The owner limits the
    /// number of resends.
    public var resends: Bool

    public init(_ connection: Connection, resends: Bool = false) {
      self.connection = connection
      self.resends = resends
    }

    /// The usual answer.
    public static let done = ExchangeEffect(.proven)
  }
}
