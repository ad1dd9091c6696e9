"""All tests: how long an example takes says nothing about the library, so none has a deadline."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
