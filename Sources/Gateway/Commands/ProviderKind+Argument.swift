// The values of `ring --provider`.

public import ArgumentParser
public import Providers

extension ProviderKind: ExpressibleByArgument {}
