"""What a release is made of: the SBOM, the page of dependencies, and the release tarball."""
