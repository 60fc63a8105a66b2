// What a claim brings of a call.

/// What all deliveries of a call have in common. The deliveries that one claim brings share one object.
public final class CallData: Sendable {
  /// Where the texts lie in `bytes`, as UTF-8.
  public struct Texts: Sendable {
    /// `push.outbox.kind`: `incoming_call`, `video_call`, ….
    public var callKind: Range<Int>
    public var callID: Range<Int>
    /// Why the call ended, in the backend's word. Nil while it rings, and when the backend gave no reason.
    public var endReason: Range<Int>?
    /// `push.outbox.traceparent`, which SQL has checked; nil for none.
    public var traceparent: Range<Int>?
    /// baseCallData as JSON text.
    public var payload: Range<Int>

    public init(
      callKind: Range<Int>, callID: Range<Int>, endReason: Range<Int>?, traceparent: Range<Int>?, payload: Range<Int>
    ) {
      self.callKind = callKind
      self.callID = callID
      self.endReason = endReason
      self.traceparent = traceparent
      self.payload = payload
    }
  }

  public let texts: Texts
  public let bytes: [UInt8]
  /// The call had ended when its row was read.
  public let isOver: Bool
  /// The ids of the users who had declined when its row was read.
  public let decliners: Set<[UInt8]>

  public init(texts: Texts, bytes: [UInt8], isOver: Bool, decliners: Set<[UInt8]> = []) {
    self.texts = texts
    self.bytes = bytes
    self.isOver = isOver
    self.decliners = decliners
  }

  /// Creates a call from separate texts.
  public convenience init(
    callKind: [UInt8], callID: [UInt8], payload: [UInt8], endReason: [UInt8]? = nil, traceparent: [UInt8]? = nil,
    isOver: Bool = false, decliners: Set<[UInt8]> = []
  ) {
    var bytes: [UInt8] = []
    func add(_ text: [UInt8]) -> Range<Int> {
      bytes += text
      return bytes.count - text.count..<bytes.count
    }
    let texts = Texts(
      callKind: add(callKind), callID: add(callID), endReason: endReason.map(add), traceparent: traceparent.map(add),
      payload: add(payload))
    self.init(texts: texts, bytes: bytes, isOver: isOver, decliners: decliners)
  }
}
