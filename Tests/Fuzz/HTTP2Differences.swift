// All intended differences between our client and nghttp2's, each with its reason. Any other difference is a fault.

/// A frame that the two clients handled differently.
struct HTTP2Disagreement {
  var frame: WireFrame
  var ours: (events: [ClientEvent], error: UInt32?)
  var theirs: (events: [ClientEvent], error: UInt32?)
  /// nghttp2's message about a header field.
  var refusedField: String?
  /// Whether the field was in trailers.
  var isInTrailers: Bool
  /// The fields of the last header block, names and values alternating.
  var lastFields: [[UInt8]]
  /// nghttp2 reads no more frames.
  var isTheirsDone: Bool

  /// Our client ended the connection and nghttp2 did not.
  var isOursStricter: Bool { ours.error != nil && theirs.error == nil }
  /// nghttp2 ended the connection and our client did not.
  var isOursLaxer: Bool { ours.error == nil && theirs.error != nil }

  func isAbout(_ type: UInt8) -> Bool { frame.type == type }
}

struct HTTP2Difference {
  let name: String
  /// The section of RFC 9113, unless another RFC is named.
  let section: String
  let reason: String
  let applies: (HTTP2Disagreement) -> Bool

  init(_ name: String, _ section: String, _ reason: String, _ applies: @escaping (HTTP2Disagreement) -> Bool) {
    (self.name, self.section, self.reason, self.applies) = (name, section, reason, applies)
  }

  nonisolated(unsafe) static let intended: [HTTP2Difference] = [
    HTTP2Difference(
      "SETTINGS that acknowledge nothing", "§6.5.3",
      "passed over: we change no setting after the first, so there is nothing that could be confused"
    ) { $0.isOursLaxer && $0.isAbout(HTTP2FrameType.settings) && $0.frame.flags & 1 == 1 && $0.frame.payload.isEmpty },
    HTTP2Difference(
      "settings of extensions", "RFC 8441 §3, RFC 9218 §2.1",
      "we speak neither extension, and an unknown setting is passed over (§6.5.2)"
    ) {
      $0.isOursLaxer && $0.isAbout(HTTP2FrameType.settings)
        && stride(from: 0, to: $0.frame.payload.count, by: 6)
          .contains { [place = $0.frame.payload.startIndex, payload = $0.frame.payload] in
            [8, 9].contains(payload[place + $0 + 1]) && payload[place + $0] == 0
          }
    },
    HTTP2Difference(
      "a setting named twice", "§6.5.3",
      "each value is looked at, in the order in which they stand; nghttp2 looks at the last one only"
    ) { $0.isOursStricter && $0.isAbout(HTTP2FrameType.settings) && $0.frame.payload.count >= 12 },
    HTTP2Difference(
      "SETTINGS_INITIAL_WINDOW_SIZE that makes a stream's window too large", "§6.9.2",
      "a connection error, as the RFC has it; nghttp2 ends the stream"
    ) { $0.isOursStricter && $0.isAbout(HTTP2FrameType.settings) && $0.ours.error == 3 },
    HTTP2Difference(
      "PUSH_PROMISE before our SETTINGS are acknowledged", "§6.6",
      "refused at once: a server that knows what a push is to us cannot mean one"
    ) { $0.isOursStricter && $0.isAbout(HTTP2FrameType.pushPromise) },
    HTTP2Difference(
      "GOAWAY whose last stream is none of ours, or larger than the one before", "§6.8",
      "taken as it stands: the smallest counts, and a connection that ends is no reason to lose what is in flight on it"
    ) { $0.isOursLaxer && $0.isAbout(HTTP2FrameType.goAway) },
    HTTP2Difference(
      "WINDOW_UPDATE of nothing for a stream", "§6.9",
      "a stream error, as the RFC has it; nghttp2 ends the connection"
    ) { $0.isOursLaxer && $0.isAbout(HTTP2FrameType.windowUpdate) && $0.frame.stream != 0 },
    HTTP2Difference(
      "a stream that depends on itself", "§5.3.2",
      "priorities are not read: RFC 9113 has no such rule any more"
    ) {
      $0.isOursLaxer
        && ($0.isAbout(HTTP2FrameType.priority)
          || $0.isAbout(HTTP2FrameType.headers) && $0.frame.flags & HTTP2FrameFlags.hasPriority != 0)
    },
    HTTP2Difference(
      "header fields that HTTP does not allow", "§8.2",
      "an answer with a status is an answer: to refuse it for a field that nobody reads would ring a phone again. What is "
        + "read of fields is checked where it is read"
    ) { $0.refusedField.map { !$0.contains("name: [:") } ?? false },
    HTTP2Difference(
      "pseudo-header fields in trailers", "§8.1",
      "trailers are not read"
    ) { $0.refusedField?.contains("name: [:") == true && $0.isInTrailers && $0.ours.error == nil },
    HTTP2Difference(
      "a status below 100", "RFC 9110 §15",
      "no status: refused as malformed"
    ) {
      $0.isAbout(HTTP2FrameType.headers) || $0.isAbout(HTTP2FrameType.continuation)
        ? $0.lastFields.first == Array(":status".utf8) && $0.lastFields[1].first == UInt8(ascii: "0") : false
    },
    HTTP2Difference(
      "a limit of ours", "§10.5",
      "ENHANCE_YOUR_CALM is said of what costs us more than an answer can be worth"
    ) { $0.ours.error == 11 || $0.ours.events.contains { if case .ended(_, 11, _) = $0 { true } else { false } } },
    HTTP2Difference(
      "frames after GOAWAY without a stream in flight", "§6.8",
      "read as any others; nghttp2 is done with the connection"
    ) { $0.isTheirsDone },
    HTTP2Difference(
      "empty DATA before the answer's head", "§8.1",
      "a stream error, as for any DATA there; nghttp2 waits for the first byte"
    ) {
      $0.isAbout(HTTP2FrameType.data) && $0.theirs.events.isEmpty && $0.theirs.error == nil
        && $0.ours.events.map(\.description).allSatisfy { $0.hasSuffix("ended 1") }
    },
    HTTP2Difference(
      "more DATA than content-length says", "§8.1.1",
      "the two are compared when the answer is whole; the size of what is kept is bounded besides"
    ) {
      $0.isAbout(HTTP2FrameType.data) && $0.ours.events.isEmpty && $0.ours.error == nil && $0.theirs.error == nil
        && $0.theirs.events.map(\.description).allSatisfy { $0.hasSuffix("ended 1") }
    },
    HTTP2Difference(
      "content-length of an answer that has no body", "RFC 9110 §8.6",
      "read as any other's: no push service answers 204 or 304"
    ) {
      ($0.theirs.events + $0.ours.events).contains { event in
        guard case .ended(_, _, let answer?) = event else { return false }
        return ["204", "304"].contains(String(decoding: answer.fields[1], as: UTF8.self))
      }
    },
    HTTP2Difference(
      "an answer longer than what is kept of it", "§5.4.2",
      "its status says enough, and the rest is not waited for"
    ) {
      $0.ours.events.contains { event in
        guard case .ended(_, _, let answer?) = event else { return false }
        return answer.isTruncated
      }
    },
    HTTP2Difference(
      "the beginning of a header block that is wrong", "§4.3",
      "a block is read when it is whole; nghttp2 reads what there is"
    ) {
      ($0.isAbout(HTTP2FrameType.headers) || $0.isAbout(HTTP2FrameType.continuation))
        && $0.frame.flags & HTTP2FrameFlags.endsHeaders == 0 && $0.ours.events.isEmpty && $0.ours.error == nil
    },
    HTTP2Difference(
      "when a stream's window is opened again", "§6.9",
      "once more than half of it is used, counted frame by frame; nghttp2 does it at the half, and between a frame's "
        + "padding and its data. Only with windows smaller than two frames can it be seen"
    ) {
      $0.isAbout(HTTP2FrameType.data) && $0.theirs.events.isEmpty && $0.theirs.error == nil
        && $0.ours.events.map(\.description).allSatisfy { $0.hasSuffix("ended 3") || $0.hasSuffix("ended 7") }
    },
    HTTP2Difference(
      "which error is told when a frame has several", "§5.4",
      "the RFC gives no order"
    ) { disagreement in
      guard let ours = disagreement.ours.error, let theirs = disagreement.theirs.error else { return false }
      return [1, 6].contains(ours) && [1, 6].contains(theirs)
    },
  ]
}
