"""Transforms and sources of Vitrina pipelines, written in Python.

A decorated function stays a plain function: call it from a test as any other.
"""

from .context import Context
from .errors import ContractError, DeclarationError, Reject, Retry
from .registry import Task, registry, source, transform

__version__ = "0.1.0"

__all__ = [
    "Context",
    "ContractError",
    "DeclarationError",
    "Reject",
    "Retry",
    "Task",
    "registry",
    "source",
    "transform",
]
