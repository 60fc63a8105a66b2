import ArgumentParser
import Hummingbird
import Logging
import ServiceLifecycle
import Yams
print("x")
