"""What comes before all tests."""

import tests.interpreting  # noqa: F401
