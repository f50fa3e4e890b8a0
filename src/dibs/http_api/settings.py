"""`/v1/settings`: the settings of the daemon, where each value comes from, and reading them again."""

from __future__ import annotations

import sys

from dibs.daemon.service import Daemon
from dibs.http_api.schemas import wire
from dibs.http_api.schemas.machine_answers import Reload, Setting, Settings
from dibs.system import settings
from dibs.system.configuration import entries
from dibs.version import __version__


async def get_settings(daemon: Daemon) -> Settings:
    """Return every setting of the daemon with its value, the source of the value, and its meaning."""
    values = daemon.settings
    found = [
        wire.fill(
            Setting,
            setting,
            value=entries.written(getattr(values, setting.name)),
            source=values.sources[setting.name],
            help=setting.meaning,
        )
        for setting in settings.SETTINGS
    ]
    python = ".".join(str(part) for part in sys.version_info[:3])
    return Settings(found, __version__, python, str(daemon.identity.home))


async def post_reload(daemon: Daemon) -> Reload:
    """Read the configuration files again. What can change while the daemon runs takes effect with the answer."""
    return Reload(await daemon.reload_settings())
