//! Bugs.
