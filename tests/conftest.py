"""Fixtures of the whole suite, and how its property tests choose examples."""

import os

from hypothesis import settings

from tests.provider_fixture import replay_provider, start_provider

__all__ = ["replay_provider", "start_provider"]

# The same examples each time, so that a red run means a change; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("repeat", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
