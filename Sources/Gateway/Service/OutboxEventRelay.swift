// Passes events from a store that is already open to a dispatcher that is created later.

import Dispatching
import Queue
import Synchronization

/// Keeps a store's events until there is a dispatcher. After that it passes them on at once, on the store's event loop.
final class OutboxEventRelay: Sendable {
  private struct State {
    var waiting: [OutboxEvent] = []
    var dispatcher: Dispatcher?
    var isAvailable = false
    var onAvailable: CheckedContinuation<Void, Never>?
  }

  private let state = Mutex(State())

  func hear(_ event: OutboxEvent) {
    let (dispatcher, onAvailable): (Dispatcher?, CheckedContinuation<Void, Never>?) = state.withLock { state in
      if state.dispatcher == nil { state.waiting.append(event) }
      guard case .available = event else { return (state.dispatcher, nil) }
      state.isAvailable = true
      defer { state.onAvailable = nil }
      return (state.dispatcher, state.onAvailable)
    }
    dispatcher?.hear(event)
    onAvailable?.resume()
  }

  /// Returns once the store has been available, or the task is cancelled.
  func waitUntilAvailable() async {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isOver = state.withLock { state in
          if state.isAvailable || Task.isCancelled { return true }
          state.onAvailable = continuation
          return false
        }
        if isOver { continuation.resume() }
      }
    } onCancel: {
      let waiting = state.withLock { state in
        defer { state.onAvailable = nil }
        return state.onAvailable
      }
      waiting?.resume()
    }
  }

  /// Passes the kept events and all later ones to the dispatcher.
  func connect(_ dispatcher: Dispatcher) {
    let waiting = state.withLock { state in
      state.dispatcher = dispatcher
      defer { state.waiting = [] }
      return state.waiting
    }
    for event in waiting { dispatcher.hear(event) }
  }
}
