// The lanes of a load before it begins: what an earlier run has left would spoil this one.

internal import Runtime

/// One lane, as push.lanes has it.
struct LoadLane: Equatable, Sendable {
  /// App and channel: `porteiro/fcm`.
  var name: String
  var isPaused = false
  /// The word of push.lanes; empty if no gateway serves the lane.
  var circuit = "closed"
  /// How long the provider still asks for a pause, in seconds; 0: it does not.
  var throttledSeconds: Int64 = 0
  /// Number of deliveries of earlier calls, and seconds until the last of them expires.
  var owed: Int64 = 0
  var owedSeconds: Int64 = 0

  /// What holds up the lane, and for how long; empty if nothing does.
  private var troubles: [String] {
    var troubles: [String] = []
    if isPaused { troubles.append("is paused until somebody resumes it") }
    if throttledSeconds > 0 {
      troubles.append("is throttled for another \(throttledSeconds) s")
    } else if circuit == "open" || circuit == "half_open" {
      troubles.append("has an open circuit until a push succeeds")
    }
    if owed > 0 {
      troubles.append(
        "still has \(owed) deliver\(owed == 1 ? "y" : "ies") of earlier calls, for \(owedSeconds) s at most")
    }
    return troubles
  }

  /// One line that names the lanes on which a run would not be alone, or would not send at once; nil without any.
  static func warning(_ lanes: [LoadLane]) -> String? {
    let texts = lanes.compactMap { lane in
      lane.troubles.isEmpty ? nil : "\(lane.name) \(lane.troubles.joined(separator: ", and "))"
    }
    return texts.isEmpty ? nil : "Warning: this counts against the run: \(texts.joined(separator: "; "))"
  }
}
