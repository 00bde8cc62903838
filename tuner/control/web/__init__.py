"""The daemon's web server: metrics, health, JSON API and live page; loaded only if the file asks for it."""

from tuner.control.web.exporter import Exporter
from tuner.control.web.server import WebServer

__all__ = ["Exporter", "WebServer"]
