// A call as a request describes it, checked so that Postgres can store its values.

internal import Queue
internal import Runtime

/// The arguments of `push.enqueue_call`.
struct APICall: Equatable, Sendable {
  /// JSON text of an object.
  var payload: [UInt8]
  /// JSON text of an array.
  var recipients: [UInt8]
  var app: String
  var ringSeconds: Int32?
  var kind: String?
  var traceparent: String?
  /// Whether the call has an id. A notification without an id that is enqueued twice would be sent twice.
  var hasID: Bool

  /// The parameters of `push.enqueue_call`.
  var parameters: PostgresParameters {
    var parameters = PostgresParameters(reservingCapacity: size)
    parameters.append(text: payload)
    parameters.append(text: recipients)
    parameters.append(app)
    parameters.append(ringSeconds)
    parameters.append(kind)
    parameters.append(traceparent)
    return parameters
  }

  /// Number of entries of `recipients`.
  var recipientCount: Int

  /// Whether it is a call, and no notification.
  var rings: Bool { [nil, "incoming_call", "video_call"].contains(kind) }

  /// Whether the call costs about as much as a group of small calls.
  var isLarge: Bool { recipientCount > 20 || size > 8_192 }

  /// The approximate size as JSON, in bytes.
  var size: Int { payload.count + recipients.count + 256 }

  /// Writes the call as an element of the argument of `push.enqueue_calls`.
  func write(to writer: inout JSONWriter) {
    writer.beginObject()
    writer.key("app")
    writer.string(app)
    writer.key("payload")
    writer.raw(payload)
    writer.key("recipients")
    writer.raw(recipients)
    if let kind {
      writer.key("kind")
      writer.string(kind)
    }
    if let ringSeconds {
      writer.key("ringSeconds")
      writer.integer(Int64(ringSeconds))
    }
    if let traceparent {
      writer.key("traceparent")
      writer.string(traceparent)
    }
    writer.endObject()
  }
}

/// The result of enqueueing a call.
struct EnqueuedCall: Equatable, Sendable {
  var callID: String
  /// `push.outbox.id`.
  var outboxID: Int64
  /// Number of devices that the call goes to.
  var deliveries: Int32
  /// Whether the call existed already, so that nothing was changed.
  var isDuplicate: Bool
  /// Number of users without a device, plus number of invalid entries in `recipients`.
  var skipped: Int32
}
