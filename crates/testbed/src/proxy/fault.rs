//! What can happen to a request.

use std::time::Duration;

use serde_json::Value;

use super::Gate;

#[derive(Debug, Clone)]
pub enum Fault {
    /// None: lets some pass before another rule acts.
    Pass,
    /// The caller's connection is closed, and the server never hears of the request.
    DropRequest,
    /// The server executes the request, and the caller's connection is closed instead of an answer.
    DropReply,
    /// The request is passed on later.
    Delay(Duration),
    /// The proxy answers by itself, and the server never hears of the request.
    Answer(u16, Value),
    /// The server gets the request twice; the caller gets the first answer.
    Duplicate,
    /// The same, but the copy waits for the gate, behind whatever passes meanwhile.
    DuplicateLater(Gate),
    /// The request waits for the gate, also when its caller gives up.
    Hold(Gate),
    /// The server executes the request, and the answer waits for the gate.
    HoldReply(Gate),
    /// Of the operations of a `_bulk` this share, from 0 to 1, is refused with 429 as by a server that is too busy, and
    /// never reaches it. Evenly spread and rounded down: of one operation none, unless the share is 1.
    RejectItems(f64),
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped")]
pub(super) struct Dropped;
