// The soak tests run one after another, because each needs the whole machine.

import Testing

@Suite("Soak", .serialized, .enabled(if: SoakSettings.isOn), .timeLimit(.minutes(20)))
enum SoakTests {}
