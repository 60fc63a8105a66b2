// The soak tests, one after another: each needs the machine for itself.

import Testing

@Suite("Soak", .serialized, .enabled(if: SoakSettings.isOn), .timeLimit(.minutes(20)))
enum SoakTests {}
