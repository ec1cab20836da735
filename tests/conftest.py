"""How hypothesis runs here: without deadlines, since a busy machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("msgdag", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("msgdag")
