// The lanes of the two apps in a simulation.

import MemoryOutbox
import Providers

/// One lane, as the database and every replica know it.
struct SimulatedLane {
  var id: Int16
  var app: String
  var provider: ProviderKind

  static let apps = ["alpha", "beta"]

  static let all: [SimulatedLane] = apps.enumerated().flatMap { index, app in
    ProviderKind.allCases.enumerated().map { rank, provider in
      SimulatedLane(id: Int16(index * 10 + rank + 1), app: app, provider: provider)
    }
  }

  var name: String { "\(app)/\(provider.rawValue)" }
}

extension MemoryDelivery {
  var story: String {
    "\(key.story) kind \(kind) \(state) owner \(owner.map { "\($0)" } ?? "none") lease \(lease) attempt \(attempt) "
      + "crashes \(crashes)"
  }
}
