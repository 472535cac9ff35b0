//! The whole system, through the binary: see `tests/`.
