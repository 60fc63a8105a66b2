// Checks that the event loops run. A process may answer HTTP although the thread that sends pushes hangs.

package import Runtime
import Synchronization

/// Asks event loops for a beat. A beat is a closure, which a loop can run only when its current turn has ended.
package final class Heartbeat: Sendable {
  /// Maximum time until a beat.
  package static let patience = Duration.seconds(2)

  private struct Asking {
    let id: UInt64
    let continuation: CheckedContinuation<Bool, Never>
  }

  private struct Pulse {
    let loop: EventLoop
    /// Whether a beat was requested and has not come. A loop that hangs is asked only once.
    var isAsked = false
    var waiting: [Asking] = []
  }

  private struct State {
    var pulses: [Pulse] = []
    var lastID: UInt64 = 0
  }

  private let state = Mutex(State())

  package init() {}

  /// Begins to watch a loop.
  package func watch(_ loop: EventLoop) {
    state.withLock { $0.pulses.append(Pulse(loop: loop)) }
  }

  /// Stops watching a loop, which is about to stop.
  package func unwatch(_ loop: EventLoop) {
    let waiting = state.withLock { state in
      defer { state.pulses.removeAll { $0.loop === loop } }
      return state.pulses.filter { $0.loop === loop }.flatMap(\.waiting)
    }
    for asking in waiting { asking.continuation.resume(returning: true) }
  }

  /// The names of loops that did not answer in time, in the order in which they were added; empty if all did.
  package func silentLoops(within patience: Duration = Heartbeat.patience) async -> [String] {
    let loops = state.withLock { $0.pulses.map(\.loop) }
    return await withTaskGroup(of: String?.self) { asked in
      for loop in loops {
        asked.addTask { await self.beats(loop, within: patience) ? nil : loop.name }
      }
      return await asked.reduce(into: []) { $0 += $1.map { [$0] } ?? [] }.sorted()
    }
  }

  // MARK: - One loop

  private func beats(_ loop: EventLoop, within patience: Duration) async -> Bool {
    let id = state.withLock { state in
      state.lastID += 1
      return state.lastID
    }
    let timer = Task {
      try await Task.sleep(for: patience)
      self.answer(loop, false) { $0.id == id }
    }
    defer { timer.cancel() }
    return await withCheckedContinuation { continuation in
      let isKnown = state.withLock { state in
        guard let index = state.pulses.firstIndex(where: { $0.loop === loop }) else { return false }
        state.pulses[index].waiting.append(Asking(id: id, continuation: continuation))
        return true
      }
      guard isKnown else { return continuation.resume(returning: true) }
      ask(loop)
    }
  }

  private func ask(_ loop: EventLoop) {
    let mustAsk = state.withLock { state in
      guard let index = state.pulses.firstIndex(where: { $0.loop === loop }) else { return false }
      defer { state.pulses[index].isAsked = true }
      return !state.pulses[index].isAsked
    }
    guard mustAsk else { return }
    loop.execute {
      self.answer(loop, true) { _ in true }
    }
  }

  /// Answers the waiting callers that match.
  private func answer(_ loop: EventLoop, _ beats: Bool, _ isMeant: (Asking) -> Bool) {
    let answered: [Asking] = state.withLock { state in
      guard let index = state.pulses.firstIndex(where: { $0.loop === loop }) else { return [] }
      if beats { state.pulses[index].isAsked = false }
      let answered = state.pulses[index].waiting.filter(isMeant)
      state.pulses[index].waiting.removeAll { asking in answered.contains { $0.id == asking.id } }
      return answered
    }
    for asking in answered { asking.continuation.resume(returning: beats) }
  }
}
