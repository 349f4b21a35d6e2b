"""EagleTUI: buy EAGLE-3 training data from an API, exact, capped and unkillable."""

__version__ = "0.1.0"
