// A call as a request asks for it, checked so far that Postgres can take it.

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
  /// Whether it has an id: a notification without one would be two if it were enqueued twice.
  var hasID: Bool

  /// For `push.enqueue_call`.
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

  /// Entries of `recipients`.
  var recipientCount: Int

  /// Whether it costs about as much as a group of others.
  var isLarge: Bool { recipientCount > 20 || size > 8_192 }

  /// The approximate size as JSON, in bytes.
  var size: Int { payload.count + recipients.count + 256 }

  /// As `push.enqueue_calls` takes it.
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

/// What became of one.
struct EnqueuedCall: Equatable, Sendable {
  var callID: String
  /// `push.outbox.id`.
  var outboxID: Int64
  /// How many devices it goes to.
  var deliveries: Int32
  /// It existed already, and nothing was done.
  var isDuplicate: Bool
  /// How many users have no device, and how many entries of the recipients could not be used.
  var skipped: Int32
}
