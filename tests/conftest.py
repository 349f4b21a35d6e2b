"""Fixtures of the whole suite."""

from tests.provider_fixture import replay_provider, start_provider

__all__ = ["replay_provider", "start_provider"]
