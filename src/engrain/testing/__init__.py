"""Contract suites, a held clock and fault points, shipped for third-party engines and hosts."""
